#!/usr/bin/env bash
# Files that test_tcpx_perf writes, and draws beside a new run.   perf_files.sh PROGRAM
set -eu
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$program" loopback -b 64K -e 256K -n 3 --csv first.csv --json first.json
"$program" loopback -b 64 -e 4K -n 3 --latency --json second.json --plot second.svg --compare first.json second.json 2>/dev/null &&
  { echo "a file that is not there yet was compared with" && exit 1; }
"$program" loopback -b 64 -e 4K -n 3 --latency --json second.json --plot second.svg --compare first.json
cat first.csv first.json
[[ $(wc -l <first.csv) -eq 4 ]]
[[ $(head -1 first.csv | tr -cd , | wc -c) -eq $(tail -1 first.csv | tr -cd , | wc -c) ]]
for word in '"benchmark": "test_tcpx_perf"' '"version"' '"abi"' '"devices"' '"chunk bytes"' '"One way"'; do grep -q -e "$word" first.json; done
for word in '<svg' '</svg>' 'Throughput by size' 'Latency by size' 'this run' '>first<'; do grep -q -e "$word" second.svg; done
