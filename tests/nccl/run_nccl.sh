#!/usr/bin/env bash
# Unmodified NCCL over the software plugin: loads it into a PyTorch job, checks every collective in both GDR settings, and measures
# send/recv beside NCCL's own socket transport. docs/nccl.md says which variables are set and why.
#
#   tests/nccl/run_nccl.sh [check|bandwidth|all] [--plugin FILE] [--gpus N] [--iterations N] [--sizes LIST]
#   tests/nccl/run_nccl.sh search [--plugin FILE] [--gpus N] [--seconds N] [--json FILE]
#
# check      collectives over 2, 4 and 8 GPUs, as far as there are (--gpus N: only N)
# bandwidth  2 GPUs: the plugin, and NCCL's socket transport, default and tuned
# search     2 GPUs: looks for the settings with which NCCL's sockets are fastest at each size, and sets them beside the plugin
# With one GPU (or --gpus 1) bandwidth and search let two ranks share it through CUDA's multi-process service (MPS).
# Everything goes over loopback TCP; P2P and shared memory between the GPUs are switched off.
# Exit status: 0 passed, 1 failed, 2 usage, 77 skipped (no PyTorch with NCCL, too few GPUs, no MPS to share one, no plugin).
set -u
from=$PWD
cd "$(dirname "$0")/../.." || exit 1

usage() {
  sed -n '2,15s/^# \{0,1\}//p' "$0"
  exit "$1"
}

what=all
plugin=build/release/lib/libnccl-net-tcpx-soft.so
gpus=
collectives=()
search_options=()
while (($# > 0)); do
  case $1 in
    check | bandwidth | all | search) what=$1 ;;
    --plugin | --gpus | --iterations | --sizes | --seconds | --json)
      (($# > 1)) || { echo "run_nccl: $1 wants a value" >&2; usage 2 >&2; }
      case $1 in
        --plugin) plugin=$2 ;;
        --gpus) gpus=$2 ;;
        --seconds) search_options+=("$1" "$2") ;;
        --json) search_options+=("$1" "$(cd "$from" && realpath -m "$2")") ;;
        *) collectives+=("$1" "$2") ;;
      esac
      shift ;;
    -h | --help) usage 0 ;;
    *) echo "run_nccl: what is $1?" >&2; usage 2 >&2 ;;
  esac
  shift
done

begun=0 # something has been measured
skip() {
  if ((begun)); then echo "run_nccl: FAILED after some measurements: $1"; exit 1; fi
  echo "run_nccl: skipped: $1"
  exit 77
}
present=$(nvidia-smi -L 2>/dev/null | wc -l)
is_shared=0
if [[ $what == bandwidth || $what == search ]] && ((present == 1 || (present > 1 && ${gpus:-2} == 1))); then is_shared=1; fi
((present >= 2 || is_shared)) || skip "needs two GPUs, there are $present"
python3 -c 'import torch, torch.distributed as d; assert d.is_nccl_available()' 2>/dev/null || skip "no PyTorch with NCCL"
[[ -f $plugin ]] || skip "no plugin $plugin; build it, or name it with --plugin"
plugin=$(realpath "$plugin")

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; stop_sharing; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

