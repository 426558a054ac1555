#!/usr/bin/env bash
# Runs a command of the README as a newcomer does: in a fresh clone of the newest commit, on a Debian that has only its base system,
# make and git. Nothing that this machine keeps is seen there: no CUDA, no ccache, no packages of the past.
# usage: scripts/run_bare.sh [--suite bookworm|trixie] [--keep FOLDER] [COMMAND...]
# Exit code: that of COMMAND (`make test` unless given); 77 when there can be no such system here, with the reason.
# The results of its tests are copied to build/bare/. --keep leaves the system in FOLDER, and goes on with the one found there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=
keep=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --suite) suite=$2 && shift 2 ;;
    --keep) keep=$2 && shift 2 ;;
    *) sed -n '2,/^set/s/^# //p' "$0" && exit $([[ $1 == --help ]] && echo 0 || echo 2) ;;
  esac
done
command=("$@")
[[ $# -gt 0 ]] || command=(make test)

cannot() {
  echo "run_bare: not possible here: $*" >&2
  exit 77
}
[[ $(id -u) -eq 0 ]] || cannot "making a system takes root"
command -v debootstrap >/dev/null || cannot "no debootstrap (apt-get install debootstrap)"
here=$(. /etc/os-release && [[ ${ID:-} == debian ]] && echo "${VERSION_CODENAME:-}") || cannot "this is no Debian"
suite=${suite:-$here}
# Where this machine has its packages from.
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' "Created-By: Packages" 2>/dev/null |
  awk -v suite="$here" '$2 == suite && $3 == "main" && !done { print $1; done = 1 }')
[[ -n $mirror ]] || cannot "apt names no source of $here"

root=${keep:-$(mktemp -d /var/tmp/tcpx-bare.XXXXXX)}
if [[ -z $keep ]]; then trap 'rm -rf --one-file-system "$root"' EXIT; fi
if [[ ! -e $root/etc/tcpx-bare ]]; then
  echo "run_bare: making a Debian $suite in $root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 5 "$root.log" >&2 && cannot "debootstrap of $suite failed ($root.log)"; }
  rm -f "$root.log"
  touch "$root/etc/tcpx-bare"
fi
chmod 0755 "$root" # tests run programs as an ordinary user, to whom a folder of mktemp's, as the root, would hide every library
# As Debian's installer writes it; debootstrap leaves names of this host to others.
printf '%s\n' '127.0.0.1 localhost' "127.0.1.1 $(uname -n)" '::1 localhost ip6-localhost ip6-loopback' >"$root/etc/hosts"
# How this machine gets at packages and wheels, and whom it trusts.
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/"
if [[ -e /etc/pip.conf ]]; then cp /etc/pip.conf "$root/etc/pip.conf"; fi
through=()
while IFS= read -r line; do through+=("$line"); done < <(env | grep -E -i '^(https?_proxy|no_proxy|PIP_(INDEX|EXTRA|CERT|TRUSTED|DEFAULT)[A-Z_]*|SSL_CERT_FILE|CI)=')

checkout=/root/tcpx-p2p # a name that nothing else has: files are searched for it
rm -rf "${root:?}$checkout" && git clone --quiet "file://$PWD" "$root$checkout"

# Its own mounts, which end with it, and its own processes. Not a mere chroot: in one of those nobody makes user namespaces.
code=0
unshare --mount --pid --fork --kill-child env -i bash -c '
  mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
    mkdir -p .outside && pivot_root . .outside || exit 77
  shift
  exec chroot . /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
' _ "$root" "${through[@]}" bash -c 'umount -l /.outside && cd "$1" && shift && exec "$@"' _ "$checkout" "${command[@]}" || code=$?
mkdir -p build/bare
for file in test_results.xml ctest.log; do
  if [[ -f $root$checkout/build/release/$file ]]; then cp "$root$checkout/build/release/$file" build/bare/; else rm -f "build/bare/$file"; fi
done
exit "$code"
