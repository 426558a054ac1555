#!/usr/bin/env bash
# Runs one of the test programs with everything it needs: packages, build, environment.
set -euo pipefail
# A relative plugin path counts from where the user is.
plugin_path=${UCCL_TCPX_PLUGIN_PATH:-}
if [[ $plugin_path != embedded && -e $plugin_path ]]; then UCCL_TCPX_PLUGIN_PATH=$(realpath -s "$plugin_path"); fi
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=scripts/run_program.sh
source scripts/run_program.sh

usage() {
  cat <<'USAGE'
usage: ./run_tcpx_test.sh {connection|transfer|perf|discovery} [server|HOST] [-- program arguments]

  connection   brings a connection up through the net plugin and down again
  transfer     moves a message from one memory buffer to another and compares it
  perf         measures transfers by size and compares every byte
  discovery    lists the network devices of the net plugin

  server       this machine waits for the other end
  HOST         name or address of the machine where the server runs
               Without either, both ends run on this machine.

Installs missing packages (Debian and Ubuntu; as root or through sudo; says so first), builds with make, and runs the program. What is
behind -- goes to the program: ./run_tcpx_test.sh transfer -- --bytes 4M

When the plugin in use is GPUDirect-TCPX, the variables it needs are exported with Google's values for A3 machines, each one printed;
what is set already stays as it is.

Exit code: 0 passed, 1 failed, 2 usage, 77 skipped (nothing here could be tested), 130 after Ctrl-C.
USAGE
}

test_name=''
peer=''
arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --) shift && arguments=("$@") && break ;;
    -*) wrong_usage "unknown option $1; options of the program go behind --" ;;
    *)
      if [[ -z $test_name ]]; then
        test_name=$1
      elif [[ -z $peer ]]; then
        peer=$1
      else
        wrong_usage "one word too many: $1"
      fi
      shift
      ;;
  esac
done

case $test_name in
  connection) program=test_connection ;;
  transfer) program=test_tcpx_transfer ;;
  perf) program=test_tcpx_perf ;;
  discovery) program=test_device_discovery ;;
  '') wrong_usage "which test?" ;;
  *) wrong_usage "no test named $test_name" ;;
esac
case $test_name:$peer in
  discovery:) role=() ;;
  discovery:*) wrong_usage "discovery looks at this machine only" ;;
  *: | *:loopback) role=(loopback) ;;
  *:server) role=(server) ;;
  *) role=(client "$peer") ;;
esac

# The library that the loader will take, in its order (net/plugin_loader.h); empty for the software plugin.
plugin_in_use() {
  local path=${UCCL_TCPX_PLUGIN_PATH:-}
  if [[ -z $path ]]; then
    for path in /usr/local/tcpx/lib64/libnccl-net-tcpx.so /var/lib/tcpx/lib64/libnccl-net.so ''; do
      if [[ -e $path ]]; then break; fi
    done
  fi
  # `embedded` is the software plugin in our programs; libnccl-net-tcpx-soft.so is the same one as a file.
  if [[ -e $path && $(basename "$(readlink -f "$path")") != libnccl-net-tcpx-soft.so ]]; then echo "$path"; fi
}

preset() {
  local name=$1 value=$2
  if [[ -n ${!name:-} ]]; then
    say "  $name=${!name} (set by you)"
  else
    export "$name=$value"
    say "  $name=$value"
  fi
}

# The interfaces among $@ that this machine has, joined with commas.
existing_interfaces() {
  local names=() name
  for name in "$@"; do
    if [[ -e /sys/class/net/$name ]]; then names+=("$name"); fi
  done
  local IFS=,
  echo "${names[*]}"
}

# GPUDirect-TCPX moves nothing without a chunk size and finds its buffer manager (RxDM) only under this prefix. The rest is what
# Google's documentation of GPUDirect-TCPX sets on A3 machines: data NICs eth1 to eth4, control traffic on eth0, helper threads on the
# cores next to their NIC (208 of them).
export_tcpx_environment() {
  local data_nics control_nic
  data_nics=$(existing_interfaces eth1 eth2 eth3 eth4)
  control_nic=$(existing_interfaces eth0)
  say "GPUDirect-TCPX at $1; exporting what it needs:"
  if [[ -n $data_nics ]]; then
    preset NCCL_GPUDIRECTTCPX_SOCKET_IFNAME "$data_nics"
    if [[ -n $control_nic ]]; then preset NCCL_GPUDIRECTTCPX_CTRL_DEV "$control_nic"; fi
  else
    say "  NCCL_GPUDIRECTTCPX_SOCKET_IFNAME not set: this machine has none of eth1 to eth4, the plugin will choose"
  fi
  if [[ $data_nics == eth1,eth2,eth3,eth4 && $(nproc --all) -ge 208 ]]; then
    preset NCCL_GPUDIRECTTCPX_TX_BINDINGS 'eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177'
    preset NCCL_GPUDIRECTTCPX_RX_BINDINGS 'eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191'
  fi
  preset NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX /run/tcpx
  preset NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS 1000000
  preset NCCL_DYNAMIC_CHUNK_SIZE 524288
  preset NCCL_NSOCKS_PERTHREAD 4
  preset NCCL_SOCKET_NTHREADS 1
}

build "$program"
plugin=$(plugin_in_use)
if [[ -n $plugin ]]; then export_tcpx_environment "$plugin"; fi
run_program "$(built_program "$program")" "${role[@]}" "${arguments[@]}"
