#!/usr/bin/env bash
# Two hosts with two NICs each, all four in one subnet: what is asked to leave by a NIC leaves by it, and the statistics of both ends
# tell what the kernel counts. As root, and as an ordinary user.
#
#   one_subnet.sh PATH_OF_meet
source "$(dirname "$0")/common.sh"

readonly switch=tcpx-s-$TCPX_NETNS_ID
trap 'cluster down; ip netns del "$switch" 2>/dev/null; rm -rf "$scratch"' EXIT

both() { for host in a b; do ip -n "tcpx-$host-$TCPX_NETNS_ID" "$@" || exit 1; done; }

# setting HOST NIC NAME VALUE: of the kernel
setting() { cluster exec "$1" sh -c "echo $4 >/proc/sys/net/ipv4/conf/$2/$3" || fail "$3 of $2"; }

# counted HOST NIC WAY: bytes that the kernel has counted there so far, rx or tx
counted() { cluster exec "$1" cat "/sys/class/net/$2/statistics/$3_bytes"; }

# told FILE NIC FIELD: of the statistics of an end
told() { sed -n "s/^nic $2 sent \([0-9]*\) received \([0-9]*\)$/\\$3/p" "$1"; }

# compare WHAT TOLD COUNTED: headers and acknowledgements are counted, too, and repeated packets
compare() {
  local said=${2:-0}
  (($3 >= said && $3 < said + said / 4 + 400000)) || fail "$1: the statistics say $said bytes, the kernel $3"
}

# expect WORDS NIC...: a transfer from a to b that leaves by these NICs, a share by each: channels take chunks as they have room
expect() {
  local words=$1 nic before=() gone least
  shift
  for nic in eth1 eth2; do before+=("$(counted a $nic tx)" "$(counted b $nic rx)"); done
  meet b a || fail "$words: client"
  wait "$server" || fail "$words: server: exit code $?"
  least=$(($(sed -n 's/^bytes //p' "$scratch/client") / 16))
  for nic in eth1 eth2; do
    gone=$(($(counted a $nic tx) - before[0]))
    if [[ " $* " == *" $nic "* ]]; then
      ((gone >= least)) || fail "$words: $gone bytes left by $nic, at least $least should"
    else
      ((gone < least / 2)) || fail "$words: $gone bytes left by $nic, which was not asked for"
    fi
    compare "$words: sent by $nic" "$(told "$scratch/client" $nic 1)" "$gone"
    compare "$words: received by $nic" "$(told "$scratch/server" $nic 2)" $(($(counted b $nic rx) - before[1]))
    before=("${before[@]:2}")
  done
  echo "$words: ok"
}

ip netns add "$switch" || fail "a namespace for the switch"
ip -n "$switch" link add sw type bridge 2>/dev/null || { echo "SKIPPED: this kernel has no bridges"; exit 77; }
ip -n "$switch" link set sw up
number=0
for host in a b; do
  for nic in eth1 eth2; do
    number=$((number + 1))
    ip -n "tcpx-$host-$TCPX_NETNS_ID" link del $nic 2>/dev/null
    ip -n "tcpx-$host-$TCPX_NETNS_ID" link add $nic type veth peer name "p$number" netns "$switch" || fail "veth"
    ip -n "$switch" link set "p$number" master sw up
    ip -n "tcpx-$host-$TCPX_NETNS_ID" address add "10.20.0.$number/24" dev $nic
    ip -n "tcpx-$host-$TCPX_NETNS_ID" link set $nic up
  done
done
for nic in eth3 eth4; do both link set $nic down; done
for host in a b; do cluster exec "$host" sh -c 'until grep -q 1 /sys/class/net/eth1/carrier && grep -q 1 /sys/class/net/eth2/carrier; do sleep 0.1; done'; done

echo "hosts whose NICs answer for each other's addresses:"
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth2' expect "the second NIC" eth2
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth1,eth2' expect "both NICs" eth1 eth2
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME= expect "none is asked for, and the kernel takes the first" eth1
for host in a b; do
  setting "$host" all arp_ignore 1
  setting "$host" all arp_announce 2
  ip -n "tcpx-$host-$TCPX_NETNS_ID" neighbour flush all
done
echo "hosts whose NICs answer for themselves:"
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth2' expect "the second NIC" eth2
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth1,eth2' expect "both NICs" eth1 eth2
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME= expect "none is asked for" eth1 eth2
if command -v setpriv >/dev/null; then
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs)
  echo "an ordinary user:"
  NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth2' expect "the second NIC" eth2
  NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='=eth1,eth2' expect "both NICs" eth1 eth2
fi
echo "PASSED: the NIC that is asked for carries the bytes, and the statistics name it"
