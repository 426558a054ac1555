#!/usr/bin/env bash
# Measures every pair of GPUs of one or more hosts: packages, build, mpirun, one table.
set -euo pipefail
start_folder=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/run_program.sh
source scripts/run_program.sh

usage() {
  cat <<'USAGE'
usage: ./run_p2p_fullmesh.sh [--local N | --hosts FILE] [-- program arguments]

Starts one rank per GPU under mpirun of Open MPI and measures how fast each sends to each other one.

  --local N     N ranks on this machine. Without either option: as many as it has GPUs, at least 2; without a GPU 4, with host memory
  --hosts FILE  the hosts of an Open MPI hostfile, one per line, rank 0's first: NAME slots=GPUS
                This folder must be at the same path on each of them, ssh must log in without a password, and the ports must be
                open. Files are written on rank 0's host; their names count from this folder.

Installs missing packages (Debian and Ubuntu; as root or through sudo; says so first) and builds with make. What is behind -- goes to
the program, p2p_fullmesh --help says what there is:

  ./run_p2p_fullmesh.sh -- --size 64MiB --together --json mesh.json
  scripts/plot.py mesh.json -o mesh.svg             draws the heat map of that

Exit code: 0 passed, 1 failed, 2 usage, 77 skipped (nothing here could be tested), 130 after Ctrl-C.
USAGE
}

ranks=''
hosts=''
arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --) shift && arguments=("$@") && break ;;
    --local)
      [[ ${2:-} =~ ^[0-9]{1,3}$ ]] || wrong_usage "--local needs a number of ranks"
      ranks=$((10#$2))
      ((ranks >= 2 && ranks <= 256)) || wrong_usage "--local $2: allowed are 2 to 256 ranks"
      shift 2
      ;;
    --hosts)
      hosts=${2:-}
      [[ $hosts == /* ]] || hosts=$start_folder/$hosts # counts from where the user is
      [[ -n ${2:-} && -f $hosts ]] || wrong_usage "--hosts needs a hostfile, there is none at '${2:-}'"
      shift 2
      ;;
    *) wrong_usage "unknown option $1; options of the program go behind --" ;;
  esac
done
[[ -z $ranks || -z $hosts ]] || wrong_usage "--local and --hosts exclude each other"

# given OPTION: is it among the arguments of the program?
given() {
  local argument
  for argument in "${arguments[@]}"; do
    if [[ $argument == "$1" || $argument == "$1="* ]]; then return 0; fi
  done
  return 1
}

# A port of this host where nobody listens, so that two meshes can run side by side: one of those that the user has opened for
# listeners, where there are such. What is wrong with that wish, or a range that is used up, the program says.
free_port() {
  local first=20000 count=10000 tried port=''
  local opened=${UCCL_TCPX_PORT_RANGE:-${NCCL_GPUDIRECTTCPX_PORT_BEGIN:-}-${NCCL_GPUDIRECTTCPX_PORT_END:-}}
  if [[ $opened =~ ^([0-9]{1,5})-([0-9]{1,5})$ ]] && ((10#${BASH_REMATCH[1]} <= 10#${BASH_REMATCH[2]})); then
    first=$((10#${BASH_REMATCH[1]})) count=$((10#${BASH_REMATCH[2]} - first + 1))
  fi
  for ((tried = 0; tried < count; ++tried)); do
    port=$((first + ($$ + tried) % count))
    if ! (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; then break; fi
  done
  echo "$port"
}

launch=(mpirun --bind-to none)
if [[ $(id -u) -eq 0 ]]; then launch+=(--allow-run-as-root); fi
first=()
if [[ -n $hosts ]]; then
  launch+=(--hostfile "$hosts" --wdir "$PWD")
  first_host=$(sed -n 's/^[[:space:]]*\([^#[:space:]]\{1,\}\).*/\1/p' "$hosts" | head -n 1)
  [[ -n $first_host ]] || wrong_usage "--hosts: no host in $hosts"
  if ! given --rendezvous; then first+=(--rendezvous "$first_host"); fi
  # What the user set for this run holds on the other hosts, too.
  while IFS= read -r name; do launch+=(-x "$name"); done < <(compgen -e | grep -E '^(UCCL_TCPX_|NCCL_)' || true)
else
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ' || true)
  if [[ -z $ranks ]]; then ranks=$((gpus == 0 ? 4 : gpus < 2 ? 2 : gpus)); fi
  launch+=(--oversubscribe -np "$ranks")
  if [[ $gpus -eq 0 ]] && ! given --memory; then first+=(--memory host); fi
  if ! given --port; then first+=(--port "$(free_port)"); fi
fi

build p2p_fullmesh --mpi
# Names of files count from where the user is, on this machine.
program=$(realpath -s "$(built_program p2p_fullmesh)")
if [[ -z $hosts ]]; then cd "$start_folder"; fi
# Of a second signal mpirun dies at once and leaves its ranks behind. It passes the request on to all ranks, also those on other hosts,
# and kills those that do not end by themselves; rank 0 prints what it has.
launcher_signal=TERM
run_program "${launch[@]}" "$program" "${first[@]}" "${arguments[@]}"
