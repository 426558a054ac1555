#!/usr/bin/env bash
# Installs what building and testing need, on Debian 12, Ubuntu 24.04 and their like. docs/dependencies.md says why each is needed.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/install_deps.sh [--check] [--tests] [--fuzz] [--mpi] [--nixl] [--mooncake] [--torch] [--vm] [--bare]

Installs the missing packages with apt-get, as root or through sudo, after saying which. Does nothing when all is there.

  --check  only list what is missing; exit code 1 when something is
  --fuzz   also what the presets `asan-ubsan` and `tsan` need: clang, its runtime libraries and symbolizer
  --tests  also what only tests need: iproute2, for two hosts made of network namespaces; pkgconf, to use what was installed;
           Python's headers and build/python-tools, a virtual environment with wheels from PyPI, to build and test the Python package
  --mpi    also what run_p2p_fullmesh.sh starts ranks with: mpirun of Open MPI
  --nixl   also releases of NIXL for its back-end's tests: Python wheels from PyPI, each in build/nixl/VERSION (220 MB to fetch)
  --mooncake
           also Mooncake's transfer engine, to measure beside: a Python wheel from PyPI, in build/mooncake/VERSION (70 MB to fetch;
           with an NVIDIA driver here the wheel that has CUDA, 120 MB)
  --torch  also PyTorch of the distribution (200 MB to fetch), for the tests that move its tensors
  --vm     also a virtual machine for the tests of net/devmem, whose kernel has device-memory TCP: packages of Debian, unpacked into
           build/devmem-vm (500 MB); as root, on x86-64
  --bare   also what scripts/run_bare.sh makes a bare system with: debootstrap
USAGE
}

say() { echo "install_deps: $*"; }
fail_with() { # CODE MESSAGE
  echo "install_deps: ${*:2}" >&2
  exit "$1"
}
fail() { fail_with 1 "$@"; }

check_only=false
with_fuzz=false
with_mpi=false
with_nixl=false
with_mooncake=false
with_tests=false
with_torch=false
with_vm=false
with_bare=false
for argument in "$@"; do
  case $argument in
    --check) check_only=true ;;
    --fuzz) with_fuzz=true ;;
    --mpi) with_mpi=true ;;
    --tests) with_tests=true ;;
    --nixl) with_nixl=true ;;
    --mooncake) with_mooncake=true ;;
    --torch) with_torch=true ;;
    --vm) with_vm=true ;;
    --bare) with_bare=true ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done

has_command() { command -v "$1" >/dev/null 2>&1; }

has_header() {
  local folder
  for folder in /usr/include /usr/local/include; do
    if [[ -e $folder/$1 ]]; then return 0; fi
  done
  return 1
}

has_library() { "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" 2>/dev/null; }

# The compiler alone is not enough: the libraries behind -fsanitize are a package of their own.
can_fuzz() {
  has_command clang++ || return 1
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=address,fuzzer -x c++ - -o /dev/null 2>/dev/null
}

clang_version() { clang --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\)\..*/\1/p' | head -n 1; }

# The distribution's Python, whose headers and PyTorch its packages are for, before another one that PATH may lead to.
python=/usr/bin/python3
[[ -x $python ]] || python=python3

# One of each family of releases (integrations/nixl/nixl_abi.h), and the newest.
nixl_versions=(0.9.0 0.10.1 1.0.1 1.5.1)
nixl_folder=$(cd "$(dirname "$0")/.." && pwd)/build/nixl

has_nixl() {
  local version
  for version in "${nixl_versions[@]}"; do
    [[ -d $(echo "$nixl_folder/$version"/lib/python3*/site-packages/nixl_cu12) ]] || return 1
  done
}

install_nixl() {
  local version in_wheel
  for version in "${nixl_versions[@]}"; do
    say "will install NIXL $version into $nixl_folder/$version"
    in_wheel=$nixl_folder/$version/bin/python3
    "$python" -m venv --clear "$nixl_folder/$version" && "$in_wheel" -m pip install -q --disable-pip-version-check numpy || return 1
    # Without torch, which the wheels before 1.4 want for the names of its types only.
    "$in_wheel" -m pip install -q --disable-pip-version-check --no-deps "nixl-cu12==$version" || return 1
  done
}

