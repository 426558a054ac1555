#!/bin/sh
# First process of the virtual machine (run_vm.sh): the NIC, another host at the far end of its wire, transfers, verdict. busybox is all
# there is.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
failed=0
failure() { echo "FAILED: $*" && failed=1; }
# far COMMAND...: on the other host, which is a network namespace.
far() { nsenter -t "$other" -n "$@"; }

insmod /wire_nic.ko || failure "the module cannot be loaded"
unshare -n sleep 1000 &
other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set wire1 netns $other
ip link set lo up
ip link set wire0 mtu 9000 up
ip addr add 10.9.0.1/24 dev wire0
far ip link set wire1 mtu 9000 up
far ip addr add 10.9.0.2/24 dev wire1
echo "up after $(cut -d' ' -f1 /proc/uptime) s with Linux $(uname -r)"

# transfer NAME PATTERN [FAULT VALUE]: what the receiver says has PATTERN.
transfer() {
  echo "== $1"
  if [ -n "$3" ]; then echo "$4" >"/sys/module/wire_nic/parameters/$3"; fi
  /devmem_transfer receive wire0 1 10.9.0.1 5201 32 >/received &
  receiver=$!
  far /devmem_transfer send wire1 10.9.0.1 5201 32 || failure "$1: the sender"
  wait $receiver || failure "$1: the receiver"
  cat /received
  grep -q "$2" /received || failure "$1: no '$2'"
  if [ -n "$3" ]; then echo 0 >"/sys/module/wire_nic/parameters/$3"; fi
}
transfer "every byte in device memory" "33554432 bytes, .* 0 linear bytes"
transfer "100 bytes of each packet beside its headers" "bytes, [1-9][0-9]* linear bytes" linear_bytes 100
transfer "every 7th packet in host memory" "bytes, [1-9][0-9]* linear bytes" whole_every 7
transfer "every 50th packet lost" "33554432 bytes, .* 0 linear bytes" lose_every 50
# refusal INTERFACE QUEUE WORDS
refusal() {
  echo "== queue $2 of $1 is refused"
  /devmem_transfer receive "$1" "$2" 10.9.0.1 5201 1 >/refused && failure "it is not"
  cat /refused
  grep -q "$3" /refused || failure "no '$3'"
}
refusal lo 0 "TCPX_E_UNSUPPORTED.*a driver that restarts single queues (errno 95)"
refusal wire0 2 "is there such a receive queue"
refusal wire7 0 "there is no interface wire7"

kill $other
rmmod wire_nic || failure "the module cannot be removed"
dmesg | grep -E 'WARNING:|BUG:|Oops|stalled pool' && failure "the kernel complains"
if [ $failed = 0 ]; then echo "virtual machine: passed"; fi
poweroff -f
