#!/usr/bin/env bash
# Proves the project on a machine with an NVIDIA GPU: builds it, runs every test, then the GPU programs under compute-sanitizer, measures
# how fast messages are gathered and moved, and writes one report.
#
#   scripts/gpu_check.sh [--only tests|sanitizers|speed|endpoint|nixl|python|local|cores] [COMMIT]
#
# COMMIT names the tree in the report where there is no git metadata. --only runs one part, for a machine that is lent for a short time.
# `speed` begins with a table of ours beside plain sockets, NCCL, and NIXL and Mooncake where scripts/install_deps.sh has installed them,
# all over TCP, and with the rate of 64 peers beside that of one. `endpoint`, the benchmark of Endpoint, runs only when
# asked for: it builds nothing else and takes about five minutes, with NCCL beside it where there are two GPUs and PyTorch. `nixl`, the
# back-end for NIXL beside NIXL's own and beside Endpoint, runs where scripts/install_deps.sh --nixl has installed NIXL; alone, it builds
# nothing else and takes about five minutes, too. `python`, the package's tests and its costs, runs only when asked for, with a python3
# that has nanobind, pytest and PyTorch with CUDA. So do `local`, endpoints of one host beside TCP, tensors where python3 has PyTorch,
# and two containers, and `cores`, the defaults of threads and sockets beside other settings, about 5 minutes each.
# Report and logs go to $OUT when it is set, else to build/gpu_report. Extra CMake arguments may be given in $CMAKE_ARGS.
# Needs g++, CMake, Ninja, the CUDA toolkit with compute-sanitizer, and the libraries of scripts/install_deps.sh.
# Exit status: 0 all passed, 1 something failed or could not be run, 77 no GPU here.
set -u
cd "$(dirname "$0")/.." || exit 1

parts='tests sanitizers speed'
nixl=build/nixl/1.5.1
mooncake=(build/mooncake/*/bin/python3)
[[ ! -x $nixl/bin/python3 ]] || parts+=' nixl'
if [[ ${1:-} == --only ]]; then
  parts=${2:-}
  total_s=530
  case $parts in
    tests | sanitizers | speed | endpoint | nixl | python | local | cores) ;;
    *)
      echo "gpu_check: --only takes tests, sanitizers, speed, endpoint, nixl, python, local or cores" >&2
      exit 2
      ;;
  esac
  shift 2
fi
commit=${1:-$(git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)}
out=$(realpath -m "${OUT:-build/gpu_report}")
build=build/release
transfer=$build/tests/test_tcpx_transfer
jobs=$(nproc)
total_s=1800 # for all steps together
failed=0

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu_check: skipped: nvidia-smi finds no GPU here"
  exit 77
fi
mkdir -p "$out" || exit 1
rm -f "$out"/{report.txt,speed.svg,build.log,doctor.txt,tests.log,sanitizer.log,transfer.log,bench_unpack.txt,bench_unpack.json,bench_unpack.svg,bench_soft_plugin.txt,bench_soft_plugin.json,bench_soft_plugin.svg,bench_endpoint.txt,bench_endpoint.json,speed.txt,speed_peers.txt,speed_peers.json,speed_nixl.txt,speed_nixl.json,speed_mooncake.txt,speed_mooncake.json,local.txt,local.json,one_host.txt,one_host.json,cores.txt,cores_rates.txt,nixl_local.txt,nixl_local.json,nixl_tests.log,nixl.txt,nixl_speed.txt,nixl.json,python_tests.log,python_overhead.txt,broadcast.txt,broadcast_{off,auto}_{1,4}.json,perf.txt,perf.json,perf.svg,plot.txt}
gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | sort | uniq -c | sed 's/^ *//')
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -dc 0-9)

say() { echo "$*" | tee -a "$out/report.txt"; }

# record RESULT SECONDS NAME [DETAIL]
record() {
  [[ $1 == pass || $1 == skip ]] || failed=$((failed + 1))
  say "$(printf '%-5s %4ds  %-46s %s' "$1" "$2" "$3" "${4:-}")"
}

