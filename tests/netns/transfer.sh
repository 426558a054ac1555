#!/usr/bin/env bash
# Transfers between two hosts over each of their four NICs: every byte arrives, and the kernel's counters say that it went that way.
#
#   transfer.sh PATH_OF_test_tcpx_transfer
source "$(dirname "$0")/common.sh"

readonly payload=$((16 << 20))
for rail in 1 2 3 4; do
  device=$((rail - 1)) # eth1 is device 0
  before=()
  for nic in 1 2 3 4; do before[nic]=$(sent_bytes "$nic"); done
  start_server --bytes "$payload" --dev "$device"
  run_client --bytes "$payload" --dev "$device" || fail "client over eth$rail: exit code $?"
  wait "$server" || fail "server over eth$rail: exit code $?"
  grep -q '^PASSED: every byte' "$scratch/server" || fail "the server did not compare the bytes"
  for nic in 1 2 3 4; do
    sent=$(($(sent_bytes "$nic") - before[nic]))
    if ((nic == rail)); then
      ((sent >= payload && sent < payload * 3 / 2)) || fail "eth$nic sent $sent bytes of a transfer of $payload that was its own"
    else
      ((sent < payload / 100)) || fail "eth$nic sent $sent bytes of a transfer that was for eth$rail"
    fi
  done
  echo "eth$rail: $payload bytes compared"
done
echo "PASSED: each NIC carries what is sent over it"
