#!/usr/bin/env bash
# Two containers of one host, each with its own network, processes, IPC and mounts, as pods have them: where both have mounted one
# directory they share memory, and no byte crosses the network between them; else they say what is missing, and use TCP.
#
# GPU memory moves over NVLink, PCIe or within the GPU then; where there is no GPU, that part is left out.
#
#   pods.sh PATH_OF_meet PATH_OF_tcpx_perf
source "$(dirname "$0")/common.sh"
export UCCL_TCPX_LOCAL=auto UCCL_TCPX_LOG_LEVEL=info
unshare --pid --ipc --mount --fork --mount-proc true 2>/dev/null || { echo "SKIPPED: unshare makes no containers here"; exit 77; }

shared=$scratch/shared
mkdir "$shared"
# A container with a /dev/shm of its own, which sees $shared as /mnt.
as=(unshare --pid --ipc --mount --fork --mount-proc --kill-child sh -c
  "mount --bind '$shared' /mnt && mount -t tmpfs shm /dev/shm && exec \"\$@\"" container)

# expect NAME WORDS BYTES: WORDS in both ends' lines, and so many MiB over NICs
expect() {
  meet a b 2 || fail "$1: client"
  wait "$server" || fail "$1: server: exit code $?"
  for end in client server; do
    grep -q "$2" "$scratch/$end" || fail "$1: the $end does not say \"$2\""
  done
  local sent
  sent=$(awk '$1 == "nic" { bytes += $4 } END { print int(bytes / 1048576) }' "$scratch/client")
  [[ $sent -eq $3 ]] || fail "$1: $sent MiB went over NICs, not $3"
  echo "$1: ok"
}

expect "nothing in common" "TCP on one host: .*the network namespaces differ, and /dev/shm/tcpx-0 is not the peer's: mount one" 32
UCCL_TCPX_LOCAL_DIR=/mnt expect "one directory" \
  "same host, host memory through shared memory: the other process is not visible: run both in one pid namespace" 0
[[ -z $(ls "$shared") ]] || fail "left behind: $(ls "$shared")"

# Whoever is killed, the other end notices at once.
export UCCL_TCPX_LOCAL_DIR=/mnt
kill_all() { ip netns pids "tcpx-$1-$TCPX_NETNS_ID" | xargs -r kill -KILL 2>/dev/null; }
for kill in "a client" "b server"; do
  read -r victim other <<<"$kill"
  for i in $(seq "${KILLS:-4}"); do
    rm -f "$scratch/client"
    (trap - EXIT; meet a b 100000) &
    both=$!
    for _ in $(seq 400); do
      grep -qs "same host" "$scratch/client" && break
      sleep 0.01
    done
    sleep "0.0$((i % 10))"
    kill_all "$victim"
    for _ in $(seq 40); do
      grep -q "TCPX_E_PEER_GONE" "$scratch/$other" && break
      sleep 0.05
    done
    grep -q "TCPX_E_PEER_GONE" "$scratch/$other" || fail "the $other does not notice that the other end was killed"
    kill_all a # the other may wait for a new connection
    kill_all b
    wait "$both"
  done
  echo "the $other outlives the other end: ok"
done
# One that was killed while the other was to come leaves a file, for the next meeting after ten minutes.
find "$shared" -type s -exec touch -d '1 hour ago' {} +
expect "one directory, after kills" "same host, host memory through shared memory" 0
[[ -z $(ls "$shared") ]] || fail "left behind: $(ls "$shared")"
unset UCCL_TCPX_LOCAL_DIR

as=(unshare --pid --ipc --mount --fork --mount-proc)
expect "one /dev/shm" "same host, host memory through shared memory" 0

# GPU memory, compared byte by byte; each container sees one GPU, and names it 0.
mapfile -t gpus < <(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null)
if [[ ${#gpus[@]} -gt 0 ]]; then
  program=$2
  run=(--layer endpoint --memory cuda -b 64M -n 20)
  before=$(sent_bytes 1)
  CUDA_VISIBLE_DEVICES=${gpus[0]} start_server "${run[@]}" 0
  CUDA_VISIBLE_DEVICES=${gpus[-1]} run_client 0 "${run[@]}" || fail "GPU memory: client: exit code $?"
  wait "$server" || fail "GPU memory: server: exit code $?"
  way=$(grep -oE 'GPU memory (over|through|within) .*' "$scratch/client" | head -1)
  sent=$((($(sent_bytes 1) - before) >> 20))
  [[ $sent -eq 0 ]] || fail "GPU memory: $sent MiB went over NICs (${way:-the client does not name its way})"
  echo "${way:-GPU memory}: $(grep -o 'Avg:.*' "$scratch/client" | head -1): ok"
else
  echo "GPU memory: not tried: nvidia-smi finds no GPU"
fi
echo "PASSED: containers that have a directory in common share memory"
