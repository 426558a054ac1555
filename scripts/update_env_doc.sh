#!/usr/bin/env bash
# Writes docs/env.md anew from the one table of environment variables (base/environment.cc).
#
#   scripts/update_env_doc.sh [BUILD_DIR]     BUILD_DIR holds programs/env_doc; default: build/release, else build/cpu-only
#
# Exit status: 0 done, 1 no build folder; the file is then left as it was.
set -eu
cd "$(dirname "$0")/.."

build=${1:-}
if [[ -z $build ]]; then
  build=build/release
  [[ -d $build ]] || build=build/cpu-only
fi
if [[ ! -f $build/CMakeCache.txt ]]; then
  echo "update_env_doc: $build is no build folder; run: cmake --preset cpu-only" >&2
  exit 1
fi
cmake --build "$build" --target env_doc >/dev/null
tool=$build/programs/env_doc

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
"$tool" >"$scratch"
cp "$scratch" docs/env.md
echo "docs/env.md: written"
