#!/usr/bin/env bash
# both_ends_say.sh PATTERN PROGRAM [argument... of the server] -- [argument... of the client]: passes when both fail and both have a
# last line that matches PATTERN.
set -u
pattern=$1
shift
output=$("$(dirname "$0")/run_two_processes.sh" "$1" 1 "${@:2}" 2>&1)
code=$?
printf '%s\n' "$output"
[[ $code -eq 0 && $(grep -c "^FAILED: .*$pattern" <<<"$output") -eq 2 ]]
