#!/usr/bin/env bash
# check_run_fuzzers.sh: what run_fuzzers.sh asks of fuzzers and says of their ends. Made-up ones write down how they are called.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir -p "$build/tests/fuzz"
for name in fuzz_bootstrap_frame fuzz_certificate fuzz_records fuzz_soft_hello fuzz_control_frames; do
  cat >"$build/tests/fuzz/$name" <<'FUZZER'
#!/bin/sh
echo "$(basename "$0") $*" >>"$(dirname "$0")/calls"
echo 'stat::number_of_executed_units: 500'
[ ! -f "$0.broken" ]
FUZZER
  chmod +x "$build/tests/fuzz/$name"
done

# expect CODE LINE ARGUMENT...: of run_fuzzers.sh
expect() {
  local output code
  rm -f "$build/tests/fuzz/calls"
  output=$("$here/run_fuzzers.sh" "${@:3}" 2>&1)
  code=$?
  echo "$output"
  if [[ $code -ne $1 ]] || ! grep -q -e "$2" <<<"$output"; then
    echo "FAILED: exit code $code, expected $1 and \"$2\""
    exit 1
  fi
}
# called COUNT PATTERN: so many calls of fuzzers are like this
called() {
  local found
  found=$(grep -c -e "$2" "$build/tests/fuzz/calls")
  if [[ $found -ne $1 ]]; then
    echo "FAILED: $found calls with \"$2\", expected $1, of:"
    cat "$build/tests/fuzz/calls"
    exit 1
  fi
}

expect 0 '^fuzz: 6000 of 4000 inputs, 4 fuzzers, 3 processes, [0-9]* s, 0 findings$' --inputs 1000 --seconds 7 --jobs 3 "$build"
called 3 '^fuzz_soft_hello -max_total_time=7 .*-runs=334 '
called 3 '^fuzz_bootstrap_frame -max_total_time=7 .*-runs=334 .*/corpus/fuzz_bootstrap_frame$'
called 0 '^fuzz_control_frames' # comes after authentication

touch "$build/tests/fuzz/fuzz_soft_hello.broken"
expect 1 '^fuzz: fuzz_soft_hello: FAILED: 2 findings in 1000 inputs' --inputs 1000 --jobs 2 "$build"
expect 1 ' 2 findings$' --inputs 1000 --jobs 2 "$build"
expect 1 '^fuzz: fuzz_control_frames: no finding in 500 inputs (5 s' 5 "$build"
called 5 ' -max_total_time=5 '
called 0 '-runs='
rm "$build/tests/fuzz/fuzz_soft_hello.broken"
expect 0 '^fuzz: fuzz_soft_hello: no finding in 500 inputs (5 s' 5 "$build"

rm "$build/tests/fuzz/fuzz_soft_hello"
expect 1 '^fuzz: no fuzz_soft_hello in ' --inputs 1000 "$build"
expect 2 '^usage: ' --inputs 0 "$build"
expect 2 '^usage: ' --inputs 1000 --jobs none "$build"
expect 2 '^usage: ' "$build"
