#!/usr/bin/env bash
# Stops the client of test_tcpx_transfer in mid-run, as a machine that hangs would, and passes when the server gives up by itself.
#
#   stop_peer.sh PROGRAM LIMIT_S ARGUMENT... for both
set -u
program=$1 limit_s=$2
shift 2

export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=${NCCL_GPUDIRECTTCPX_SOCKET_IFNAME:-=lo}
logs=$(mktemp -d)
touch "$logs/server"
server='' client=''
trap 'kill -KILL $server $client 2>/dev/null; rm -rf "$logs"' EXIT

# wait_for_line FILE PATTERN: prints the first match once it is there.
wait_for_line() {
  for _ in $(seq 400); do
    sed -n "s/.*$2.*/\1/p;T;q" "$1" | grep . && return
    sleep 0.05
  done
  echo "stop_peer: no line with '$2' in $(cat "$1")" >&2
  exit 1
}

"$program" server --port 0 "$@" >"$logs/server" 2>&1 &
server=$!
port=$(wait_for_line "$logs/server" 'waiting for a client on port \([0-9]*\)') || exit 1
"$program" client 127.0.0.1 --port "$port" "$@" >"$logs/client" 2>&1 &
client=$!
wait_for_line "$logs/server" '\(in place after\)' >/dev/null || exit 1
kill -STOP "$client"

begin=$SECONDS
while kill -0 "$server" 2>/dev/null && ((SECONDS - begin < limit_s)); do sleep 0.1; done
if kill -0 "$server" 2>/dev/null; then
  echo "stop_peer: the server still waits after $limit_s s"
  exit 1
fi
wait "$server"
code=$?
server=''
tail -n 1 "$logs/server"
echo "server exit $code, expected 1"
[[ $code -eq 1 ]]
