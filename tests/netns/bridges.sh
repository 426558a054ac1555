#!/usr/bin/env bash
# Hosts as people have them: besides their NICs a bridge of containers, with the same address at both, and a service processor. With
# nothing set, the first device is a NIC, a bridge with a NIC in it is one, and what is named is taken.
#
#   bridges.sh PATH_OF_test_tcpx_transfer
source "$(dirname "$0")/common.sh"
unset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME

readonly payload=$((4 << 20))

# both COMMAND...: ip(8) at both hosts
both() { for host in a b; do ip -n "tcpx-$host-$TCPX_NETNS_ID" "$@" || exit 1; done; }

sent_by() { cluster exec a cat "/sys/class/net/$1/statistics/tx_bytes"; }

# expect_by INTERFACE DEVICE: a transfer over that device leaves by the interface
expect_by() {
  local before sent
  before=$(sent_by "$1")
  start_server --bytes "$payload" --dev "$2"
  run_client --bytes "$payload" --dev "$2" || fail "client over $1: exit code $?"
  wait "$server" || fail "server over $1: exit code $?"
  grep -q '^PASSED: every byte' "$scratch/server" || fail "the server did not compare the bytes"
  sent=$(($(sent_by "$1") - before))
  ((sent >= payload)) || fail "$1 sent $sent bytes of $payload"
  echo "$1: $payload bytes compared"
}

both link add docker0 type bridge
both link add v-docker type veth peer name w-docker
both link set v-docker master docker0
both link set w-docker up
both link set v-docker up
both link set docker0 up
both address add 172.17.0.1/16 dev docker0
both link add bmc0 type veth peer name bmc1
both link set bmc1 up
both link set bmc0 up
both address add 169.254.3.1/24 dev bmc0
for host in a b; do cluster exec "$host" sh -c 'until grep -q 1 /sys/class/net/docker0/carrier; do sleep 0.1; done'; done

expect_by eth1 0

# A label is another address of its NIC, no device: the fourth is eth4.
ip -n "tcpx-a-$TCPX_NETNS_ID" address add 10.77.1.11/24 dev eth1 label eth1:1
ip -n "tcpx-b-$TCPX_NETNS_ID" address add 10.77.1.12/24 dev eth1 label eth1:1
expect_by eth4 3

# The host's address is on a bridge, as of a host of virtual machines.
if ip -n "tcpx-a-$TCPX_NETNS_ID" link add link eth2 name eth2.7 type vlan id 7 2>/dev/null; then
  ip -n "tcpx-b-$TCPX_NETNS_ID" link add link eth2 name eth2.7 type vlan id 7
  both link add a-br type bridge
  both link set eth2.7 master a-br
  both link set eth2.7 up
  both link set a-br up
  ip -n "tcpx-a-$TCPX_NETNS_ID" address add 10.78.1.1/24 dev a-br
  ip -n "tcpx-b-$TCPX_NETNS_ID" address add 10.78.1.2/24 dev a-br
  for host in a b; do cluster exec "$host" sh -c 'until grep -q 1 /sys/class/net/a-br/carrier; do sleep 0.1; done'; done
  sleep 2.5 # until the bridge forwards
  expect_by a-br 0
else
  echo "a bridge with a NIC in it: not tried, this kernel has no VLANs"
fi

# With names all is as they say.
export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=docker0
start_server --bytes "$payload" --dev 0
run_client --bytes "$payload" --dev 0 && fail "docker0 reaches no other host"
kill "$server" 2>/dev/null # it may have seen the client fail
wait "$server" 2>/dev/null
export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME='^docker,bmc,a-'
expect_by eth1 0
echo "PASSED: NICs carry data, and nothing else unless it is named"
