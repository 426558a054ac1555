#!/usr/bin/env bash
# How the endpoints do over networks with distance, without a second machine: python/bench/network_matrix.py between two hosts made of
# network namespaces, joined by a link in user space. Its options are those of network_matrix.py; --help says them.
#
#   [PRESET=cpu-only] scripts/network_matrix.sh [--quick] [OPTION]...
#
# Needs root, /dev/net/tun, iproute2, and a build with the Python package. Exit code: 0 every byte was right, 1 not, 2 usage, 77 this
# machine cannot do it, 130 Ctrl-C.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${BUILD:-$here/build/${PRESET:-release}}")
source "$here/scripts/run_program.sh"
python=$here/build/python-tools/bin/python3 # as the build takes it
[[ -x $python ]] || python=python3
matrix=("$python" "$here/python/bench/network_matrix.py")
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1

skip() {
  echo "SKIPPED: $*"
  exit 77
}

for argument; do
  case $argument in -h | --help) exec "${matrix[@]}" --help ;; esac
done
compgen -G "$build/python/tcpx/_core*.so" >/dev/null ||
  skip "no Python package in $build (BUILD=... says another; scripts/install_deps.sh --tests, then make python_package)"
[[ -x $build/tests/netns_link ]] || skip "no link in $build: make netns_link"
[[ -c /dev/net/tun ]] || skip "no /dev/net/tun (modprobe tun)"
export TCPX_NETNS_ID=$$
trap '"$here/tests/netns/cluster.sh" down' EXIT
"$here/tests/netns/cluster.sh" up || exit
run_program "${matrix[@]}" --link "$build/tests/netns_link" "$@"
