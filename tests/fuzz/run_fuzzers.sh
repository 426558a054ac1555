#!/bin/sh
# Runs fuzzers that were built, and fails on a finding. The preset `asan-ubsan` builds them.
# usage: tests/fuzz/run_fuzzers.sh SECONDS [BUILD_DIR]
#            every fuzzer for so long, each on a core
#        tests/fuzz/run_fuzzers.sh --inputs N [--seconds LIMIT] [--jobs JOBS] [BUILD_DIR]
#            those that read what comes before authentication, one after another, each with N inputs by JOBS processes (default:
#            a process on each core), which share what they find; none for longer than LIMIT (default: 3600)
# Memory and input size are bounded. New inputs are not kept; an input that breaks something stays in BUILD_DIR/fuzz-findings.
# Another machine needs BUILD_DIR/tests/fuzz/fuzz_*, this file, the corpus beside it, OpenSSL 3 and a C++ runtime as new as ours.
set -u
before_authentication='fuzz_bootstrap_frame fuzz_certificate fuzz_records fuzz_soft_hello'

usage() {
  sed -n 's/^# usage: /usage: /p; s/^#        tests/       tests/p' "$0" >&2
  exit 2
}
is_count() {
  case $1 in '' | 0* | *[!0-9]*) return 1 ;; esac
}
inputs=
seconds=
jobs=1
if [ "${1:-}" = --inputs ]; then
  seconds=3600
  jobs=$(nproc)
fi
while [ $# -gt 0 ]; do
  case $1 in
    --inputs)
      inputs=${2:-}
      is_count "$inputs" || usage
      ;;
    --seconds) seconds=${2:-} ;;
    --jobs) jobs=${2:-} ;;
    *) break ;;
  esac
  shift 2
done
if [ -z "$inputs" ]; then
  seconds=${1:-}
  if [ $# -gt 0 ]; then shift; fi
fi
if ! is_count "$seconds" || ! is_count "$jobs" || [ $# -gt 1 ]; then usage; fi
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../../build/asan-ubsan}
findings=$build/fuzz-findings
work=$(mktemp -d) || exit 1
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT

# run NAME: in the background, as many processes as there are jobs, over one corpus
run() {
  name=$1
  mkdir -p "$work/$name" "$findings" || exit 1
  set -- "$work/$name"
  if [ -d "$here/corpus/$name" ]; then set -- "$@" "$here/corpus/$name"; fi
  if [ -n "$inputs" ]; then set -- -runs=$(((inputs + jobs - 1) / jobs)) "$@"; fi
  job=0
  while [ "$job" -lt "$jobs" ]; do
    job=$((job + 1))
    log=$work/$name.$job
    { "$build/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 \
        -artifact_prefix="$findings/$name-" "$@" >"$log.log" 2>&1 && : >"$log.passed"; } &
  done
}

# report NAME: a line, after its processes have ended; adds to `failed` and `total`
report() {
  broken=0
  for log in "$work/$1".*.log; do
    if [ ! -f "${log%.log}.passed" ]; then
      broken=$((broken + 1))
      tail -n 60 "$log" >&2
    fi
  done
  runs=$(cat "$work/$1".*.log | awk '/^stat::number_of_executed_units:/ { sum += $2 } END { printf "%d", sum }')
  coverage=$(cat "$work/$1".*.log | sed -n 's/.* cov: \([0-9]*\) .*/\1/p' | sort -n | tail -n 1)
  total=$((total + runs))
  failed=$((failed + broken))
  if [ "$broken" -eq 0 ]; then
    echo "fuzz: $1: no finding in $runs inputs ($2 s, coverage $coverage)"
  else
    echo "fuzz: $1: FAILED: $broken findings in $runs inputs ($2 s), inputs in $findings"
  fi
}

if [ -n "$inputs" ]; then
  programs=$before_authentication
else
  programs=$(for program in "$build"/tests/fuzz/fuzz_*; do if [ -f "$program" ] && [ -x "$program" ]; then basename "$program"; fi; done)
fi
for name in ${programs:-fuzz_}; do
  if [ ! -x "$build/tests/fuzz/$name" ]; then
    echo "fuzz: no $name in $build/tests/fuzz; build the preset asan-ubsan first" >&2
    exit 1
  fi
done

cores=$(nproc)
ran=0
failed=0
total=0
began=$(date +%s)
for name in $programs; do
  start=$(date +%s)
  run "$name"
  ran=$((ran + 1))
  if [ -n "$inputs" ]; then
    wait
    report "$name" $(($(date +%s) - start))
  elif [ $((ran % cores)) -eq 0 ]; then
    wait # each has a core to itself
  fi
done
wait
if [ -z "$inputs" ]; then
  for name in $programs; do report "$name" "$seconds"; done
else
  echo "fuzz: $total of $((ran * inputs)) inputs, $ran fuzzers, $jobs processes, $(($(date +%s) - began)) s, $failed findings"
fi
[ "$failed" -eq 0 ]
