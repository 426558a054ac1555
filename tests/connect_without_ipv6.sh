#!/usr/bin/env bash
# On a machine without IPv6, "localhost" may still have an IPv6 address, and it comes last. The client must wait for a server at the
# other one all the same. Runs test_connection in a network and mount namespace made like that.
#
#   connect_without_ipv6.sh TEST_CONNECTION
set -u
if [[ ${2:-} != inside ]]; then
  unshare -rnm true 2>/dev/null || { echo "SKIPPED: this machine makes no user, network and mount namespaces"; exit 77; }
  exec unshare -rnm "$0" "$1" inside
fi

hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
printf '127.0.0.1 localhost\n::1 localhost\n' >"$hosts"
if ! { ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && mount --bind "$hosts" /etc/hosts; } 2>/dev/null; then
  echo "SKIPPED: cannot set up a network without IPv6 here"
  exit 77
fi
output=$(UCCL_TCPX_TIMEOUT_MS=300 "$1" client localhost --port 12345 2>&1)
code=$?
umount /etc/hosts
echo "$output"
[[ $code -eq 1 && $output == *'no answer until the deadline'*'Connection refused'* ]]
