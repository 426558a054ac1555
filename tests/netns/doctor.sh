#!/usr/bin/env bash
# Findings of the doctor on host a about the way to host b, while it is well and with each possible fault.
#
#   doctor.sh PATH_OF_tcpx_doctor
source "$(dirname "$0")/common.sh"

# says WHAT LINE CODE: in this state its output has a line that matches LINE, and it exits with CODE or less.
says() {
  cluster exec a "$program" --verbose --only network --peer 10.77.1.2 >"$scratch/client" 2>&1
  local code=$?
  grep -q -e "$2" "$scratch/client" || fail "$1: no line matches \"$2\""
  ((code == $3)) || fail "$1: exit code $code, not $3"
  echo "$1: $(grep -m1 -e "$2" "$scratch/client")"
}
in_a() { cluster exec a "$@"; }
in_b() { cluster exec b "$@"; }

export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth1,eth2,eth3 # in networks of their own; eth4 is to play with
in_a ip address flush dev eth4
for host in a b; do # regardless of this machine's default
  cluster exec "$host" sh -c 'for filter in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$filter; done'
done
says 'a way' 'ok *peer *10.77.1.2 is reached through eth1 from 10.77.1.1' 0
says 'a host without a server' 'ok *peer\[eth1\] *reached from 10.77.1.1; nobody listens' 0
says 'another rail' 'n/a *peer\[eth2\] *the way to 10.77.1.2 is eth1, not eth2' 0
says 'full packets' 'ok *path_mtu\[eth1\] *packets of 1500 bytes arrive whole' 0

in_a ip route add 10.77.1.2/32 dev eth1 mtu 1300
says 'a narrow path' 'warn *path_mtu\[eth1\] *the path carries 1300 bytes, the interface sends 1500' 1
in_a ip route del 10.77.1.2/32 dev eth1

in_b ip link set eth1 mtu 1300
says 'a path that swallows' 'fail *path_mtu\[eth1\] *short packets arrive, those of 1500 bytes vanish' 2
in_b ip link set eth1 mtu 1500

in_a ip address add 10.77.1.4/24 dev eth4
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth1,eth4
says 'two in one network' 'warn *subnet\[eth1,eth4\] .* packets of 10.77.1.4 leave by another interface than eth4' 1
says 'the second of them' 'warn *peer\[eth4\] *10.77.1.2 is in the network of eth4, but packets from 10.77.1.4 leave by eth1' 1
# Its advice mends the fault.
mend=$(sed -n '/subnet\[eth1,eth4\]/,/mend/s/^ *mend *//p' "$scratch/client")
in_a sh -c "$mend" || fail "the doctor's command fails: $mend"
says 'two with routes of their own' 'ok *peer\[eth4\] *reached from 10.77.1.4' 0 # b answers on any rail
in_a ip address flush dev eth4
in_a ip rule del from 10.77.1.4
NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==eth1,eth2,eth3

in_a sh -c 'echo 1 >/proc/sys/net/ipv4/conf/eth2/rp_filter'
says 'a strict filter' 'warn *rp_filter *strict on eth2' 1
in_a sh -c 'echo 0 >/proc/sys/net/ipv4/conf/eth2/rp_filter'

in_b ip address del 10.77.1.2/24 dev eth1
says 'a host that is not there' 'fail *peer\[eth1\] *no.* from 10.77.1.1' 2
in_b ip address add 10.77.1.2/24 dev eth1

in_a ip link set eth1 down
says 'no route' 'fail *peer *no route to 10.77.1.2: Network is unreachable' 2
echo "PASSED: every state of the way is told"