mooncake_version=0.3.13.post1
mooncake_folder=$(dirname "$nixl_folder")/mooncake/$mooncake_version

has_mooncake() { "$mooncake_folder/bin/python3" -c 'import mooncake.engine, numpy' 2>/dev/null; }

install_mooncake() {
  local wheel=mooncake-transfer-engine-non-cuda
  if has_command nvidia-smi; then wheel=mooncake-transfer-engine; fi
  say "will install $wheel $mooncake_version into $mooncake_folder"
  "$python" -m venv --clear "$mooncake_folder" &&
    "$mooncake_folder/bin/python3" -m pip install -q --disable-pip-version-check numpy "$wheel==$mooncake_version" && has_mooncake
}

# A system for tests/devmem/run_vm.sh, in which nothing is installed, only unpacked: a kernel newer than this machine's, its headers with the
# compiler they want, QEMU. apt-get keeps all its state in the same folder.
vm_suite=trixie
vm_packages=(base-files bash binutils busybox-static coreutils dash diffutils findutils grep libc-bin libc6-dev make mawk qemu-system-x86 sed
  "linux-headers-amd64")
vm_folder=$(dirname "$nixl_folder")/devmem-vm

has_vm() { [[ -s $vm_folder/kernel ]]; }

install_vm() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg mirror kernel suite file
  local archives=$vm_folder/var/cache/apt/archives status=$vm_folder/var/lib/dpkg/status
  [[ $(id -u) -eq 0 && $(uname -m) == x86_64 ]] || { say "the virtual machine takes root and x86-64" >&2 && return 1; }
  mirror=$(apt-get indextargets --format '$(SITE)' "Created-By: Packages" "Component: main" "Origin: Debian" 2>/dev/null | grep -v security | head -n 1)
  [[ -n $mirror && -r $keyring ]] || { say "the virtual machine takes packages of Debian, and apt knows no source of them" >&2 && return 1; }
  say "will unpack Debian $vm_suite with a kernel of its backports into $vm_folder"
  rm -rf --one-file-system "$vm_folder"
  mkdir -p "$archives/partial" "$vm_folder/var/lib/apt/lists/partial" "${status%/*}" "$vm_folder"/etc/apt/{apt.conf,preferences,sources.list,trusted.gpg}.d
  : >"$status"
  for suite in "$vm_suite" "$vm_suite-backports"; do echo "deb [signed-by=$keyring] $mirror $suite main"; done >"$vm_folder/etc/apt/sources.list"
  local vm_apt=(apt-get -qq -o "Dir=$vm_folder" -o "Dir::State::status=$status" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -t "$vm_suite-backports")
  "${vm_apt[@]}" update && "${vm_apt[@]}" install --yes --no-install-recommends --download-only "${vm_packages[@]}" || return 1
  kernel=$(cd "$archives" && echo linux-headers-[0-9]*-amd64_*)
  kernel=${kernel#linux-headers-} kernel=${kernel%%_*}
  # Its modules, which are a package of their own lately, are not wanted.
  (cd "$archives" && { "${vm_apt[@]}" download "linux-binary-$kernel" 2>/dev/null || "${vm_apt[@]}" download "linux-image-$kernel"; }) || return 1
  dpkg-deb -x "$archives"/base-files_*.deb "$vm_folder" # the links from /bin and /lib into /usr
  for file in "$archives"/*.deb; do dpkg-deb -x "$file" "$vm_folder" || return 1; done
  rm -rf "$archives" "$vm_folder"/var/lib/apt "$vm_folder"/usr/share/{doc,man,locale}
  ln -sf dash "$vm_folder/usr/bin/sh" && ln -sf mawk "$vm_folder/usr/bin/awk" && chroot "$vm_folder" /sbin/ldconfig || return 1
  echo "$kernel" >"$vm_folder/kernel"
}

# Wheels to build and test the Python package with, beside those the distribution's Python has already.
python_tools=(nanobind numpy pytest mypy prometheus-client)
python_folder=$(cd "$(dirname "$0")/.." && pwd)/build/python-tools

has_python_tools() { "$python_folder/bin/python3" -c 'import nanobind, numpy, pytest, mypy, prometheus_client' 2>/dev/null; }

# Torch, too, is seen in it where the distribution's is installed.
install_python_tools() {
  say "will install ${python_tools[*]} into $python_folder"
  "$python" -m venv --clear --system-site-packages "$python_folder" &&
    "$python_folder/bin/python3" -m pip install -q --disable-pip-version-check --retries 1 "${python_tools[@]}" && has_python_tools &&
    return
  rm -rf "$python_folder"
  return 1
}

has_torch() { "$python" -c 'import importlib.util; raise SystemExit(importlib.util.find_spec("torch") is None)' 2>/dev/null; }

has_python_headers() {
  "$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# Tests for the tools a package brings, not for the package, so that tools from elsewhere count too.
missing=()
need() {
  local package=$1
  shift
  "$@" || missing+=("$package")
}
need g++ has_command g++
need gcc has_command cc
need make has_command make
need cmake has_command cmake
need ninja-build has_command ninja
need libspdlog-dev has_header spdlog/spdlog.h
need libfmt-dev has_header fmt/core.h
need libcli11-dev has_header CLI/CLI.hpp
need nlohmann-json3-dev has_header nlohmann/json.hpp
need zlib1g-dev has_header zlib.h
need libssl-dev has_header openssl/ssl.h
need libgtest-dev has_header gtest/gtest.h
if $with_tests; then
  need iproute2 has_command ip
  need pkgconf has_command pkg-config
  need python3-dev has_python_headers
  need python3-yaml "$python" -c 'import yaml'
fi
if $with_fuzz; then
  need clang can_fuzz
  need llvm has_command llvm-symbolizer # without it a checker's report names no function
fi
if $with_mpi; then need openmpi-bin has_command mpirun; fi
if $with_torch; then need python3-torch has_torch; fi
if $with_bare; then need debootstrap has_command debootstrap; fi
if $with_mooncake; then
  need libibverbs1 has_library libibverbs.so.1 # its wheels bring all other libraries
  need libcurl4 has_library libcurl.so.4
  need libnuma1 has_library libnuma.so.1
fi
if $with_nixl || $with_mooncake || $with_tests; then need python3-venv "$python" -c 'import ensurepip' 2>/dev/null; fi

wheels=()
if $with_tests && ! has_python_tools; then wheels+=("wheels for build/python-tools"); fi
if $with_nixl && ! has_nixl; then wheels+=("wheels of NIXL"); fi
if $with_mooncake && ! has_mooncake; then wheels+=("wheel of Mooncake"); fi
if $with_vm && ! has_vm; then wheels+=("a virtual machine in build/devmem-vm"); fi
if [[ ${#missing[@]} -eq 0 && ${#wheels[@]} -eq 0 ]]; then
  say "nothing is missing"
  exit 0
fi
if $check_only; then
  say "missing: ${missing[*]} ${wheels[*]}"
  exit 1
fi

as_root=()
apt_log=''
lists_are_old=''  # the cause, when it is known
trap 'rm -f "$apt_log"' EXIT
# Bash calls it when the command that it waits for has ended.
trap 'echo >&2 && fail_with 130 "interrupted"' INT

# apt ARGUMENT...: what apt-get complains of goes to the log, in English, because why_apt_failed reads it.
apt_command=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 -qq)
apt() { "${as_root[@]}" "${apt_command[@]}" "$@" 2>>"$apt_log"; }
# Without a terminal of its own, dpkg would be killed half-way by Ctrl-C, and apt-get does nothing more until somebody has mended
# that by hand. apt-get makes dpkg heed interrupts that we ignore, so ignoring them is not enough: this session has no terminal.
apt_to_its_end() {
  "${as_root[@]}" sh -c 'trap "" HUP INT QUIT; setsid --wait "$@"' sh "${apt_command[@]}" "$@" 2>>"$apt_log"
}

has_default_route() {
  awk '$2 == "00000000" && $8 == "00000000" { found = 1 } END { exit !found }' /proc/net/route 2>/dev/null ||
    awk '$1 ~ /^0+$/ && $2 == "00" && $NF != "lo" { found = 1 } END { exit !found }' /proc/net/ipv6_route 2>/dev/null
}

# The cause in a sentence with its cure, of what the log has; false where it is none of these.
why_apt_failed() {
  local host package
  host=$(sed -nE "s/.*(Temporary failure resolving|Could not resolve( host)?:?) '?([^' ]+)'?.*/\3/p" "$apt_log" | head -n 1)
  package=$(sed -nE "s/.*(Unable to locate package ([^ ]+)|Package '?([^ ']+)'? has no installation candidate).*/\2\3/p" "$apt_log" | sort -u | paste -sd ' ')
  if grep -q "dpkg was interrupted" "$apt_log"; then
    echo "an earlier installation was interrupted: run dpkg --configure -a as root, then this again"
  elif grep -qE "Could not get lock|Unable to (lock|acquire)" "$apt_log"; then
    echo "another program is installing packages: try again when it has ended"
  elif grep -qE "Network is unreachable|No route to host" "$apt_log" || { [[ -n $host ]] && ! has_default_route; }; then
    echo "there is no route to the package servers${host:+ ($host)}: bring this machine's network up (ip route)"
  elif [[ -n $host ]]; then
    echo "no name server answers for $host: look at /etc/resolv.conf"
  elif grep -qE "Connection refused|Could not connect|Unable to connect|[Cc]onnection timed out" "$apt_log"; then
    echo "the package servers do not answer: is there a firewall, or a proxy that apt-get was not told of (http_proxy)?"
  elif [[ -n $package && -n $lists_are_old ]]; then
    echo "the package lists have no $package, and could not be renewed: $lists_are_old"
  elif [[ -n $package ]]; then
    echo "the package lists have no $package. On Ubuntu most come from the component 'universe': is it in the apt sources?"
  else
    return 1
  fi
}

