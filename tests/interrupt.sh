#!/usr/bin/env bash
# Interrupts a program in the middle and passes when it leaves as all programs do: its last line begins with "interrupted", nothing
# before it speaks of a failure, the exit code is 130 (INT) or 143 (TERM).
#
#   interrupt.sh INT|TERM PATTERN PROGRAM [argument...]    PATTERN: a line after which it is interrupted
set -u
signal=$1 pattern=$2
shift 2
log=$(mktemp)
pid=''
trap 'kill -KILL "$pid" 2>/dev/null; rm -f "$log"' EXIT
fail() {
  echo "interrupt: $*"
  cat "$log"
  exit 1
}
# A background job of a script ignores SIGINT; env undoes that.
env --default-signal=INT "$@" >"$log" 2>&1 </dev/null &
pid=$!
for _ in $(seq 600); do
  grep -q -e "$pattern" "$log" && break
  kill -0 "$pid" 2>/dev/null || fail "has ended by itself"
  sleep 0.05
done
grep -q -e "$pattern" "$log" || fail "does not say \"$pattern\""
kill "-$signal" "$pid"
for _ in $(seq 600); do
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.05
done
kill -0 "$pid" 2>/dev/null && fail "does not end"
wait "$pid"
code=$?
[[ $code -eq $([[ $signal == INT ]] && echo 130 || echo 143) ]] || fail "exit code $code"
[[ $(tail -n 1 "$log") =~ interrupted ]] || fail "the last line is not \"interrupted\""
if grep -q 'FAILED\|TCPX_E_\|system error' "$log"; then fail "an interrupt is no failure"; fi
