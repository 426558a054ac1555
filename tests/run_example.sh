#!/usr/bin/env bash
# run_example.sh PROGRAM: runs its two ends as the README says, --server and the --connect that it prints, and passes when both do.
set -u
program=$1
log=$(mktemp)
server=''
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -f "$log"' EXIT
"$program" --server >"$log" 2>&1 &
server=$!
peer=''
for _ in $(seq 400); do
  peer=$(sed -n 's/^listening for .* --connect \(.*:[0-9]*\)$/\1/p' "$log")
  [[ -n $peer ]] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.05
done
client_exit=none
if [[ -n $peer ]]; then
  "$program" --connect "$peer"
  client_exit=$?
fi
[[ -n $peer ]] || kill "$server"
wait "$server"
server_exit=$?
server=''
cat "$log"
echo "server exit $server_exit, client exit $client_exit"
[[ $server_exit = 0 && $client_exit = 0 ]]