# step LOG LIMIT_SECONDS NAME COMMAND...: runs a command with its output in LOG; its last line about counts goes to the report.
step() {
  local log=$out/$1 limit=$2 name=$3 began=$SECONDS rc own detail
  shift 3
  local left=$((total_s - SECONDS))
  if ((left < 5)); then
    record FAIL 0 "$name" "not run: the time is used up"
    return 1
  fi
  ((limit < left)) || limit=$left
  own=$(mktemp)
  echo "=== $name: $*" >>"$log"
  timeout --kill-after=5 "$limit" "$@" >"$own" 2>&1
  rc=$?
  # A program in which every case was skipped has shown nothing.
  if ((rc == 0)) && grep -qa '\[  PASSED  \] 0 tests' "$own"; then rc=1; fi
  cat "$own" >>"$log"
  detail=$(grep -aE 'tests passed|^Ran [0-9]+ tests|ERROR SUMMARY|RACECHECK SUMMARY|\[  (PASSED|FAILED)  \] [0-9]+ tests?' "$own" |
    sed -E 's/^=+ *//' | tail -3 | paste -sd ';')
  local skipped
  skipped=$(grep -acE '\*\*\*Skipped|\[  SKIPPED \] .* \(' "$own")
  ((skipped == 0)) || detail+="; $skipped skipped"
  if ((rc == 77)); then
    record skip $((SECONDS - began)) "$name" "$(grep -ai skip "$own" | tail -1)"
  elif ((rc == 0)); then
    record pass $((SECONDS - began)) "$name" "$detail"
  else
    ((rc != 124 && rc != 137)) || detail="stopped after $limit s; $detail"
    record FAIL $((SECONDS - began)) "$name" "exit $rc; $detail"
    tail -5 "$own" | sed 's/^/        | /' | tee -a "$out/report.txt"
  fi
  rm -f "$own"
  return $((rc == 0 ? 0 : 1))
}

finish() {
  if ((failed == 0)); then say "RESULT: passed in $SECONDS s"; else say "RESULT: FAILED ($failed) in $SECONDS s"; fi
  exit $((failed == 0 ? 0 : 1))
}

say "commit:  $commit"
say "gpus:    $gpu (name, driver, compute capability)"
say "tools:   $(nvcc --version | tail -2 | head -1); $(c++ --version | head -1); $(compute-sanitizer --version 2>/dev/null | tail -1)"
say "machine: $(. /etc/os-release && echo "$PRETTY_NAME"), $jobs cores"
say ""

# The one with PyTorch, not the newest that CMake finds.
[[ $parts != python && $parts != local ]] || CMAKE_ARGS+=" -DPython_EXECUTABLE=$(command -v python3)"
# shellcheck disable=SC2086  # CMAKE_ARGS is a list
step build.log 60 "configure" cmake --preset release -DCMAKE_CUDA_ARCHITECTURES="${architecture:-90}" ${CMAKE_ARGS:-} || finish
targets=()
[[ $parts != endpoint ]] || targets=(--target bench_endpoint)
[[ $parts != nixl ]] || targets=(--target nixl_plugin bench_endpoint)
[[ $parts != python ]] || targets=(--target python_package write_times)
has_torch=$(python3 -c 'import nanobind, torch; print(torch.cuda.is_available())' 2>/dev/null)
[[ $parts != local ]] || targets=(--target test_device_gpu test_endpoint_gpu bench_endpoint netns_meet test_tcpx_perf)
[[ $parts != local || $has_torch != True ]] || targets+=(python_package)
[[ $parts != local || ! -x $nixl/bin/python3 ]] || targets+=(nixl_plugin)
[[ $parts != cores ]] || targets=(--target test_tcpx_perf)
step build.log 240 "build" cmake --build --preset release -j "$jobs" "${targets[@]}" || finish

# A case here that finds no GPU skips itself. That must not look like a pass.
gpu_tests_ran() {
  local listing
  listing=$(ctest --test-dir "$build" -L gpu -j 4 --timeout 100 2>&1)
  local rc=$?
  echo "$listing"
  if grep -q '\*\*\*Skipped' <<<"$listing"; then
    echo "cases were skipped on a machine with a GPU"
    return 1
  fi
  grep -q 'tests passed' <<<"$listing" || return 1
  return "$rc"
}
export -f gpu_tests_ran
export build

# sanitize TOOL LIMIT NAME COMMAND...
sanitize() {
  local tool=$1 limit=$2 name=$3
  shift 3
  step sanitizer.log "$limit" "$tool: $name" \
    compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 99 "$@"
}

# As bench_endpoint does by itself: one device, whatever other interfaces there are.
one_device=(env NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo)

perf() {
  local name=$1
  shift
  step perf.txt 60 "test_tcpx_perf, $name" "${one_device[@]}" "$build/tests/test_tcpx_perf" loopback "$@"
}

