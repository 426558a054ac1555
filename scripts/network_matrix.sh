#!/usr/bin/env bash
# How the endpoints do over networks with distance, without a second machine: python/bench/network_matrix.py between two hosts made of
# network namespaces, joined by a link in user space. Its options are those of network_matrix.py; --help says them.
#
#   [BUILD=build/cpu-only] scripts/network_matrix.sh [--quick] [OPTION]...
#
# Needs root, /dev/net/tun, iproute2, and a build with the Python package. Exit code: 0 every byte was right, 1 not, 2 usage, 77 this
# machine cannot do it, 130 Ctrl-C.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath -m "${BUILD:-$here/build/release}")
python=$here/build/python-tools/bin/python3 # as the build takes it
[[ -x $python ]] || python=python3

skip() {
  echo "SKIPPED: $*"
  exit 77
}
matrix() { PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 "$python" "$here/python/bench/network_matrix.py" "$@"; }

compgen -G "$build/python/tcpx/_core*.so" >/dev/null ||
  skip "no Python package in $build (BUILD says which build; scripts/install_deps.sh --tests)"
for argument; do
  case $argument in -h | --help) matrix --help && exit ;; esac
done
[[ -x $build/tests/netns_link ]] || skip "no link in $build: make netns_link"
[[ $(id -u) -eq 0 ]] || skip "network namespaces need root"
[[ -c /dev/net/tun ]] || skip "no /dev/net/tun: modprobe tun"
export TCPX_NETNS_ID=$$
trap '"$here/tests/netns/cluster.sh" down' EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
"$here/tests/netns/cluster.sh" up || exit
matrix --link "$build/tests/netns_link" "$@"