apt_failed() {
  local why
  if why=$(why_apt_failed); then fail "apt-get could not install $*: $why"; fi
  tail -n 20 "$apt_log" >&2
  fail "apt-get could not install $*"
}

# Fetching may be interrupted at any time, so it comes first.
install_by_apt() {
  say "will install with apt-get${as_root[0]:+ through sudo}: $*"
  apt install --yes --no-install-recommends --download-only "$@" || apt_failed "$@"
  say "installing; Ctrl-C takes effect when dpkg has finished"
  apt_to_its_end install --yes --no-install-recommends "$@" || apt_failed "$@"
}

install_packages() {
  has_command apt-get || fail "missing: ${missing[*]}. This is no Debian or Ubuntu: install their counterparts by hand."
  if [[ $(id -u) -ne 0 ]]; then
    has_command sudo || fail "missing: ${missing[*]}. Installing them needs root, and there is no sudo: run $0 as root."
    as_root=(sudo)
  fi
  apt_log=$(mktemp)
  say "missing: ${missing[*]}"
  apt update || true  # that it could not fetch lists, it may say by warnings alone
  if lists_are_old=$(why_apt_failed); then say "the package lists could not be renewed: $lists_are_old" >&2; fi
  : >"$apt_log"
  install_by_apt "${missing[@]}"
  if $with_fuzz && ! can_fuzz; then install_by_apt "libclang-rt-$(clang_version)-dev"; fi
}

if [[ ${#missing[@]} -gt 0 ]]; then install_packages; fi
if $with_tests && ! has_python_tools; then
  install_python_tools || say "the wheels could not be installed; without them the tests of the Python package are skipped" >&2
fi
if $with_nixl && ! has_nixl; then
  install_nixl || fail "the wheels of NIXL could not be installed; without them its tests are skipped"
fi
if $with_mooncake && ! has_mooncake; then
  install_mooncake || fail "the wheel of Mooncake could not be installed; without it nothing is measured beside it"
fi
if $with_vm && ! has_vm; then
  install_vm || fail "the virtual machine could not be made; without it net/devmem is tested without a kernel"
fi
say "done"
