#!/usr/bin/env bash
# Share of each NIC, by the kernel's counters: four alike take a quarter each, and one of a tenth of the speed costs no more than
# what it lacks, whether the chunks of a transfer have grown with it or not, and whether the receiver places them or, between
# endpoints, the sender. The rates are far below what the machine can do, so that the NICs decide and not the processor.
#
#   shares.sh PATH_OF_test_tcpx_perf
source "$(dirname "$0")/common.sh"

readonly transfers=24

# stream NAME TRANSFER_BYTES LAYER: sets `rate` (MB/s) and `sent`, the bytes that went over each NIC, and `total`, over all.
stream() {
  local nic us before=() stream=(-b "$2" -n "$transfers" -w 4 --memory host --layer "$3")
  [[ $3 == pipeline ]] || stream+=(--local off)
  for nic in 1 2 3 4; do before[nic]=$(sent_bytes "$nic"); done
  start_server "${stream[@]}"
  run_client "${stream[@]}" || fail "client: exit code $?"
  wait "$server" || fail "server: exit code $?"
  us=$(sed -n 's/^\[PERF\] Avg: \([0-9]*\)\.\([0-9]\{3\}\) ms,.*/\1\2/p' "$scratch/client")
  [[ $us =~ ^[0-9]+$ ]] || fail "no average in milliseconds"
  rate=$(($2 / 10#$us)) # MB/s
  sent=() total=0
  for nic in 1 2 3 4; do
    sent[nic]=$(($(sent_bytes "$nic") - before[nic]))
    total=$((total + sent[nic]))
  done
  ((total >= $2 * transfers)) || fail "$total bytes sent, less than the data"
  printf '%s: %d MB/s, shares of eth1 ... eth4 in percent:' "$1" "$rate"
  for nic in 1 2 3 4; do printf ' %d.%d' $((sent[nic] * 100 / total)) $((sent[nic] * 1000 / total % 10)); done
  echo
}

# compare RATE_MBIT TRANSFER_BYTES LAYER
compare() {
  local rail nic equal
  for rail in 1 2 3 4; do cluster limit "$rail" "${1}mbit" || fail "limit"; done
  stream "$3, $(($2 >> 20)) MiB, four alike" "$2" "$3"
  for nic in 1 2 3 4; do
    ((sent[nic] * 100 >= total * 20 && sent[nic] * 100 <= total * 30)) || fail "eth$nic carried ${sent[nic]} of $total bytes"
  done
  equal=$rate
  cluster limit 3 "$(($1 / 10))mbit" || fail "limit"
  stream "$3, $(($2 >> 20)) MiB, eth3 at a tenth" "$2" "$3"
  # 3.1 of 4 NICs are left: 77 %. On a busy machine two runs differ by a few percent.
  ((rate * 100 >= equal * 70)) || fail "$rate MB/s with one slow NIC, less than 70 % of $equal MB/s"
  echo "$((rate * 100 / equal)) % of the rate with one NIC at a tenth"
}

compare 200 $((16 << 20)) pipeline
compare 800 $((64 << 20)) pipeline
compare 800 $((64 << 20)) endpoint
echo "PASSED"