# Its findings about the machine are for reading; warnings are no failure.
doctor() {
  "$build/programs/tcpx_doctor" --selftest --verbose || (($? == 1))
}
export -f doctor

run_tests() {
  step doctor.txt 40 "tcpx_doctor" bash -c doctor
  step tests.log 150 "tests that need a GPU" bash -c gpu_tests_ran
  # Few at a time: each process opens the driver, which takes its turn among many.
  step tests.log 420 "all other tests" ctest --test-dir "$build" -LE gpu -j 8 --timeout 60 --output-on-failure
}

run_sanitizers() {
  if ! command -v compute-sanitizer >/dev/null; then
    record FAIL 0 "compute-sanitizer" "not installed"
    return
  fi
  # Host-side unpackers add nothing for tools that look into kernels.
  sanitize memcheck 100 "test_device_gpu, unpackers" "$build/tests/test_device_gpu" --gtest_filter='Gpu/UnpackCases.*:*GpuUnpacker*-*AHundredThousand*'
  # Not those that hold a stream, in case the tool makes launches wait, nor the one in which CUDA refuses a launch on purpose.
  sanitize memcheck 60 "test_device_gpu, launcher" "$build/tests/test_device_gpu" \
    --gtest_filter='*GpuLauncher.*:LauncherCopies.*-*AnErrorOfCuda*'
  sanitize memcheck 100 "test_device_gpu, random messages" "$build/tests/test_device_gpu" --gtest_filter='Gpu/*AHundredThousand*_device'
  sanitize memcheck 30 "test_device, memory operations" "$build/tests/test_device" --gtest_filter='*MemoryOps*'
  sanitize memcheck 60 "test_device_gpu, pattern" "$build/tests/test_device_gpu" --gtest_filter='GpuPattern*'
  sanitize memcheck 60 "test_device_gpu, segment copier" "$build/tests/test_device_gpu" --gtest_filter='*Copier*Gpu*:*SummedCopies*Gpu*'
  # A refusal of the driver's there is an error of a call, which is not one of a kernel.
  sanitize memcheck 60 "test_device_gpu, memory of another process" --report-api-errors no "$build/tests/test_device_gpu" \
    --gtest_filter='SharedGpuMemoryTest.EveryByte*:SharedGpuMemoryTest.*Chunks*'
  # That a GPU can already reach another's memory, and that the driver refuses to export some memory, on purpose, are errors of calls,
  # which are none of a kernel.
  sanitize memcheck 100 "test_endpoint_gpu" --report-api-errors no "$build/tests/test_endpoint_gpu" \
    --gtest_filter='*EverySize*:*Scattered*:*HostAndGpu*:*Capture*'
  sanitize memcheck 60 "test_endpoint_gpu, pages" --report-api-errors no "$build/tests/test_endpoint_gpu" --gtest_filter='SteeredGpu.*'
  # Not the exhaustive alignment cases: racecheck slows a launch down a thousandfold.
  sanitize racecheck 100 "test_device_gpu, kernel, random lists" "$build/tests/test_device_gpu" --gtest_filter='*RandomLists*kernel*'
  sanitize initcheck 60 "test_device_gpu, kernel" "$build/tests/test_device_gpu" --gtest_filter='*kernel*-*AHundredThousand*'
  sanitize synccheck 30 "test_device_gpu, kernel, random lists" "$build/tests/test_device_gpu" --gtest_filter='*RandomLists*kernel*'
  sanitize_transfers
}

run_transfers() {
  local unpack bytes
  for unpack in kernel d2d host; do
    for bytes in 1 4095 4096 4097 65536 1048576 4194304 16777216 67108864; do
      step transfer.log 20 "transfer --unpack $unpack --bytes $bytes" \
        "$transfer" loopback --memory cuda --unpack "$unpack" --bytes "$bytes"
    done
  done
}

sanitize_transfers() {
  local unpack bytes
  for unpack in kernel d2d host; do
    for bytes in 1 4097 67108864; do
      sanitize memcheck 40 "transfer --unpack $unpack --bytes $bytes" \
        "$transfer" loopback --memory cuda --unpack "$unpack" --bytes "$bytes"
    done
  done
  sanitize racecheck 40 "transfer --unpack kernel --bytes 4194304" \
    "$transfer" loopback --memory cuda --unpack kernel --bytes 4194304
  for unpack in kernel d2d host; do
    sanitize memcheck 60 "test_tcpx_perf, 4 channels, unpack $unpack" \
      "$build/tests/test_tcpx_perf" loopback -b 1 -e 16M -f 4097 -n 3 -w 1 --channels 4 --unpack "$unpack" --timeout 60000
  done
}

