#!/usr/bin/env bash
# Files that test_tcpx_perf writes, and compares a new run with.   perf_files.sh PROGRAM
set -eu
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$program" loopback -b 64K -e 256K -n 3 --csv first.csv --json first.json
"$program" loopback -b 64 -n 3 --json second.json --compare first.json second.json 2>/dev/null &&
  { echo "a file that is not there yet was compared with" && exit 1; }
cat first.csv first.json
# A report made with another unpacker, and faster than this machine can be.
sed -e 's/"unpack": ".*"/"unpack": "other"/' -e 's/"rate": .*,/"rate": 1e6,/' first.json >faster.json
"$program" loopback -b 256K -n 3 --compare faster.json | grep '^# note: 256 KiB: unpack .* other (faster) 1000000 GB/s (TCPX_H_UNPACK_SLOW)'
"$program" loopback -b 256K -n 3 --compare first.json | grep TCPX_H_UNPACK_SLOW && { echo "the same unpacker is no other one" && exit 1; }
[[ $(wc -l <first.csv) -eq 4 ]]
[[ $(head -1 first.csv | tr -cd , | wc -c) -eq $(tail -1 first.csv | tr -cd , | wc -c) ]]
for word in '"benchmark": "test_tcpx_perf"' '"version"' '"abi"' '"devices"' '"chunk bytes"' '"One way"'; do grep -q -e "$word" first.json; done
