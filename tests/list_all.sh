#!/usr/bin/env bash
# list_all.sh FOLDER: every test program of this folder has all its cases when it is started by its own name. One that takes itself for
# a link to a part of a program (support/test_main.cc) would leave the others out, and nobody would miss them.
set -uo pipefail

# Without the values of parameters, some of which are addresses.
cases_of() { timeout 60 "$@" --gtest_list_tests 2> /dev/null | sed 's/ *#.*//'; }

listed=0 bad=0
for program in "$1"/test_*; do
  [[ -f $program && ! -L $program && -x $program ]] || continue
  # Ours alone: tools have such names, too.
  mine=$(cases_of "$program") && [[ $mine == *$'\n  '* ]] || continue
  all=$(cases_of "$program" '--gtest_filter=**')
  listed=$((listed + 1))
  [[ $mine == "$all" ]] && continue
  echo "$(basename "$program") leaves out cases when it is started by its own name:"
  diff <(printf '%s\n' "$mine") <(printf '%s\n' "$all") | head -20
  bad=1
done
if ((listed == 0)); then
  echo "SKIPPED: no test program has been built"
  exit 77
fi
echo "$listed programs list all their cases"
exit $bad
