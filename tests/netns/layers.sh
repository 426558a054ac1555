#!/usr/bin/env bash
# Every layer that test_tcpx_perf measures, between two hosts, one way and to and fro.
#
#   layers.sh PATH_OF_test_tcpx_perf
source "$(dirname "$0")/common.sh"

for layer in tcp plugin pipeline endpoint; do
  for mode in "-b 4M -n 5" "--latency -b 8 -n 20"; do
    read -ra arguments <<<"--layer $layer $mode"
    start_server "${arguments[@]}"
    run_client "${arguments[@]}" || fail "client, layer $layer, $mode: exit code $?"
    wait "$server" || fail "server, layer $layer, $mode: exit code $?"
    grep -q '^PASSED' "$scratch/server" || fail "the server did not compare the bytes"
  done
  echo "$layer: compared"
done
echo "PASSED: each layer between two hosts"
