#!/usr/bin/env bash
# Kills the process that started a rank of p2p_fullmesh and passes when the rank ends by itself.
#
#   kill_launcher.sh PROGRAM
set -u
log=$(mktemp)
rank=''
trap 'if [[ -n $rank ]]; then kill -KILL "$rank" 2>/dev/null; fi; rm -f "$log"' EXIT
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0
bash -c '"$0" --port 0 --memory host --size 1MiB --iters 1 & echo "pid $!"; wait' "$1" >"$log" 2>&1 &
launcher=$!
for _ in $(seq 200); do
  rank=$(sed -n 's/^pid \([0-9]*\)$/\1/p' "$log")
  if [[ -n $rank ]] && grep -q 'ranks on port' "$log"; then break; fi
  sleep 0.05
done
kill -KILL "$launcher"
for _ in $(seq 200); do
  if ! kill -0 "$rank" 2>/dev/null; then break; fi
  sleep 0.05
done
cat "$log"
if kill -0 "$rank" 2>/dev/null; then
  echo "kill_launcher: rank $rank is still there"
  exit 1
fi
rank=''
grep -q '^interrupted' "$log"
