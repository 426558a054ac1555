#!/bin/sh
# Runs every fuzzer that was built, each for SECONDS, and fails on a finding. The preset `asan-ubsan` builds them.
# usage: tests/fuzz/run_fuzzers.sh SECONDS [BUILD_DIR]
# Memory and input size are bounded. New inputs are not kept; an input that breaks something stays in BUILD_DIR/fuzz-findings.
set -u
seconds=${1:-}
case $seconds in
  '' | 0* | *[!0-9]*)
    echo "usage: $0 SECONDS [BUILD_DIR]" >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
build=${2:-$here/../../build/asan-ubsan}
findings=$build/fuzz-findings
work=$(mktemp -d) || exit 1
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT

cores=$(nproc)
ran=0
for program in "$build"/tests/fuzz/fuzz_*; do
  if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
  name=$(basename "$program")
  mkdir -p "$work/$name" "$findings" || exit 1
  set -- "$work/$name"
  if [ -d "$here/corpus/$name" ]; then set -- "$@" "$here/corpus/$name"; fi
  ran=$((ran + 1))
  { "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 \
      -artifact_prefix="$findings/$name-" "$@" >"$work/$name.log" 2>&1 && : >"$work/$name.passed"; } &
  if [ $((ran % cores)) -eq 0 ]; then wait; fi # each has a core to itself
done
wait
failed=0
for log in "$work"/*.log; do
  if [ ! -f "$log" ]; then continue; fi
  name=$(basename "$log" .log)
  if [ -f "$work/$name.passed" ]; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    echo "fuzz: $name: no finding in $runs inputs ($seconds s, coverage $coverage)"
  else
    failed=$((failed + 1))
    tail -n 60 "$log" >&2
    echo "fuzz: $name: FAILED, inputs in $findings"
  fi
done
if [ "$ran" -eq 0 ]; then
  echo "fuzz: no fuzzer in $build/tests/fuzz; build the preset asan-ubsan first" >&2
  exit 1
fi
[ "$failed" -eq 0 ]
