#!/usr/bin/env bash
# Plants small wrong changes, one at a time, and looks whether the tests notice. docs/testing.md says what the lists look like.
#
# The changes are made in a copy of the working tree below build/mutate, which has a build folder of its own; nothing else is touched.
set -umo pipefail  # -m: background jobs are process groups, which an interrupt can end
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

usage() {
  cat <<'USAGE'
usage: scripts/mutate.sh [--list | --check] [--only PATTERN]... [--preset NAME] [--jobs N] [--timeout SECONDS] [LIST...]

Makes each change of the lists (default: tests/mutations/*.txt) in a copy of the tree, builds the tests named with it, and runs them:
each must fail. Exit code 0: all were noticed; 1: not all, or a list has gone stale; 2: wrong usage; 130: interrupted.

  --list             only list the changes
  --check            only check that every change applies, exactly once, and that its tests exist
  --only PATTERN     changes whose line in --list, file or test matches PATTERN (an extended regular expression)
  --preset NAME      CMake preset to build with; default: release
  --jobs N           compilations at once; default: one per core
  --timeout SECONDS  a test that takes longer has noticed; default: 120

What a line of the report says:
  noticed            every test named with the change failed
  NOT NOTICED        a test passed all the same
  DOES NOT APPLY     the text to be replaced is not in the file, or more than once: mend the list
  DOES NOT COMPILE   the changed tree
  FAILS ANYWAY       a test fails, or does not compile, without the change
  cannot run here    a test is skipped, or is not part of this build; counted, and no failure
USAGE
}

mode=run
only=()
preset=release
jobs=$(nproc)
seconds=120
lists=()
wrong_usage() {
  echo "mutate: $*" >&2
  usage >&2
  exit 2
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --list) mode=list ;;
    --check) mode=check ;;
    --only | --preset | --jobs | --timeout)
      [[ $# -ge 2 ]] || wrong_usage "$1 needs a value"
      case $1 in
        --only) only+=("$2") ;;
        --preset) preset=$2 ;;
        --jobs) jobs=$2 ;;
        --timeout) seconds=$2 ;;
      esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong_usage "no such option: $1" ;;
    *) lists+=("$1") ;;
  esac
  shift
done
[[ ${#lists[@]} -gt 0 ]] || lists=(tests/mutations/*.txt)
[[ $jobs =~ ^[1-9][0-9]*$ && $seconds =~ ^[1-9][0-9]*$ ]] || wrong_usage "--jobs and --timeout are numbers above 0"

# --- reading the lists ---------------------------------------------------------------------------------------------------------

names=()        # of each change: "LIST: what it does"
tests_of=()     # of each change: its lines "PROGRAM CASE"
first_hunk=()   # of each change: where its hunks begin
hunk_files=() hunk_old=() hunk_new=()

# read_list FILE: appends its changes; false after a message when a line cannot be understood.
read_list() {
  local file=$1 area line number=0 last
  area=$(basename "$file" .txt)
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    last=$((${#names[@]} - 1))
    case $line in
      '' | '#'*) ;;
      'change: '?*)
        names+=("$area: ${line#change: }")
        tests_of+=('')
        first_hunk+=("${#hunk_files[@]}")
        ;;
      'test: '?*' '?*)
        [[ $last -ge 0 ]] || break
        tests_of[last]+="${line#test: }"$'\n'
        ;;
      'file: '?*)
        [[ $last -ge 0 ]] || break
        hunk_files+=("${line#file: }")
        hunk_old+=('')
        hunk_new+=('')
        ;;
      [-+\ ]*)
        [[ $last -ge 0 && ${#hunk_files[@]} -gt ${first_hunk[last]} ]] || break
        case $line in
          -*) hunk_old[-1]+="${line#?}"$'\n' ;;
          +*) hunk_new[-1]+="${line#?}"$'\n' ;;
          *) hunk_old[-1]+="${line#?}"$'\n' hunk_new[-1]+="${line#?}"$'\n' ;;
        esac
        ;;
      *) break ;;
    esac
    line=
  done <"$file"
  if [[ -n $line ]]; then
    echo "mutate: $file:$number: cannot be understood here: $line" >&2
    return 1
  fi
}
for list in "${lists[@]}"; do
  [[ -f $list ]] || wrong_usage "no such list: $list"
  read_list "$list" || exit 1
done
first_hunk+=("${#hunk_files[@]}")

# last_hunk CHANGE: where its hunks end.
hunks_of() { seq "${first_hunk[$1]}" $((${first_hunk[$1 + 1]} - 1)); }

is_wanted() {
  local pattern hunk text="${names[$1]}"$'\n'"${tests_of[$1]}"
  [[ ${#only[@]} -gt 0 ]] || return 0
  for hunk in $(hunks_of "$1"); do text+="${hunk_files[hunk]}"$'\n'; done
  for pattern in "${only[@]}"; do
    if grep -qE -e "$pattern" <<<"$text"; then return 0; fi
  done
  return 1
}
wanted=()
for change in "${!names[@]}"; do
  if is_wanted "$change"; then wanted+=("$change"); fi
done
[[ ${#wanted[@]} -gt 0 ]] || wrong_usage "no change matches"
if [[ $mode == list ]]; then
  for change in "${wanted[@]}"; do printf '%s\n' "${names[change]}"; done
  exit 0
fi

# --- changing a file -----------------------------------------------------------------------------------------------------------

# read_text FILE: into `text`, with a line break before the first line so that whole lines can be looked for.
read_text() {
  text=$(cat "$1" && echo x) || return 1
  text=$'\n'${text%x}
}

# apply_hunk HUNK ROOT: the file below ROOT with the change made into `text`; false with the cause in `cause`.
apply_hunk() {
  local old=$'\n'${hunk_old[$1]} new=$'\n'${hunk_new[$1]} file=${hunk_files[$1]}
  cause="$file: no text to look for"
  [[ -n ${hunk_old[$1]} && $old != "$new" ]] || return 1
  cause="$file: no such file"
  [[ -f $2/$file ]] || return 1
  read_text "$2/$file"
  cause="$file: the text is not there any more"
  [[ $text == *"$old"* ]] || return 1
  cause="$file: the text is there more than once; add lines around it"
  # The line break that ends one is the one that begins the next.
  [[ $text != *"$old"*"$old"* && $text != *"$old${old#$'\n'}"* ]] || return 1
  [[ $mode == check ]] || text="${text%%"$old"*}$new${text#*"$old"}"
  text=${text#$'\n'}
}

# applies CHANGE ROOT: false with the cause in `cause`.
applies() {
  local hunk
  cause="it names no file and no test"
  [[ ${first_hunk[$1]} -lt ${first_hunk[$1 + 1]} && -n ${tests_of[$1]} ]] || return 1
  for hunk in $(hunks_of "$1"); do apply_hunk "$hunk" "$2" || return 1; done
}

# tests_exist CHANGE: a case is looked for as the sources write it, "TEST_F(Suite, Case)", without the suite, which may have a prefix.
declare -A known_program
all_cases=
tests_exist() {
  local program filter name
  [[ -n $all_cases ]] || all_cases=$(grep -rhoE --include='*.cc' --include='*.h' 'TEST(_F|_P)?\(\w+, \w+\)' tests)
  while read -r program filter; do
    [[ -n $program ]] || continue
    if [[ $program == python.* ]]; then
      cause="no test $filter in python/tests/test_${program#python.}.py"
      grep -qs "^def $filter(" "python/tests/test_${program#python.}.py" || return 1
      continue
    fi
    cause="no test program $program"
    [[ -n ${known_program[$program]:-} ]] || grep -q "tcpx_add_tests($program " tests/*/CMakeLists.txt || return 1
    known_program[$program]=yes
    name=${filter#*.} name=${name%%/*}
    cause="no case $name in tests/"
    [[ $all_cases == *", "$name")"* ]] || return 1
  done <<<"${tests_of[$1]}"
}

if [[ $mode == check ]]; then
  stale=0
  for change in "${wanted[@]}"; do
    if ! applies "$change" . || ! tests_exist "$change"; then
      printf 'DOES NOT APPLY  %s\n                %s\n' "${names[change]}" "$cause"
      stale=$((stale + 1))
    fi
  done
  echo "mutate: ${#wanted[@]} changes, $stale of them stale"
  [[ $stale -eq 0 ]]
  exit
fi

# --- the copy ------------------------------------------------------------------------------------------------------------------

here=$PWD/build/mutate
copy=$here/tree
build=$copy/build/$preset
log=$here/log.txt
mkdir -p "$copy" || exit 1
exec 9>"$here/lock"
flock -n 9 || {
  echo "mutate: another run uses $here" >&2
  exit 1
}

# Files that are the same keep their time, so that only differing ones are compiled again, after any earlier run.
sync_copy() {
  local file
  git ls-files -z --cached --others --exclude-standard | sort -zu >"$here/files" || return 1
  while IFS= read -r -d '' file; do
    if [[ ! -e $file ]]; then
      rm -f "$copy/$file"
    elif ! cmp -s "$file" "$copy/$file"; then
      mkdir -p "$copy/$(dirname "$file")" && cp -P "$file" "$copy/$file" && touch -h "$copy/$file" || return 1
    fi
  done <"$here/files"
}

changed=()
text_before=()
restore() {
  local i
  for ((i = ${#changed[@]} - 1; i >= 0; i--)); do printf '%s' "${text_before[i]}" >"$copy/${changed[i]}"; done
  changed=()
  text_before=()
}

# run COMMAND...: in the background, so that an interrupt need not wait for its end; its output goes to the end of the log.
running=
run() {
  local code=0
  "$@" >>"$log" 2>&1 </dev/null &
  running=$!
  wait "$running" || code=$?
  running=
  return "$code"
}

# compile PROGRAM...: in the copy. A file of Python tests, "python.NAME", needs the package.
compile() { run nice ninja -C "$build" -j "$jobs" "${@/#python.*/tcpx_python}"; }

# run_test PROGRAM CASE: sets `outcome` to passed, failed or skipped.
run_test() {
  local code=0 before
  before=$(wc -c <"$log")
  if [[ $1 == python.* ]]; then
    run timeout -k 5 "$seconds" env PYTHON="$python" MISSING= BUILD="$build" \
      "$copy/python/tests/run_python_test.sh" "test_${1#python.}.py::$2" || code=$?
    outcome=failed
    case $code in
      0) outcome=passed ;;
      77) outcome=skipped ;;
    esac
    return
  fi
  run timeout -k 5 "$seconds" env -C "$build/tests" "./$1" --gtest_filter="$2" || code=$?
  outcome=passed
  if [[ $code -ne 0 ]]; then
    outcome=failed
    printf '%s %s: exit code %s\n' "$1" "$2" "$code" >>"$log"
  elif ! tail -c "+$((before + 1))" "$log" | grep '^\[       OK \]' >/dev/null; then
    outcome=skipped
  fi
}

# Result of every test without a change, found out when first needed: "PROGRAM CASE" to passed, failed or skipped.
declare -A baseline
find_baseline() {
  local line program filter
  while read -r program filter; do
    line="$program $filter"
    [[ -n $program && -z ${baseline[$line]:-} ]] || continue
    if ! grep -qx "${program/#python.*/tcpx_python}: phony" <<<"$known_targets"; then
      baseline[$line]=skipped
    elif ! compile "$program"; then
      baseline[$line]=failed
    else
      run_test "$program" "$filter"
      baseline[$line]=$outcome
    fi
  done <<<"${tests_of[$1]}"
}

declare -A count
report() { # WORD CHANGE [DETAIL]
  printf '%-16s  %s%s\n' "$1" "${names[$2]}" "${3:+ ($3)}"
  count[$1]=$((${count[$1]:-0} + 1))
}

try_change() {
  local change=$1 hunk program filter state programs=() begin=$SECONDS
  printf '\n===== %s\n' "${names[change]}" >>"$log"
  if ! applies "$change" "$copy"; then
    report 'DOES NOT APPLY' "$change" "$cause"
    return
  fi
  find_baseline "$change"
  for state in failed skipped; do
    while read -r program filter; do
      [[ -n $program && ${baseline["$program $filter"]} == "$state" ]] || continue
      if [[ $state == failed ]]; then report 'FAILS ANYWAY' "$change" "$program $filter"; else report 'cannot run here' "$change" "$program $filter"; fi
      return
    done <<<"${tests_of[change]}"
  done
  for hunk in $(hunks_of "$change"); do
    read_text "$copy/${hunk_files[hunk]}"
    text_before+=("${text#$'\n'}")
    changed+=("${hunk_files[hunk]}")
    apply_hunk "$hunk" "$copy"
    printf '%s' "$text" >"$copy/${hunk_files[hunk]}"
  done
  while read -r program filter; do [[ -z $program ]] || programs+=("$program"); done <<<"${tests_of[change]}"
  if ! compile "${programs[@]}"; then
    report 'DOES NOT COMPILE' "$change" "see $log"
  else
    state=noticed
    while read -r program filter; do
      [[ -n $program ]] || continue
      run_test "$program" "$filter"
      if [[ $outcome != failed ]]; then
        report 'NOT NOTICED' "$change" "by $program $filter"
        state=
        break
      fi
    done <<<"${tests_of[change]}"
    if [[ -n $state ]]; then report noticed "$change" "$((SECONDS - begin)) s"; fi
  fi
  restore
}

summary() {
  local word sum=0 text=
  for word in noticed 'NOT NOTICED' 'DOES NOT APPLY' 'DOES NOT COMPILE' 'FAILS ANYWAY' 'cannot run here'; do
    if [[ -n ${count[$word]:-} ]]; then text+=", ${count[$word]} $word" sum=$((sum + ${count[$word]})); fi
  done
  echo "mutate: $sum of ${#wanted[@]} changes tried$text"
}
interrupted() {
  trap '' INT TERM
  [[ -z $running ]] || kill -- "-$running"
  restore
  echo
  summary
  echo "mutate: interrupted"
  exit 130
}
trap interrupted INT TERM

: >"$log"
sync_copy || exit 1
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  # Objects of the tree itself serve the copy as well.
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_SLOPPINESS=pch_defines,time_macros
fi
# The one that scripts/install_deps.sh --tests makes, which the copy has not.
python=$PWD/build/python-tools/bin/python3
[[ -x $python ]] || python=$(command -v python3)
if ! (cd "$copy" && cmake --preset "$preset" -DPython_EXECUTABLE="$python") >>"$log" 2>&1; then
  echo "mutate: cmake --preset $preset failed; see $log" >&2
  exit 1
fi
known_targets=$(ninja -C "$build" -t targets all 2>/dev/null)
for change in "${wanted[@]}"; do try_change "$change"; done
summary
for word in 'NOT NOTICED' 'DOES NOT APPLY' 'DOES NOT COMPILE' 'FAILS ANYWAY'; do
  if [[ -n ${count[$word]:-} ]]; then exit 1; fi
done
