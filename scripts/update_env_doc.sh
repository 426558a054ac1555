#!/usr/bin/env bash
# Writes the environment documentation anew from its one table (base/environment.cc): docs/env.md, and in README.md the lines
# between the markers "env table begin" and "env table end".
#
#   scripts/update_env_doc.sh [BUILD_DIR]     BUILD_DIR holds tools/env_doc; default: build/release, else build/cpu-only
#
# Exit status: 0 done, 1 no tool, or README.md without its markers; files are then left as they were.
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
tool=$build/tools/env_doc

readonly begin='<!-- env table begin -->' end='<!-- env table end -->'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$tool" >"$scratch/env.md"
"$tool" --table >"$scratch/table.md"

if [[ -f README.md ]]; then
  if [[ $(grep -cFx -e "$begin" README.md) != 1 || $(grep -cFx -e "$end" README.md) != 1 ]]; then
    echo "update_env_doc: README.md needs the lines \"$begin\" and \"$end\", once each" >&2
    exit 1
  fi
  awk -v begin="$begin" -v end="$end" -v table="$scratch/table.md" '
    $0 == end { inside = 0 }
    !inside { print }
    $0 == begin { inside = 1; while ((getline line < table) > 0) print line }
  ' README.md >"$scratch/README.md"
  cp "$scratch/README.md" README.md
  echo "README.md: table written"
fi
cp "$scratch/env.md" docs/env.md
echo "docs/env.md: written"
