#!/usr/bin/env bash
# NICs that differ in number, order or reach at the two hosts: channels go where there is a way, and one line for each direction tells
# of each that is left out.
#
#   pairs.sh PATH_OF_meet
source "$(dirname "$0")/common.sh"

# expect NAME NICS LINES [NIC_OF_A NIC_OF_B]: both directions work, over that many NICs. Each end tells in that many lines of a channel
# that is left out, and that of the client names the NICs that do not reach each other when it sends.
expect() {
  local way end lines client peers
  for way in "a b" "b a"; do
    # shellcheck disable=SC2086  # two hosts
    meet $way || fail "$1: from ${way#* } to ${way% *}"
    wait "$server" || fail "$1: server: exit code $?"
    for end in client server; do
      lines=$(grep -c 'is left out' "$scratch/$end")
      ((lines == $3)) || fail "$1: $lines lines of the $end, not $3"
    done
    client=${4:-} peers=${5:-}
    [[ $way == "a b" ]] && client=${5:-} peers=${4:-}
    (($3 == 0)) || grep -q "is left out: no way to its $peers: .*from $client: " "$scratch/client" || fail "$1: the client names other NICs"
    grep -q "^over $2 NICs\$" "$scratch/client" || fail "$1: not over $2 NICs"
  done
  echo "$1: ok"
}

# Each address only at its own NIC, as switches between the rails would have it.
for host in a b; do
  for rail in 3 4; do on "$host" link set "eth$rail" down; done
  for setting in rp_filter=1 arp_ignore=1 arp_announce=2; do
    cluster exec "$host" sh -c "echo ${setting#*=} >/proc/sys/net/ipv4/conf/all/${setting%=*}" || fail "$setting"
  done
done

expect "two NICs against two" 2 0

for nic in "eth1 x" "eth2 eth1" "x eth2"; do
  # shellcheck disable=SC2086  # two names
  set -- $nic
  on b link set "$1" down
  on b link set "$1" name "$2"
done
for rail in 1 2; do
  on b address flush dev "eth$rail"
  on b address add "10.77.$((3 - rail)).2/24" dev "eth$rail"
  on b link set "eth$rail" up
done
for host in a b; do cluster exec "$host" sh -c 'until grep -q 1 /sys/class/net/eth1/carrier && grep -q 1 /sys/class/net/eth2/carrier; do sleep 0.1; done'; done
expect "another order" 2 0

on b address flush dev eth1
on b address add 10.79.2.2/24 dev eth1
expect "one NIC leads nowhere" 1 2 eth2 eth1

on b address flush dev eth1
expect "two NICs against one" 1 2 eth2 eth2
echo "PASSED: channels are paired by what reaches what"
