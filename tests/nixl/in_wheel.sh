#!/usr/bin/env bash
# Runs a test with a release of NIXL that finds the plugin.
# usage: in_wheel.sh ENVIRONMENT PLUGIN_FOLDER TEST.py [arguments]
set -euo pipefail
environment=$1 plugins=$2 test=$3
shift 3
if [[ ! -x $environment/bin/python3 ]]; then
  echo "SKIPPED: no NIXL: scripts/install_deps.sh --nixl installs it"
  exit 77
fi
export NIXL_PLUGIN_DIR=$plugins NIXL_LOG_LEVEL=warn
exec "$environment/bin/python3" "$(dirname "$0")/$test" "$@"
