#!/usr/bin/env bash
# interrupt_doctor.sh PROGRAM: an interrupt ends a selftest under way, and its other process with it.
set -m # else the interrupt would be ignored in the background
program=$1
"$program" --only selftest --selftest-bytes $((1 << 30)) &
doctor=$!
trap 'kill -KILL $doctor 2>/dev/null' EXIT
other=''
for _ in $(seq 200); do
  other=$(cat "/proc/$doctor/task/$doctor/children" 2>/dev/null)
  [[ -n $other ]] && break
  kill -0 "$doctor" 2>/dev/null || { echo "FAILED: it has ended by itself"; exit 1; }
  sleep 0.05
done
[[ -n $other ]] || { echo "FAILED: there is no other process"; exit 1; }
kill -INT "$doctor" # alone: a terminal would interrupt both
wait "$doctor"
code=$?
for _ in $(seq 100); do
  # shellcheck disable=SC2086  # a number and a space
  kill -0 $other 2>/dev/null || { echo "PASSED: exit code $code, and nothing is left"; [ $code -eq 130 ]; exit; }
  sleep 0.05
done
echo "FAILED: process $other is left"
exit 1
