#!/usr/bin/env bash
# make_place.sh MAKE CASE: where `make` cannot build, it says what to do. With a made-up checkout, and a cmake that does nothing.
set -u
make=$1 case=$2
if [[ ${3:-} != inside ]]; then
  unshare -rm true 2>/dev/null || { echo "SKIPPED: this machine makes no user and mount namespaces"; exit 77; }
  exec unshare -rm "$0" "$make" "$case" inside
fi
scratch=$(mktemp -d)
checkout=$scratch/checkout
trap 'umount "$checkout" 2>/dev/null; rm -rf "$scratch"' EXIT
mkdir -p "$checkout/tests" "$checkout/scripts" "$scratch/bin"
cp "$(dirname "$0")/../Makefile" "$checkout/"
printf '#!/bin/sh\n' | tee "$scratch/bin/cmake" >"$checkout/scripts/install_deps.sh"
chmod +x "$scratch/bin/cmake" "$checkout/scripts/install_deps.sh"
make_read_only() { mount --bind "$checkout" "$checkout" && mount -o remount,ro,bind "$checkout"; }

# expect CODE LINE ARGUMENT...: of make
expect() {
  local output code
  output=$(PATH=$scratch/bin:$PATH MAKEFLAGS='' "$make" --no-print-directory -C "$checkout" "${@:3}" 2>&1)
  code=$?
  echo "$output"
  if [[ $code -ne $1 ]] || ! grep -q "$2" <<<"$output"; then
    echo "FAILED: exit code $code, expected $1 and \"$2\""
    exit 1
  fi
}

case $case in
  read_only)
    make_read_only || { echo "SKIPPED: cannot mount here"; exit 77; }
    # shellcheck disable=SC2016  # for the user's shell
    expect 2 '^make: build/release cannot be written; build elsewhere: make BUILD=$HOME/'
    expect 0 "^make: tests/ is read-only; the programs are in $scratch/elsewhere/tests/" BUILD="$scratch/elsewhere"
    ;;
  moved)
    mkdir -p "$checkout/build/cpu-only"
    echo 'CMAKE_HOME_DIRECTORY:INTERNAL=/where/it/was' >"$checkout/build/cpu-only/CMakeCache.txt"
    expect 2 '^make: build/cpu-only was configured in /where/it/was, .* make clean BUILD=build/cpu-only' PRESET=cpu-only
    expect 0 '' clean BUILD=build/cpu-only
    expect 0 '' PRESET=cpu-only
    ;;
  same)
    mkdir -p "$checkout/build/release"
    ln -s "$checkout" "$scratch/other_name"
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$scratch/other_name" >"$checkout/build/release/CMakeCache.txt"
    expect 0 ''
    [[ -L $checkout/tests/test_connection ]] || { echo "FAILED: no links"; exit 1; }
    ;;
  no_clang)
    printf '#!/bin/sh\n! echo "$*" | grep -q -e --fuzz\n' >"$checkout/scripts/install_deps.sh"
    expect 2 '^make: it is installed by scripts/install_deps.sh --fuzz' PRESET=asan-ubsan
    expect 0 '' PRESET=cpu-only
    ;;
esac
echo "PASSED"