# Without MPS two processes would have the GPU in turn, and the figures would be those of the turns. A daemon of our own: others of this
# machine have theirs elsewhere.
mps=
start_sharing() {
  local place
  mps=$(command -v nvidia-cuda-mps-control) || mps=$(dirname "$(realpath "$(command -v nvidia-smi)")")/nvidia-cuda-mps-control
  [[ -x $mps ]] || { mps=; skip "needs two GPUs, or nvidia-cuda-mps-control to share one"; }
  place=$logs/mps
  mkdir -p "$place"
  export CUDA_MPS_PIPE_DIRECTORY=$place CUDA_MPS_LOG_DIRECTORY=$place
  "$mps" -d >"$place/started" 2>&1 || { tail -3 "$place/started"; mps=; skip "needs two GPUs, there is one, and MPS does not start"; }
  # A program that does not reach the daemon runs without it and says nothing, so a server must have been started for this one.
  timeout 60 python3 -c 'import torch; torch.zeros(1, device="cuda")' 2>&1 | tail -1
  [[ $(timeout 10 "$mps" <<<get_server_list) =~ [0-9] ]] && return
  tail -3 "$place"/*.log 2>/dev/null
  skip "needs two GPUs, there is one, and programs do not use MPS"
}
stop_sharing() {
  [[ -z $mps ]] || timeout 20 "$mps" <<<"quit -t 5" >/dev/null 2>&1
}

common=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1 NCCL_DEBUG=INFO
  TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING=false)
# Over a plugin with device type UNPACK, on any machine.
over_plugin=(NCCL_NET_PLUGIN="$plugin" NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==lo CUDA_MODULE_LOADING=EAGER
  CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_PROTO=Simple NCCL_ALGO=Ring NCCL_PAT_ENABLE=0 NCCL_LOCAL_REGISTER=0 NCCL_GRAPH_REGISTER=0)

# job NAME RANKS LIMIT_SECONDS PROGRAM [OPTION...] -- VARIABLE=VALUE...: one process per rank; rank R logs to $logs/NAME.R. NCCL refuses
# ranks that share a GPU, and knows them by host and bus: so each rank then says it has a host of its own.
job() {
  local name=$1 ranks=$2 limit=$3 program=$4 options=() rank pid code failed=0
  local -A rank_of=()
  shift 4
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  local port=$((20000 + RANDOM % 12000)) host=() # below those that the kernel hands out by itself
  for ((rank = 0; rank < ranks; ++rank)); do
    ((!is_shared)) || host=(NCCL_HOSTID="rank-$rank")
    env "${common[@]}" "${host[@]}" "$@" RANK=$rank WORLD_SIZE="$ranks" MASTER_PORT="$port" LABEL="$name" \
      timeout --kill-after=5 "$limit" python3 "$program" "${options[@]}" >"$logs/$name.$rank" 2>&1 &
    rank_of[$!]=$rank
  done
  while ((${#rank_of[@]} > 0)); do
    sleep 0.05 # `wait -n` does not tell of one that has ended before it is called
    for pid in "${!rank_of[@]}"; do
      if kill -0 "$pid" 2>/dev/null; then continue; fi
      code=0
      wait "$pid" || code=$?
      rank=${rank_of[$pid]}
      unset "rank_of[$pid]"
      if ((code != 0 && !failed)); then
        echo "FAILED: $name, rank $rank; its last lines:"
        tail -5 "$logs/$name.$rank" | sed 's/^/  | /'
        failed=1
        kill "${!rank_of[@]}" 2>/dev/null # those left would wait for it until their time is over
      fi
    done
  done
  return $failed
}

# Which of the plugin's tables NCCL takes depends on its release: 9 since 2.24, 10 since 2.26, 11 since 2.28.
loaded='Loaded net plugin tcpx-soft \(v(7|9|10|11)\)'
# plugin_was_used NAME RANKS: NCCL's own log says so, and holds no warning.
plugin_was_used() {
  local rank log
  for ((rank = 0; rank < $2; ++rank)); do
    log=$logs/$1.$rank
    for line in "$loaded" 'Using NCCL_NET_DEVICE_UNPACK net plugin version 7' 'Using network tcpx-soft'; do
      grep -qaE "$line" "$log" || { echo "FAILED: $1, rank $rank: NCCL's log has no \"$line\""; return 1; }
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
        echo "passed: $name: $(grep -a 'operations right' "$logs/$name.0"); $(grep -aoE -m 1 "$loaded" "$logs/$name.0")"
      else
        failures=$((failures + 1))
      fi
    done
  done
}

large=(NCCL_P2P_NET_CHUNKSIZE=524288)
bandwidth() {
  local tuned=(NCCL_NET=Socket NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2 NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_P2P_NCHANNELS=8)
  local wide=(NCCL_NET=Socket NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 NCCL_NCHANNELS_PER_NET_PEER=4 NCCL_MIN_P2P_NCHANNELS=4)
  measure socket-default NCCL_NET=Socket
  measure socket-2x2-8-channels "${tuned[@]}"
  measure socket-2x2-8-channels-512K "${tuned[@]}" "${large[@]}"
  measure socket-4x4-4-channels "${wide[@]}"
  measure_plugin on
  measure_plugin off
}

# measure_plugin on|off: with GDR or without.
measure_plugin() {
  # Eight channels are eight connections of the plugin each way, which together have sockets enough.
  local ours=("${over_plugin[@]}" NCCL_NSOCKS_PERTHREAD=2 NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_P2P_NCHANNELS=8 "${large[@]}")
  [[ $1 == off ]] || ours+=(NCCL_NET_GDR_LEVEL=SYS)
  measure "tcpx-soft-gdr-$1" "${ours[@]}"
}

# measure LABEL VARIABLE=VALUE...
measure() {
  local label=$1 options=()
  shift
  ((!is_shared)) || options=(--gpus "0,0")
  if job "$label" 2 "$job_limit" tests/nccl/bandwidth.py "${options[@]}" -- NCCL_DEBUG=WARN "$@"; then
    grep -ah '^{' "$logs/$label.1" | tail -1
    grep -qa '^{.*"verified": true' "$logs/$label.1" && return
    echo "FAILED: $label: wrong bytes"
  fi
  failures=$((failures + 1))
  return 1
}

# Measures what search.py asks for, until it ends. A setting that fails is left out: only search.py knows whether enough is left.
search() {
  local ask answer asked pid words
  coproc SEARCH { exec python3 tests/nccl/search.py "${search_options[@]}"; }
  pid=$SEARCH_PID
  exec {asked}<&"${SEARCH[0]}" {answer}>&"${SEARCH[1]}"  # of our own: bash closes the others as soon as the program ends
  while IFS= read -r -u "$asked" ask; do
    read -r -a words <<<"$ask"
    case $ask in
      socket\ *) measure "${words[1]}" NCCL_NET=Socket "${words[@]:2}" >"$logs/said" ;;
      plugin\ *) measure_plugin "${words[1]}" >"$logs/said" ;;
      *) echo "${ask#say }"; continue ;;
    esac
    if ((failures == 0)); then
      grep -ah '^{' "$logs/said" >&"$answer"
    else
      cat "$logs/said" >&2
      echo failed >&"$answer"
      failures=0
      if ((is_shared)); then stop_sharing; start_sharing; fi  # what was killed on the GPU may have left the server useless
    fi
  done
  wait "$pid" || failures=1
}

job_limit=120
((!is_shared)) || start_sharing
begun=1
if [[ $what == search ]]; then
  job_limit=60
  search
else
  [[ $what == bandwidth ]] || check
  [[ $what == check ]] || bandwidth
fi
if ((failures > 0)); then echo "run_nccl: FAILED ($failures)"; exit 1; fi
echo "run_nccl: passed"
