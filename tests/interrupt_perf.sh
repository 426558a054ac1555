#!/usr/bin/env bash
# Ends a loopback run of test_tcpx_perf in the middle and passes when it leaves as it should, with nothing behind.
#
#   interrupt_perf.sh PROGRAM interrupt    Ctrl-C: rows so far, what it had of the next, exit code 130
#   interrupt_perf.sh PROGRAM kill         the client dies: so does the server
#   interrupt_perf.sh PROGRAM hang         the server hangs: the client gives up and ends it
set -u
program=$1 how=$2
log=$(mktemp)
client='' server=''
trap 'kill -KILL $client $server 2>/dev/null; rm -f "$log"' EXIT

fail() {
  echo "interrupt_perf: $*"
  cat "$log"
  exit 1
}

# within SECONDS COMMAND...: true once the command is.
within() {
  for _ in $(seq $((20 * $1))); do
    "${@:2}" && return
    sleep 0.05
  done
  return 1
}
first_row() { grep -q '^ *65536 ' "$log"; }
gone() { [[ ! -e /proc/$1 || $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) == Z ]]; }

# A background job of a script ignores SIGINT; env undoes that.
env --default-signal=INT "$program" loopback -b 64K -e 128K -w 0 --duration 1 >"$log" 2>&1 &
client=$!
within 5 first_row || fail "no first row"
server=$(cat "/proc/$client/task/$client/children")
[[ -n $server ]] || fail "no server process"
server=${server%% *}

if [[ $how == kill ]]; then
  kill -KILL "$client"
  wait "$client" 2>/dev/null
  within 5 gone "$server" || fail "the server outlives its client"
  exit 0
fi
if [[ $how == hang ]]; then
  kill -STOP "$server"
  within 30 gone "$client" || fail "does not give up"
  wait "$client"
  code=$?
  [[ $code -eq 1 ]] || fail "exit code $code"
  gone "$server" || fail "the server is still there"
  grep -q '^FAILED: TCPX_E_TIMEOUT' "$log" || fail "no last word"
  exit 0
fi
sleep 0.3
kill -INT "$client" "$server" # as a terminal does
within 5 gone "$client" || fail "does not end"
wait "$client"
code=$?
[[ $code -eq 130 ]] || fail "exit code $code"
gone "$server" || fail "the server is still there"
first_row || fail "the first row is gone"
grep -q '^# 131072 bytes: ended after [0-9]* timed transfers' "$log" || fail "nothing about the row under way"
grep -q '^\[PERF\] Avg: ' "$log" || fail "no [PERF] line"
[[ $(tail -n 1 "$log") == interrupted ]] || fail "no last word"
# The end that is interrupted second may see the first one go, and its plugin says so.
! grep -v '^tcpx: warning: tcpx-soft: .*TCPX_E_PEER_GONE' "$log" | grep -q 'FAILED\|TCPX_E' || fail "an interrupt is no failure"
