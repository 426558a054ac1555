#!/usr/bin/env bash
# Endpoints that meet by metadata: one host with both families and one with IPv6 alone, both with IPv6 alone, hosts whose only
# address is on lo and routed to, a host that can tell of nothing but its loopback, and addresses that are silent, which only the first
# connection tries.
#
#   families.sh PATH_OF_meet
source "$(dirname "$0")/common.sh"
unset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME

# expect WORDS: both directions work
expect() {
  for way in "a b" "b a"; do
    # shellcheck disable=SC2086  # two hosts
    meet $way || fail "$1: from ${way#* } to ${way% *}"
    wait "$server" || fail "$1: server: exit code $?"
  done
  echo "$1: ok"
}

for rail in 1 2 3 4; do
  for host in a b; do
    on "$host" address flush dev "eth$rail"
    [[ $rail == 1 ]] || on "$host" link set "eth$rail" down
  done
done
on a -6 address add fd00:9::1/64 dev eth1 nodad 2>/dev/null || { echo "SKIPPED: no IPv6 here"; exit 77; }
on b -6 address add fd00:9::2/64 dev eth1 nodad
expect "IPv6 alone"

on b address add 10.20.0.2/24 dev eth1
expect "IPv6 at both hosts, IPv4 at one"

on a address flush dev eth1
on a address add 10.20.0.1/24 dev eth1
expect "IPv4 at both hosts, IPv6 at one"

on a -6 address add fd00:9::1/64 dev eth1 nodad
on a route add unreachable 10.20.0.2/32
expect "both families at both hosts, and IPv4 leads nowhere"
on a route del unreachable 10.20.0.2/32

for way in "a 10.20.0.2" "b 10.20.0.1"; do
  on "${way% *}" neighbour replace "${way#* }" lladdr 02:00:00:00:00:99 nud permanent dev eth1 # where nobody is
done
meet a b 2 || fail "IPv4 is silent: client"
wait "$server" || fail "IPv4 is silent: server: exit code $?"
for end in client server; do
  mapfile -t sent < <(sed -n 's/^IPv4 packets //p' "$scratch/$end")
  ((sent[1] > sent[0])) || fail "IPv4 is silent: the $end has not tried it"
  ((sent[2] == sent[1])) || fail "IPv4 is silent: the $end has tried it for the second connection, too"
done
echo "both families at both hosts, and IPv4 is silent: ok"

for host in a b; do on "$host" address flush dev eth1; done
on a address add 10.255.0.1/32 dev lo
on b address add 10.255.0.2/32 dev lo
on a route add 10.255.0.2/32 dev eth1 src 10.255.0.1
on b route add 10.255.0.1/32 dev eth1 src 10.255.0.2
expect "an address on lo"

on b address del 10.255.0.2/32 dev lo
meet b a && fail "loopback leads to no other host"
grep -q 'tells only of loopback, 127.0.0.1: there, set public_address' "$scratch/client" || fail "the client does not say why"
kill "$server" 2>/dev/null
wait "$server" 2>/dev/null
echo "PASSED: endpoints meet at whatever address leads there"
