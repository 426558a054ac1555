#!/usr/bin/env bash
# Runs test_tcpx_transfer as two processes on this machine and passes when both end as expected.
#
#   run_two_processes.sh PROGRAM EXPECTED_EXIT [argument... for both] [-- argument... for the client instead]
set -u
program=$1 expected=$2
shift 2
server_arguments=() client_arguments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do server_arguments+=("$1"); shift; done
if [ $# -gt 0 ]; then shift; client_arguments=("$@"); else client_arguments=("${server_arguments[@]}"); fi

export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=${NCCL_GPUDIRECTTCPX_SOCKET_IFNAME:-=lo}
log=$(mktemp)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -f "$log"' EXIT
"$program" server --port 0 "${server_arguments[@]}" >"$log" 2>&1 &
server=$!

port=
for _ in $(seq 200); do
  port=$(sed -n 's/.*waiting for a client on port \([0-9]*\).*/\1/p' "$log")
  [ -n "$port" ] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.05
done
client_exit=none
if [ -n "$port" ]; then
  "$program" client 127.0.0.1 --port "$port" "${client_arguments[@]}"
  client_exit=$?
fi
wait "$server"
server_exit=$?
server=
cat "$log"
echo "server exit $server_exit, client exit $client_exit, expected $expected"
[ "$server_exit" = 77 ] && exit 77
[ "$server_exit" = "$expected" ] && [ "$client_exit" = "$expected" ]