# Without matplotlib the reports can still be drawn elsewhere.
draw() {
  if ! python3 -c 'import matplotlib' 2>/dev/null; then
    record skip 0 "charts" "no matplotlib here; scripts/plot.py draws the .json files"
    return
  fi
  step plot.txt 30 "chart of bench_unpack" scripts/plot.py "$out/bench_unpack.json"
  step plot.txt 30 "chart of bench_soft_plugin" scripts/plot.py "$out/bench_soft_plugin.json"
  step plot.txt 30 "chart of test_tcpx_perf" scripts/plot.py "$out/perf.json" --beside "$out/bench_soft_plugin.json"
}

# Of NIXL's two ends: GPU to GPU where there are two.
vram=(--memory vram --gpus 0,0)
(($(nvidia-smi -L | wc -l) < 2)) || vram=(--memory vram --gpus 0,1)

# Over TCP, beside plain sockets, NCCL's own, NIXL's back-end and Mooncake.
compare_speed() {
  local reports=("$out/bench_endpoint.json")
  local bench=("$build/bench/bench_endpoint" --only one,bulk,latency --milliseconds 300 --json "$out/bench_endpoint.json")
  step bench_endpoint.txt 200 "bench_endpoint" "${bench[@]}" || return
  if [[ -x $nixl/bin/python3 ]]; then
    step speed_nixl.txt 120 "NIXL, back-ends" "${one_device[@]}" "$nixl/bin/python3" integrations/nixl/bench.py --backends UCX,TCPX "${vram[@]}" --plugins "$build/lib/nixl" \
      --patterns 8B,4KiB,64KiB,1MiB,64MiB,4096x32KiB --seconds 0.2 --json "$out/speed_nixl.json" && reports+=("$out/speed_nixl.json")
  fi
  if [[ -x ${mooncake[-1]} ]]; then
    step speed_mooncake.txt 60 "Mooncake" "${mooncake[-1]}" python/bench/network_mooncake.py "${vram[@]:2}" \
      --json "$out/speed_mooncake.json" && reports+=("$out/speed_mooncake.json")
  fi
  step speed_peers.txt 60 "bench_endpoint, 64 peers" "$build/bench/bench_endpoint" --only peers --milliseconds 300 --nccl off \
    --json "$out/speed_peers.json" && reports+=("$out/speed_peers.json")
  step speed.txt 10 "table" scripts/speed_table.py --picture "$out/speed.svg" "${reports[@]}"
  grep -aE '^\||together:' "$out/speed.txt" | tee -a "$out/report.txt"
}

run_speed() {
  compare_speed
  step bench_unpack.txt 120 "bench_unpack" "$build/bench/bench_unpack" --json "$out/bench_unpack.json"

  step bench_soft_plugin.txt 300 "bench_soft_plugin" "$build/bench/bench_soft_plugin" --long --json "$out/bench_soft_plugin.json"
  perf "by size" -b 64K -e 1G -f 4 --json "$out/perf.json"
  for unpack in kernel d2d host none; do perf "unpack $unpack" --unpack "$unpack" -n 40; done
  perf "16 GiB" -b 16G -n 4 -w 1
  perf "both ways" --bidirectional -n 40
  perf "to and fro" -b 8 -e 1M -f 8 -n 200 --latency
  perf "4 channels, by size" -b 64K -e 1G -f 4 --channels 4
  step perf.txt 60 "p2p_fullmesh" tests/run_ranks.sh "$build/tests/p2p_fullmesh" 4 0 "PASSED: all 12 pairs" --size 64M
  draw
}

