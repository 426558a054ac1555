#!/usr/bin/env bash
# Two clusters at a time know nothing of each other, and what is taken down is gone, with what ran in it.
set -u
cluster() { TCPX_NETNS_ID=$1 "$(dirname "$0")/cluster.sh" "${@:2}"; }
readonly one="${$}x" two="${$}y"
trap 'cluster "$one" down; cluster "$two" down' EXIT

fail() {
  echo "FAILED: $*"
  exit 1
}
namespaces() { ip netns list | grep -c "^tcpx-[ab]-$1\>"; }
state() { cluster "$1" exec "$2" cat "/sys/class/net/eth$3/operstate"; }

cluster "$one" up || exit $?
cluster "$two" up || fail "no second cluster"
[[ $(namespaces "$one") -eq 2 && $(namespaces "$two") -eq 2 ]] || fail "not two hosts each"
cluster "$one" up 2>/dev/null && fail "the same cluster twice"

cluster "$one" nic-down a 3 || fail "nic-down"
[[ $(state "$one" a 3) == down && $(state "$two" a 3) == up && $(state "$one" a 2) == up ]] || fail "another NIC went down than eth3"
cluster "$one" nic-up a 3 || fail "nic-up"
[[ $(state "$one" b 3) == up ]] || fail "eth3 stays down"
cluster "$one" limit 2 50mbit || fail "limit"
[[ $(cluster "$one" exec b tc qdisc show dev eth2) == *"rate 50Mbit"* ]] || fail "no limit"
cluster "$one" limit 2 none || fail "limit none"
[[ $(cluster "$one" exec b tc qdisc show dev eth2) != *tbf* ]] || fail "the limit stays"

cluster "$one" exec a sleep 1000 &
sleeper=$!
for _ in $(seq 100); do [[ -n $(ip netns pids "tcpx-a-$one") ]] && break; sleep 0.05; done
cluster "$one" down || fail "down"
wait "$sleeper" 2>/dev/null
[[ $(namespaces "$one") -eq 0 && $(namespaces "$two") -eq 2 ]] || fail "the wrong hosts are gone"
cluster "$one" down || fail "down of nothing"
cluster "$two" down || fail "down"
[[ $(namespaces "$two") -eq 0 ]] || fail "hosts are left"
echo "PASSED"
