#!/usr/bin/env bash
# Draws what the programs write today: a table or a field that got another name would leave the picture empty.
#
#   draw_runs.sh TEST_TCPX_PERF P2P_FULLMESH BENCH_SOFT_PLUGIN BENCH_ENDPOINT
#
# bench_unpack needs a GPU; scripts/gpu_check.sh draws its report.
set -eu
perf=$1 mesh=$2 soft=$3 endpoint=$4
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
if ! python3 -c 'import matplotlib' 2>/dev/null; then
  echo "SKIPPED: no matplotlib here (apt install python3-matplotlib)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$perf" loopback -b 64K -e 256K -n 3 --memory host --json rates.json
"$perf" loopback -b 64 -e 4K -n 3 --memory host --latency --json times.json
"$perf" loopback -b 64K -n 3 --memory host --bidirectional --json both.json
"$root/tests/run_ranks.sh" "$mesh" 3 0 PASSED --memory host --size 64K --iters 1 --json "$folder/mesh.json"
"$soft" --quick --memory host --json soft.json
"$endpoint" --quick --only bulk,latency --json endpoint.json

# drawn WORDS FILE...: the picture of the files has these words.
drawn() {
  local words=$1 word
  shift
  "$root/scripts/plot.py" "$@" -o drawn.svg
  for word in $words; do grep -q ">${word//_/ }<" drawn.svg || { echo "no '${word//_/ }' in the picture of $*" && exit 1; }; done
}
drawn "Throughput_by_size Latency_by_size_(half_a_round_trip) rates times both,_both_ways host,_soft raw_TCP,_soft" \
  rates.json --beside times.json both.json soft.json
drawn "Throughput_by_size Latency_by_size_(half_a_round_trip) Throughput_by_data_sockets host_pipeline raw_TCP,_in_cache" soft.json
drawn "Throughput_by_size Latency_by_size_(half_a_round_trip) pipeline write host,_inline" endpoint.json
drawn "receiver sender failed" mesh.json
