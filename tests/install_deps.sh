#!/usr/bin/env bash
# install_deps.sh CASE: what scripts/install_deps.sh says and does when apt-get, here a stand-in for it, is interrupted or fails.
#
# It runs as root of a user and network namespace, with a PATH that has no ninja, so that one package is always missing.
set -u
case=$1
if [[ ${2:-} != inside ]]; then
  unshare -rn true 2>/dev/null || { echo "SKIPPED: this machine makes no user and network namespaces"; exit 77; }
  for tool in script setsid; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: there is no $tool"; exit 77; }
  done
  exec unshare -rn "$0" "$case" inside
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$scratch/output" 2>/dev/null
  exit 1
}
until_true() { # WHAT COMMAND...
  local what=$1
  shift
  for _ in $(seq 400); do
    if "$@" 2>/dev/null; then return 0; fi
    sleep 0.05
  done
  fail "not within 20 s: $what"
}

mkdir "$scratch/bin"
ln -s /usr/local/bin/* /bin/* /usr/bin/* "$scratch/bin/" 2>/dev/null
rm -f "$scratch/bin/"{ninja,apt-get,sudo}
# stand_in: apt-get is the script on standard input; `step` is update, download or install.
stand_in() {
  cat - >"$scratch/bin/apt-get" <<<"#!/bin/bash
scratch=$scratch
case \"\$*\" in *--download-only*) step=download ;; *install*) step=install ;; *) step=update ;; esac
$(cat)"
  chmod +x "$scratch/bin/apt-get"
}
install_deps() { PATH=$scratch/bin "$(dirname "$0")/../scripts/install_deps.sh"; }

# expect_failure LINE: it fails with this line, and says little more.
expect_failure() {
  install_deps >"$scratch/output" 2>&1
  local code=$?
  [[ $code -eq 1 ]] || fail "exit code $code"
  grep -q "^install_deps: apt-get could not install ninja-build: $1" "$scratch/output" || fail "no such line: $1"
  [[ $(wc -l <"$scratch/output") -le 5 ]] || fail "too many words"
  echo "PASSED: $(tail -n 1 "$scratch/output")"
}

# press_ctrl_c STEP: in a terminal, while apt-get is at STEP. Sets `code`. The terminal shows ^C once it has sent its signal.
press_ctrl_c() {
  mkfifo "$scratch/keys"
  # A shell has what it starts in the background ignore interrupts.
  PATH=$scratch/bin env --default-signal=INT,QUIT script -qfec "$(dirname "$0")/../scripts/install_deps.sh" "$scratch/output" <"$scratch/keys" >/dev/null &
  local terminal=$!
  exec 3>"$scratch/keys"
  until_true "apt-get is at $1" test -e "$scratch/$1.begun"
  printf '\003' >&3
  until_true "the terminal has sent an interrupt" grep -qF '^C' "$scratch/output"
  touch "$scratch/go"
  wait "$terminal"
  code=$?
  exec 3>&-
}

case $case in
  interrupted_while_dpkg_runs)
    stand_in <<'STAND_IN'
[[ $step == install ]] || exit 0
# As the real one does for dpkg.
exec env --default-signal=INT bash -c 'touch "$0/install.begun"; until [[ -e $0/go ]]; do sleep 0.05; done; touch "$0/install.done"' "$scratch"
STAND_IN
    press_ctrl_c install
    [[ -e $scratch/install.done ]] || fail "dpkg was interrupted"
    [[ $code -eq 130 ]] || fail "exit code $code"
    grep -q '^install_deps: interrupted' "$scratch/output" || fail "not a word about the interrupt"
    echo "PASSED: dpkg has finished, then it ended"
    ;;
  interrupted_while_fetching)
    stand_in <<'STAND_IN'
touch "$scratch/$step.begun"
[[ $step == update ]] || exec sleep 30
STAND_IN
    press_ctrl_c download
    [[ ! -e $scratch/install.begun ]] || fail "it goes on"
    [[ $code -eq 130 ]] || fail "exit code $code"
    grep -q '^install_deps: interrupted' "$scratch/output" || fail "not a word about the interrupt"
    echo "PASSED: it ended at once"
    ;;
  no_name_server)
    # Anything else cannot be told from a network that is down.
    if ! { ip link set lo up && ip route add default dev lo; }; then
      echo "SKIPPED: cannot set up a route here"
      exit 77
    fi
    stand_in <<'STAND_IN'
say() { for package in $(seq 80); do echo "$1: Failed to fetch http://deb.debian.org/$package  Temporary failure resolving 'deb.debian.org'" >&2; done; }
if [[ $step == update ]]; then say W; else say E && exit 100; fi
STAND_IN
    expect_failure 'no name server answers for deb.debian.org: look at /etc/resolv.conf'
    ;;
  no_route)
    stand_in <<'STAND_IN'
[[ $step == update ]] && exit 0
echo "E: Failed to fetch http://deb.debian.org/x.deb  Temporary failure resolving 'deb.debian.org'" >&2
exit 100
STAND_IN
    expect_failure 'there is no route to the package servers (deb.debian.org)'
    ;;
  not_in_the_lists)
    stand_in <<'STAND_IN'
[[ $step == update ]] && exit 0
echo "E: Unable to locate package ninja-build" >&2
exit 100
STAND_IN
    expect_failure "the package lists have no ninja-build. .*'universe'"
    ;;
  unknown)
    stand_in <<'STAND_IN'
[[ $step == update ]] && exit 0
echo "E: The disk is made of cheese" >&2
exit 100
STAND_IN
    install_deps >"$scratch/output" 2>&1 && fail "it passed"
    grep -q 'made of cheese' "$scratch/output" || fail "apt-get's own words are lost"
    echo "PASSED: apt-get's own words"
    ;;
  *) fail "no case $case" ;;
esac
