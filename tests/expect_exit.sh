#!/usr/bin/env bash
# expect_exit.sh CODE PATTERN COMMAND...: passes when the command exits with CODE and its output has a line that matches PATTERN.
expected=$1 pattern=$2
shift 2
output=$("$@" 2>&1 </dev/null)
code=$?
printf '%s\nexit %s, expected %s and "%s"\n' "$output" "$code" "$expected" "$pattern"
[ "$code" = "$expected" ] && grep -q -e "$pattern" <<<"$output"
