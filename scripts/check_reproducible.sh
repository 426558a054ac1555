#!/usr/bin/env bash
# Are the release's files the same wherever they are built? Builds a copy of this tree in another folder and compares.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/check_reproducible.sh

Builds the library, the plugins and the doctor of build/release, and once more from a copy of the sources in a temporary folder, without
ccache; fails and names the files that differ. Takes two to ten minutes.
USAGE
}
case ${1:-} in
  '') ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
esac

targets=(tcpx tcpx_soft_plugin nixl_plugin tcpx_doctor)
files=(lib/libtcpx.so lib/libnccl-net-tcpx-soft.so lib/nixl/libplugin_TCPX.so programs/tcpx_doctor)
cd "$(dirname "$0")/.."
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
copy=$temporary/somewhere/else
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"

build() {
  cmake --preset release -DBUILD_TESTING=ON >/dev/null
  cmake --build build/release -j "$(nproc)" --target "${targets[@]}"
}
build
(cd "$copy" && env -u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER -u CMAKE_CUDA_COMPILER_LAUNCHER bash -c "$(declare -f build)
  $(declare -p targets); build")
code=0
for file in "${files[@]}"; do
  if cmp "build/release/$file" "$copy/build/release/$file"; then
    sha256sum "build/release/$file"
  else
    code=1
  fi
done
exit $code
