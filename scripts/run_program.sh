# shellcheck shell=bash
# Common to run_tcpx_test.sh and run_p2p_fullmesh.sh, which source it, define usage, and end with run_program.

script=$(basename "$0" .sh)
say() { echo "$script: $*"; }

wrong_usage() {
  echo "$script: $*" >&2
  usage >&2
  exit 2
}

# build PROGRAM [option of install_deps.sh]...
build() {
  scripts/install_deps.sh "${@:2}"
  # make ends with 2 when something is broken; here 2 means wrong usage.
  make --no-print-directory "$1" || exit 1
}

# built_program NAME: where `make` has left it. A read-only checkout has no links in tests/.
built_program() {
  local path=./tests/$1
  [[ -x $path ]] || path=$(realpath "${BUILD:-build/${PRESET:-release}}")/tests/$1
  echo "$path"
}

# A program hears of each signal as it came. A launcher is asked once to end, by the signal that launcher_signal names.
program_pid=''
interrupted=0
# shellcheck disable=SC2317  # called by the trap
forward() {
  local signal=$1 earlier=$interrupted
  interrupted=$((128 + $2))
  if [[ -z $program_pid ]]; then
    echo
    say "interrupted"
    exit "$interrupted"
  fi
  if [[ -n ${launcher_signal:-} ]]; then
    [[ $earlier -eq 0 ]] || return 0
    signal=$launcher_signal
  fi
  kill "-$signal" "$program_pid" 2>/dev/null || true
}
trap 'forward INT 2' INT
trap 'forward TERM 15' TERM

# run_program COMMAND...: in a session of its own, so that Ctrl-C reaches this script alone. Says how it went, and exits with that.
run_program() {
  local code=0
  say "running $*"
  setsid "$@" </dev/null &
  program_pid=$!
  wait "$program_pid" || code=$?
  while kill -0 "$program_pid" 2>/dev/null; do wait "$program_pid" || code=$?; done
  if ((interrupted)); then
    say "interrupted"
    exit "$interrupted"
  fi
  case $code in
    0) say "passed" ;;
    2) say "usage error" ;;
    77) say "skipped" ;;
    *) say "failed (exit code $code)" && code=1 ;;
  esac
  exit "$code"
}
