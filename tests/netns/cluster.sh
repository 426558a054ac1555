#!/usr/bin/env bash
# A cluster on one machine: two hosts, a and b, as network namespaces. Four rails connect them: NIC ethN of a (10.77.N.1) and NIC ethN
# of b (10.77.N.2) are the ends of one veth pair, N = 1 ... 4, and alone in their subnet, so that what is sent to 10.77.N.* leaves by
# ethN. Nothing leaves the machine.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/netns/cluster.sh COMMAND

  up                    makes the cluster
  down                  ends what still runs in it and removes it; no error when there is none
  exec HOST COMMAND...  runs a command on host a or b. UCCL_TCPX_LOCAL is off unless it is set, as the two are really one host
  nic-down HOST N       switches eth<N> off; the other end of the rail loses its carrier
  nic-up HOST N         switches it on again
  far LEFT RIGHT MTU    joins the hosts by the two devices of a running netns_link: far0, 10.77.9.1 on host a and 10.77.9.2 on host b.
                        They are gone when it ends
  limit N RATE          limits rail N to RATE each way, as tc(8) writes rates (1gbit); "none" takes the limit away

TCPX_NETNS_ID (letters and digits, default 0) tells clusters apart: the hosts are the namespaces tcpx-a-ID and tcpx-b-ID.

Needs root and iproute2. Exit code: 0 done, 1 failed, 2 usage, 77 this machine makes no network namespaces.
USAGE
}

wrong_usage() {
  echo "cluster: $*" >&2
  usage >&2
  exit 2
}

skip() {
  echo "SKIPPED: $*"
  exit 77
}

readonly id=${TCPX_NETNS_ID:-0} rails='1 2 3 4'
[[ $id =~ ^[A-Za-z0-9]{1,32}$ ]] || wrong_usage "TCPX_NETNS_ID=\"$id\" is not letters and digits"

# namespace_of HOST
namespace_of() {
  [[ ${1:-} == [ab] ]] || wrong_usage "no host \"${1:-}\": there are a and b"
  echo "tcpx-$1-$id"
}

check_rail() { [[ ${1:-} == [1-4] ]] || wrong_usage "no rail \"${1:-}\": there are $rails"; }

# Those of two namespaces that exist.
existing() { ip netns list 2>/dev/null | awk -v a="tcpx-a-$id" -v b="tcpx-b-$id" '$1 == a || $1 == b { print $1 }'; }

down() {
  local namespace pids
  for namespace in $(existing); do
    pids=$(ip netns pids "$namespace")
    # shellcheck disable=SC2086  # one word per process
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
    ip netns del "$namespace"
  done
}

# The kernel may tell of a carrier a little later than it is there.
wait_for_carriers() {
  for _ in $(seq 100); do
    { ip -n "tcpx-a-$id" link && ip -n "tcpx-b-$id" link; } | grep -q NO-CARRIER || return 0
    sleep 0.05
  done
  echo "cluster: the rails have no carrier after 5 s" >&2
  return 1
}

up() {
  local host address=1 namespace
  [[ $(id -u) -eq 0 ]] || skip "network namespaces need root"
  command -v ip >/dev/null || skip "network namespaces need ip(8) of iproute2"
  command -v tc >/dev/null || skip "limits need tc(8) of iproute2"
  [[ -z $(existing) ]] || { echo "cluster: cluster $id is there already" >&2; exit 1; }
  trap down EXIT
  for host in a b; do
    ip netns add "tcpx-$host-$id" 2>/dev/null || skip "this machine makes no network namespaces"
  done
  # With the same index at both ends the kernel takes a NIC for one without a lower layer, and tells of its carrier up to a second later.
  for rail in $rails; do
    ip -n "tcpx-a-$id" link add "eth$rail" index "$((10 + rail))" type veth peer name "eth$rail" netns "tcpx-b-$id" ||
      skip "this kernel has no veth interfaces"
  done
  for namespace in "tcpx-a-$id" "tcpx-b-$id"; do
    ip -n "$namespace" link set lo up
    for rail in $rails; do
      ip -n "$namespace" address add "10.77.$rail.$address/24" dev "eth$rail"
      ip -n "$namespace" link set "eth$rail" up
    done
    address=2
  done
  wait_for_carriers
  trap - EXIT
}

# The queue holds 20 ms of the rate; the burst is what one large segment needs.
limit() {
  local host
  for host in a b; do
    if [[ $2 == none ]]; then
      tc -n "tcpx-$host-$id" qdisc del dev "eth$1" root 2>/dev/null || true
    else
      tc -n "tcpx-$host-$id" qdisc replace dev "eth$1" root tbf rate "$2" burst 128kb latency 20ms
    fi
  done
}

# far LEFT RIGHT MTU
far() {
  local host=a address=1 device
  for device in "$1" "$2"; do
    ip link set "$device" netns "tcpx-$host-$id"
    ip -n "tcpx-$host-$id" link set "$device" name far0 mtu "$3" txqueuelen 10000 # a burst waits; what is lost is the link's business
    ip -n "tcpx-$host-$id" address add "10.77.9.$address/24" dev far0
    # No talk of IPv6's own is among the packets that are counted.
    ip netns exec "tcpx-$host-$id" sh -c '[ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/far0/disable_ipv6'
    ip -n "tcpx-$host-$id" link set far0 up
    host=b address=2
  done
}

case ${1:-} in
  -h | --help) usage ;;
  up | down)
    [[ $# -eq 1 ]] || wrong_usage "$1 takes nothing"
    "$1"
    ;;
  exec)
    [[ $# -ge 3 ]] || wrong_usage "exec takes a host and a command"
    namespace=$(namespace_of "$2")
    shift 2
    UCCL_TCPX_LOCAL=${UCCL_TCPX_LOCAL:-off} exec ip netns exec "$namespace" "$@"
    ;;
  nic-down | nic-up)
    [[ $# -eq 3 ]] || wrong_usage "$1 takes a host and a rail"
    namespace=$(namespace_of "$2")
    check_rail "$3"
    ip -n "$namespace" link set "eth$3" "${1#nic-}"
    ;;
  far)
    [[ $# -eq 4 ]] || wrong_usage "far takes two devices and an MTU"
    far "$2" "$3" "$4"
    ;;
  limit)
    [[ $# -eq 3 ]] || wrong_usage "limit takes a rail and a rate"
    check_rail "$2"
    limit "$2" "$3"
    ;;
  *) wrong_usage "which command?" ;;
esac
