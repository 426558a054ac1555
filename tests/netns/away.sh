#!/usr/bin/env bash
# A data network that is away for a moment while a connection is set up: the connection is made when it is back. Where it stays
# away, the error at the deadline says so.
#
#   away.sh PATH_OF_test_tcpx_transfer
source "$(dirname "$0")/common.sh"

readonly payload=$((4 << 20))

# way_to_server del|add: of the packets of host a to the second NIC of host b. Connects are answered with EHOSTUNREACH meanwhile.
way_to_server() {
  local -r opposite=$([[ $1 == del ]] && echo add || echo del)
  ip -n "tcpx-a-$TCPX_NETNS_ID" route "$opposite" unreachable 10.77.2.2/32
}

way_to_server del
start_server --bytes "$payload" --dev 1
(sleep 1.5 && way_to_server add) &
run_client --bytes "$payload" --dev 1 || fail "client: exit code $?"
wait "$server" || fail "server: exit code $?"
grep -q '^PASSED: every byte' "$scratch/server" || fail "the server did not compare the bytes"

way_to_server del
start_server --bytes "$payload" --dev 1
UCCL_TCPX_SOFT_CONNECT_TIMEOUT_MS=2000 run_client --bytes "$payload" --dev 1 && fail "there is no way to the server"
grep -q 'No route to host' "$scratch/client" || fail "the client does not say why"
kill "$server" 2>/dev/null
echo "PASSED: a network that is away for a moment is waited for"
