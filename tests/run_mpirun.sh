#!/usr/bin/env bash
# Runs p2p_fullmesh as N ranks of MPIRUN on this machine and passes when it ends with EXPECTED_EXIT and prints a line that matches
# PATTERN. Skipped without an mpirun.
#
#   run_mpirun.sh MPIRUN PROGRAM N EXPECTED_EXIT PATTERN [argument...]
set -u
mpirun=$1 program=$2 size=$3 expected=$4 pattern=$5
shift 5
if [[ $mpirun != /* ]]; then
  echo "SKIPPED: no mpirun when this build was configured (scripts/install_deps.sh --mpi installs it)"
  exit 77
fi
launch=("$mpirun" --oversubscribe --bind-to none -np "$size")
if [[ $(id -u) -eq 0 ]]; then launch+=(--allow-run-as-root); fi

# Of this test alone, among those that run at the same time.
port=$((30000 + $$ % 2000))
while (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; do port=$((port + 1)); done
output=$("${launch[@]}" "$program" --port "$port" "$@" 2>&1 </dev/null)
code=$?
printf '%s\nexit %s, expected %s and "%s"\n' "$output" "$code" "$expected" "$pattern"
[[ $code -eq $expected ]] && grep -q -e "$pattern" <<<"$output"
