# shellcheck shell=bash
# Sourced by the scenarios: a cluster of the script's own (cluster.sh), and the two ends of a program in it. The server runs on host b,
# the client on host a; they find each other over rail 1. Exits with 77 where there can be no cluster.
#
#   scenario.sh PROGRAM
set -u
program=${1:?which program?}
cluster() { "$(dirname "${BASH_SOURCE[0]}")/cluster.sh" "$@"; }

export TCPX_NETNS_ID=$$
export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth
scratch=$(mktemp -d)
server='' port=''
as=() # a command in front of both ends
trap 'cluster down; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
cluster up || exit $?

fail() {
  echo "FAILED: $*"
  tail -n 20 "$scratch/server" "$scratch/client" 2>/dev/null
  exit 1
}

# start_server ARGUMENT...: sets `server`, its process, and `port`, where it waits for the client. Its output is $scratch/server.
start_server() {
  port=''
  : >"$scratch/server" # here and now: the port in it would be that of the server before
  cluster exec b "${as[@]}" "$program" server --port 0 "$@" >"$scratch/server" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    port=$(sed -n 's/.*waiting for a client on port \([0-9]*\).*/\1/p' "$scratch/server")
    [[ -z $port ]] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  fail "the server waits for nobody"
}

# run_client ARGUMENT...: to its end. Its output is $scratch/client.
run_client() { cluster exec a "${as[@]}" "$program" client 10.77.1.2 --port "$port" "$@" >"$scratch/client" 2>&1; }

# sent_bytes N: bytes host a has sent over eth<N> so far, as the kernel counts it, headers included.
sent_bytes() { cluster exec a cat "/sys/class/net/eth$1/statistics/tx_bytes"; }

on() { ip -n "tcpx-$1-$TCPX_NETNS_ID" "${@:2}" || fail "ip ${*:2}"; }

# meet SERVER CLIENT [TIMES]: for meet.cc as the program: the client connects with the metadata of the server. The outputs are $scratch/server
# and $scratch/client, `server` is the process.
meet() {
  local metadata=''
  : >"$scratch/server"
  cluster exec "$1" "${as[@]}" "$program" serve "${3:-1}" >"$scratch/server" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    metadata=$(sed -n 's/^at //p' "$scratch/server")
    [[ -n $metadata ]] && break
    kill -0 "$server" 2>/dev/null || fail "the server has ended"
    sleep 0.05
  done
  cluster exec "$2" "${as[@]}" "$program" connect "$metadata" "${3:-1}" >"$scratch/client" 2>&1
}
