#!/usr/bin/env bash
# A NIC is switched off in the middle of a stream of transfers. Both ends wait 3 s for it to come back, then say which one it was, also when it is the one that the
# bootstrap connection goes over; with UCCL_TCPX_FAILOVER=1 they carry on over the others instead, and every byte arrives.
#
#   nic_down.sh PATH_OF_test_tcpx_perf
source "$(dirname "$0")/common.sh"

readonly limit_ms=5000 stream=(-b 16M -n 40 -w 0 --memory host)
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# start_stream: both ends, and waits until some MiB have gone over every NIC. Sets `server` and `client`.
start_stream() {
  start_server "${stream[@]}"
  local before
  before=$(sent_bytes 3)
  run_client "${stream[@]}" &
  client=$!
  for _ in $(seq 400); do
    (($(sent_bytes 3) - before > 8 << 20)) && return
    sleep 0.02
  done
  fail "nothing goes over eth3"
}

for rail in 1 2 3 4; do cluster limit "$rail" 400mbit || fail "limit"; done

for nic in 3 1; do
  start_stream
  begin=$(now_ms)
  cluster nic-down a "$nic"
  wait "$client"
  client_exit=$? client_ms=$(($(now_ms) - begin))
  wait "$server"
  server_exit=$? server_ms=$(($(now_ms) - begin))
  [[ $client_exit -eq 1 && $server_exit -eq 1 ]] || fail "client exit $client_exit, server exit $server_exit; expected 1"
  for end in client server; do
    grep "^FAILED: .*eth$nic" "$scratch/$end" || fail "the $end does not say that it was eth$nic"
  done
  ((client_ms <= limit_ms && server_ms <= limit_ms)) || fail "client ended after $client_ms ms, server after $server_ms ms"
  echo "both ends have said so after $server_ms ms"
  cluster nic-up a "$nic"
done

export UCCL_TCPX_FAILOVER=1
start_stream
begin=$(now_ms)
cluster nic-down a 1
wait "$client" "$server"
ms=$(($(now_ms) - begin))
grep -h '^FAILED: .*eth1 is down, which the two halves talk over' "$scratch/client" "$scratch/server" || fail "nobody says that it was eth1"
((ms <= limit_ms)) || fail "both had ended after $ms ms"
cluster nic-up a 1

start_stream
before=$(sent_bytes 3)
cluster nic-down a 3
wait "$client" || fail "client with failover: exit code $?"
wait "$server" || fail "server with failover: exit code $?"
grep -q 'PASSED: every byte is where it belongs' "$scratch/client" || fail "not every byte was compared"
grep -h 'goes on over 3 of 4 channels.*eth3' "$scratch/client" "$scratch/server" || fail "nobody says that eth3 was lost"
(($(sent_bytes 3) - before < 16 << 20)) || fail "eth3 was not switched off"
echo "PASSED: an error that names the NIC, and failover over the others"
