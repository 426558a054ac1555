#!/usr/bin/env bash
# Runs p2p_fullmesh as N processes on this machine, with the variables that Open MPI would set, and passes when rank 0 ends with
# EXPECTED_EXIT and prints a line that matches PATTERN.
#
#   run_ranks.sh PROGRAM N EXPECTED_EXIT PATTERN [argument... for all] [-- argument... for the last rank instead]
#
# START_RANKS, where set, is how many of the N are started; the others are missing. KILL_RANK, where set, is killed once all ranks are
# there; INTERRUPT=1 sends all of them SIGTERM then, as a launcher does on Ctrl-C.
set -u
program=$1 size=$2 expected=$3 pattern=$4
shift 4
arguments=() last_arguments=()
while [[ $# -gt 0 && $1 != -- ]]; do arguments+=("$1"); shift; done
if [[ $# -gt 0 ]]; then shift; last_arguments=("$@"); else last_arguments=("${arguments[@]}"); fi

# A bare system may have no /etc/hosts.
if [[ " ${arguments[*]} " == *' localhost '* ]] && ! getent hosts localhost >/dev/null; then
  echo "SKIPPED: this machine does not know the name localhost"
  exit 77
fi

logs=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$logs"' EXIT

# start RANK ARGUMENT...
start() {
  local rank=$1
  shift
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$size OMPI_COMM_WORLD_LOCAL_RANK=$rank \
    "$program" "$@" >"$logs/$rank" 2>&1 &
  pids[rank]=$!
}

# wait_for_line PATTERN: prints the match in what rank 0 says.
wait_for_line() {
  for _ in $(seq 400); do
    sed -n "s/.*$1.*/\1/p;T;q" "$logs/0" | grep . && return
    kill -0 "${pids[0]}" 2>/dev/null || return
    sleep 0.05
  done
}

touch "$logs/0"
start 0 --port 0 "${arguments[@]}"
port=$(wait_for_line 'ranks on port \([0-9]*\)')
if [[ -n $port ]]; then
  for ((rank = 1; rank < ${START_RANKS:-$size}; ++rank)); do
    if ((rank == size - 1)); then start "$rank" --port "$port" "${last_arguments[@]}"; else start "$rank" --port "$port" "${arguments[@]}"; fi
  done
fi
if [[ -n ${KILL_RANK:-} ]]; then
  wait_for_line '\(ranks are there\)' >/dev/null
  kill -KILL "${pids[KILL_RANK]}"
fi
if [[ -n ${INTERRUPT:-} ]]; then
  wait_for_line '\(ranks are there\)' >/dev/null
  kill -TERM "${pids[@]}"
fi
codes=()
for rank in "${!pids[@]}"; do
  wait "${pids[rank]}" 2>/dev/null
  codes[rank]=$?
done
pids=()
for log in "$logs"/*; do sed "s/^/${log##*/}: /" "$log"; done
echo "exit codes ${codes[*]}; of rank 0 expected $expected and \"$pattern\""
[[ ${codes[0]} -eq $expected ]] && grep -q -e "$pattern" "$logs/0"
