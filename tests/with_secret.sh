#!/usr/bin/env bash
# with_secret.sh SECURITY COMMAND...: runs it with a new secret, and UCCL_TCPX_SECURITY where that is not "auth", which a secret means.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(umask 077 && head -c 48 /dev/urandom | base64 >"$folder/secret")
export UCCL_TCPX_SECRET_FILE=$folder/secret
if [[ $1 != auth ]]; then export UCCL_TCPX_SECURITY=$1; fi
code=0
"${@:2}" || code=$?
exit "$code"
