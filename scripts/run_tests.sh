#!/usr/bin/env bash
# Runs the tests of a build folder with ctest, then counts them per label and says why some were skipped.
# usage: scripts/run_tests.sh BUILD_DIR [ctest arguments]
set -euo pipefail

if [[ $# -lt 1 || $1 == -* ]]; then
  echo "usage: $0 BUILD_DIR [ctest arguments]" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
jobs=$(($(nproc) * 3 / 2)) # many tests wait most of the time

# Kept for whoever adds up several runs.
results=$build/test_results.xml
log=$build/ctest.log
rm -f "$results"

code=0
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$jobs" --output-junit "$results" "$@" 2>&1 | tee "$log" || code=$?
if [[ -f $results ]]; then
  ctest --test-dir "$build" --show-only --verbose >"$build/test_labels.txt"
  awk -f "$here/test_summary.awk" "$build/test_labels.txt" "$results"
fi
exit "$code"