# Endpoint's turns come before and after NIXL's.
run_nixl() {
  local turns
  if [[ ! -x $nixl/bin/python3 ]]; then
    record FAIL 0 "NIXL" "not installed: scripts/install_deps.sh --nixl"
    return
  fi
  local in_wheel=(tests/nixl/in_wheel.sh "$nixl" "$build/lib/nixl")
  step nixl_tests.log 40 "NIXL, transfers" "${in_wheel[@]}" check_transfers.py "${vram[@]}"
  step nixl_tests.log 40 "NIXL, what engines do" "${in_wheel[@]}" check_engines.py "${vram[@]}"
  step nixl_tests.log 60 "NIXL, faults" "${in_wheel[@]}" check_faults.py "${vram[@]}"
  step nixl_tests.log 80 "NIXL, kills" "${in_wheel[@]}" check_kills.py 20 "${vram[@]}"
  step nixl_tests.log 60 "NIXL, load" "${in_wheel[@]}" check_load.py 2000 "${vram[@]}"
  # The driver refuses to export some memory, on purpose: an error of a call, which is not one of a kernel.
  sanitize memcheck 60 "NIXL, transfers" --report-api-errors no "${in_wheel[@]}" check_transfers.py "${vram[@]}" -kblocks -knotifies

  turns=$(mktemp -d)
  endpoint_turn() {
    step nixl.txt 40 "Endpoint $1 NIXL" "$build/bench/bench_endpoint" --only one --milliseconds 1000 --json "$turns/$1.json"
  }
  endpoint_turn before
  step nixl.txt 160 "NIXL, back-ends" "${one_device[@]}" "$nixl/bin/python3" integrations/nixl/bench.py --backends UCX,TCPX "${vram[@]}" \
    --plugins "$build/lib/nixl" --patterns 8B,4KiB,64KiB,1MiB,64MiB,4096x32KiB,8192x16KiB --lists plain,prepared --seconds 0.2 --json "$out/nixl.json"
  endpoint_turn after
  step nixl_speed.txt 10 "NIXL / Endpoint" tests/nixl/check_speed.py "$out/nixl.json" "$turns"/*.json
  nixl_of_one_host
  { grep -aE '^(VRAM|WRITE|READ)' "$out/nixl.txt" && grep -v '^===' "$out/nixl_speed.txt"; } | sed 's/^/        | /' | tee -a "$out/report.txt"
  rm -rf "$turns"
}

nixl_of_one_host() {
  step nixl_local.txt 90 "NIXL, back-ends of one host" "$nixl/bin/python3" integrations/nixl/bench.py --local --backends UCX,TCPX "${vram[@]}" \
    --plugins "$build/lib/nixl" --patterns 8B,4KiB,64KiB,1MiB,64MiB,4096x32KiB --seconds 0.2 --json "$out/nixl_local.json"
  grep -aE '^(VRAM|WRITE|READ)' "$out/nixl_local.txt" | sed 's/^/        | /' | tee -a "$out/report.txt"
}

# Between endpoints of one host: what each kind of memory costs beside TCP, and whether it is clean.
run_local() {
  step local.txt 60 "shares and pulls" "$build/tests/test_device_gpu" --gtest_filter='*Share*:*GpuPull*'
  step local.txt 120 "endpoints of GPUs" "$build/tests/test_endpoint_gpu"
  step local.txt 150 "bench_endpoint, local" "$build/bench/bench_endpoint" --only local --nccl off --json "$out/local.json"
  if [[ $has_torch == True ]]; then
    step one_host.txt 120 "tensors of PyTorch" env PYTHONPATH="$build/python" python3 python/bench/one_host.py --json "$out/one_host.json"
    grep -aE '^(allocator|default|expandable) ' "$out/one_host.txt" | sed 's/^/        | /' | tee -a "$out/report.txt"
  fi
  # Where it makes no network namespaces it says so, and has shown nothing.
  step local.txt 60 "two containers" tests/netns/pods.sh "$build/tests/netns_meet" "$build/tests/test_tcpx_perf"
  sanitize memcheck 100 "pulls" --report-api-errors no "$build/tests/test_device_gpu" --gtest_filter='*GpuPull*'
  [[ ! -x $nixl/bin/python3 ]] || nixl_of_one_host
  sed -n '/^One host/,$p' "$out/local.txt" | sed 's/^/        | /' | tee -a "$out/report.txt"
}

# Settings that decide how many cores are used, beside the defaults: alone, and while half of the cores have other work. The fastest of so
# many would look faster than it is, so the best ones run again, in turn with the defaults, and medians are compared.
run_cores() {
  local cores=$jobs busy threads sockets spin name bytes rates=$out/cores_rates.txt
  : >"$rates"
  # one_setting THREADS,SOCKETS,POLLING|defaults
  one_setting() {
    local name=$1 of=(UCCL_TCPX_LOG_LEVEL=warning) threads sockets spin
    if [[ $name != defaults ]]; then
      IFS=, read -r threads sockets spin <<<"$name"
      of+=(UCCL_TCPX_SOFT_IO_THREADS="$threads" NCCL_NSOCKS_PERTHREAD="$sockets" UCCL_TCPX_SOFT_SPIN_US="$spin")
    fi
    echo "--- ${of[*]}" >>"$out/cores.txt"
    step cores.txt 20 "$name" env UCCL_TCPX_LOCAL=off "${of[@]}" "$build/tests/test_tcpx_perf" loopback --layer endpoint -b 1M -e 64M -f 64 -n 40
    grep -aE '^ +(1048576|67108864) ' "$out/cores.txt" | tail -2 | sed 's/^/        | /' | tee -a "$out/report.txt"
    grep -aE '^ +(1048576|67108864) ' "$out/cores.txt" | tail -2 | awk -v busy="$busy" -v name="$name" '{ print busy, $1, name, $9 }' >>"$rates"
  }
  for busy in 0 $((cores / 2)); do
    say "$cores cores, $busy of them busy"
    for ((i = 0; i < busy; ++i)); do
      timeout 400 sh -c 'while :; do :; done' &
    done
    for threads in 1 2 4 8; do
      for sockets in 2 4 8; do
        for spin in 0 1000; do
          one_setting "$threads,$sockets,$spin"
        done
      done
    done
    local best=()
    for bytes in 1048576 67108864; do
      mapfile -t -O ${#best[@]} best < <(awk -v busy="$busy" -v bytes="$bytes" '$1 == busy && $2 == bytes' "$rates" | sort -k4,4nr | awk 'NR <= 2 { print $3 }')
    done
    sed -i "/^$busy /s/^/tried /" "$rates"
    for i in 1 2 3; do
      one_setting defaults
      for name in $(printf '%s\n' "${best[@]}" | sort -u); do one_setting "$name"; done
    done
    # shellcheck disable=SC2046 # a list of numbers
    [[ $busy == 0 ]] || kill $(jobs -p)
  done
  grep -v '^tried' "$rates" | sort -k1,1n -k2,2n -k3,3 -k4,4n | awk -v cores="$cores" '
    function middle() { return all[int((n + 1) / 2)] }
    function told() {
      if (n == 0) return
      if (who == "defaults") own = middle()
      else if (middle() > best) { best = middle(); of_best = who }
      n = 0
    }
    function group_told() {
      told()
      if (group != "") printf "%s: defaults %.2f GB/s, %.2f of the best other (%s threads,sockets,polling: %.2f)\n", group, own, own / best, of_best, best
      best = 0
    }
    { now = cores " cores, " $1 " busy, " $2 " B" }
    now != group { group_told(); group = now; who = "" }
    $3 != who { told(); who = $3 }
    { all[++n] = $4 }
    END { group_told() }' | sed 's/^/        | /' | tee -a "$out/report.txt"
}

run_python() {
  local -x PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
  step python_tests.log 330 "Python, tests" python3 -m pytest -q python/tests
  # Only its own kernels: torch's take their time to load under it.
  sanitize memcheck 100 "Python, GPU memory" --report-api-errors no python3 -m pytest -q python/tests/test_gpu.py -k "every_call or blocks"
  step python_overhead.txt 90 "Python beside C++" python3 python/bench/overhead.py "$build/python/write_times"
  grep -aE '^ *"' "$out/python_overhead.txt" | sed 's/^/        | /' | tee -a "$out/report.txt"
  (($(nvidia-smi -L | wc -l) >= 2)) || return
  local way receivers
  for way in off auto; do
    for receivers in 1 4; do
      step broadcast.txt 120 "weights.broadcast to $receivers, UCCL_TCPX_LOCAL=$way" "${one_device[@]}" UCCL_TCPX_LOCAL=$way \
        python3 python/bench/broadcast.py --gigabytes $((16 / receivers)) --receivers $receivers --device cuda --json "$out/broadcast_${way}_$receivers.json"
    done
  done
  grep -aE '^ |bytes to' "$out/broadcast.txt" | sed 's/^/        | /' | tee -a "$out/report.txt"
}

if [[ $parts == *tests* ]]; then
  run_tests
  run_transfers
fi
if [[ $parts == *sanitizers* ]]; then run_sanitizers; fi
if [[ $parts == *speed* ]]; then run_speed; fi
if [[ $parts == *nixl* ]]; then run_nixl; fi
if [[ $parts == python ]]; then run_python; fi
if [[ $parts == local ]]; then run_local; fi
if [[ $parts == cores ]]; then run_cores; fi
if [[ $parts == endpoint ]]; then
  step bench_endpoint.txt 400 "bench_endpoint" "$build/bench/bench_endpoint" --json "$out/bench_endpoint.json"
fi
finish
