#!/usr/bin/env bash
# Runs a file of tests with pytest, or checks the types of all Python files of the package and of the examples with mypy.
#   run_python_test.sh {FILE [OPTION OF PYTEST]...|types}
# From the environment: PYTHON (interpreter), BUILD (build folder), MISSING (why there is no package; empty: there is one).
# Exit code 77: skipped, in whole.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..

skip() {
  echo "SKIPPED: $*"
  exit 77
}
needs() { "$PYTHON" -c "import $1" 2>/dev/null || skip "no $1 for $PYTHON (scripts/install_deps.sh --tests)"; }

[[ -z $MISSING ]] || skip "no Python package: $MISSING (scripts/install_deps.sh --tests)"
cd "$root"
export PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1
if [[ $1 == types ]]; then
  needs mypy
  folders=(python/tcpx)
  if [[ -d examples/python ]]; then folders+=(examples/python); fi
  exec "$PYTHON" -m mypy --strict --cache-dir "$BUILD/mypy" "${folders[@]}"
fi
needs pytest
exec "$PYTHON" -m pytest "$here/$1" "${@:2}"
