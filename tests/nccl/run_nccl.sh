#!/usr/bin/env bash
# Unmodified NCCL over the software plugin: loads it into a PyTorch job, checks every collective in both GDR settings, and measures
# send/recv beside NCCL's own socket transport. docs/nccl.md says which variables are set and why.
#
#   tests/nccl/run_nccl.sh [check|bandwidth|all] [--plugin FILE] [--gpus N] [--iterations N] [--sizes LIST]
#
# check      collectives over 2, 4 and 8 GPUs, as far as there are (--gpus N: only N)
# bandwidth  2 GPUs: the plugin, and NCCL's socket transport, default and tuned
# Everything goes over loopback TCP; P2P and shared memory between the GPUs are switched off.
# Exit status: 0 passed, 1 failed, 2 usage, 77 skipped (no PyTorch with NCCL, fewer than two GPUs, no plugin).
set -u
cd "$(dirname "$0")/../.." || exit 1

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0"
  exit "$1"
}

what=all
plugin=build/release/lib/libnccl-net-tcpx-soft.so
gpus=
collectives=()
while (($# > 0)); do
  case $1 in
    check | bandwidth | all) what=$1 ;;
    --plugin | --gpus | --iterations | --sizes)
      (($# > 1)) || { echo "run_nccl: $1 wants a value" >&2; usage 2 >&2; }
      case $1 in
        --plugin) plugin=$2 ;;
        --gpus) gpus=$2 ;;
        *) collectives+=("$1" "$2") ;;
      esac
      shift ;;
    -h | --help) usage 0 ;;
    *) echo "run_nccl: what is $1?" >&2; usage 2 >&2 ;;
  esac
  shift
done

skip() {
  echo "run_nccl: skipped: $1"
  exit 77
}
present=$(nvidia-smi -L 2>/dev/null | wc -l)
((present >= 2)) || skip "needs two GPUs, there are $present"
python3 -c 'import torch, torch.distributed as d; assert d.is_nccl_available()' 2>/dev/null || skip "no PyTorch with NCCL"
[[ -f $plugin ]] || skip "no plugin $plugin; build it, or name it with --plugin"
plugin=$(realpath "$plugin")

logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 130' INT TERM

common=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1 NCCL_DEBUG=INFO
  TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING=false)
# Over a plugin with device type UNPACK, on any machine.
over_plugin=(NCCL_NET_PLUGIN="$plugin" NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo CUDA_MODULE_LOADING=EAGER
  CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_PROTO=Simple NCCL_ALGO=Ring NCCL_PAT_ENABLE=0 NCCL_LOCAL_REGISTER=0 NCCL_GRAPH_REGISTER=0)

# job NAME RANKS LIMIT_SECONDS PROGRAM [OPTION...] -- VARIABLE=VALUE...: one process per rank; rank R logs to $logs/NAME.R.
job() {
  local name=$1 ranks=$2 limit=$3 program=$4 options=() rank failed=0 pids=()
  shift 4
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  local port=$((20000 + RANDOM % 20000))
  for ((rank = 0; rank < ranks; ++rank)); do
    env "${common[@]}" "$@" RANK=$rank WORLD_SIZE="$ranks" MASTER_PORT="$port" LABEL="$name" \
      timeout --kill-after=5 "$limit" python3 "$program" "${options[@]}" >"$logs/$name.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    if ! wait "${pids[$rank]}"; then
      echo "FAILED: $name, rank $rank; its last lines:"
      tail -5 "$logs/$name.$rank" | sed 's/^/  | /'
      failed=1
    fi
  done
  return $failed
}

# plugin_was_used NAME RANKS: NCCL's own log says so, and holds no warning.
plugin_was_used() {
  local rank log
  for ((rank = 0; rank < $2; ++rank)); do
    log=$logs/$1.$rank
    for line in 'Loaded net plugin tcpx-soft (v7)' 'Using NCCL_NET_DEVICE_UNPACK net plugin version 7' 'Using network tcpx-soft'; do
      grep -qaF "$line" "$log" || { echo "FAILED: $1, rank $rank: NCCL's log has no \"$line\""; return 1; }
    done
    if grep -qaE 'NCCL WARN|tcpx: (warning|error)' "$log"; then
      echo "FAILED: $1, rank $rank warned:"
      grep -aE 'NCCL WARN|tcpx: (warning|error)' "$log" | head -3 | sed 's/^/  | /'
      return 1
    fi
  done
}

failures=0
check() {
  local ranks gdr name
  for ranks in ${gpus:-2 4 8}; do
    ((ranks <= present)) || continue
    for gdr in on off; do
      name=collectives-$ranks-gpus-gdr-$gdr
      local level=()
      [[ $gdr == off ]] || level=(NCCL_NET_GDR_LEVEL=SYS)
      if job "$name" "$ranks" 400 tests/nccl/collectives.py "${collectives[@]}" -- "${over_plugin[@]}" "${level[@]}" &&
        plugin_was_used "$name" "$ranks"; then
        echo "passed: $name: $(grep -a 'operations right' "$logs/$name.0")"
      else
        failures=$((failures + 1))
      fi
    done
  done
}

bandwidth() {
  local tuned=(NCCL_NET=Socket NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2 NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_P2P_NCHANNELS=8)
  local wide=(NCCL_NET=Socket NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 NCCL_NCHANNELS_PER_NET_PEER=4 NCCL_MIN_P2P_NCHANNELS=4)
  # Eight channels are eight connections of the plugin each way, which together have sockets enough.
  local ours=("${over_plugin[@]}" NCCL_NSOCKS_PERTHREAD=2 NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_P2P_NCHANNELS=8)
  local large=(NCCL_P2P_NET_CHUNKSIZE=524288)
  measure socket-default NCCL_NET=Socket
  measure socket-2x2-8-channels "${tuned[@]}"
  measure socket-2x2-8-channels-512K "${tuned[@]}" "${large[@]}"
  measure socket-4x4-4-channels "${wide[@]}"
  measure tcpx-soft-gdr-on "${ours[@]}" "${large[@]}" NCCL_NET_GDR_LEVEL=SYS
  measure tcpx-soft-gdr-off "${ours[@]}" "${large[@]}"
}

# measure LABEL VARIABLE=VALUE...
measure() {
  local label=$1
  shift
  if job "$label" 2 120 tests/nccl/bandwidth.py -- NCCL_DEBUG=WARN "$@"; then
    grep -ah '^{' "$logs/$label.1"
    grep -qa '"verified": true' "$logs/$label.1" || { echo "FAILED: $label: wrong bytes"; failures=$((failures + 1)); }
  else
    failures=$((failures + 1))
  fi
}

[[ $what == bandwidth ]] || check
[[ $what == check ]] || bandwidth
if ((failures > 0)); then echo "run_nccl: FAILED ($failures)"; exit 1; fi
echo "run_nccl: passed"
