#!/bin/sh
# First process of the virtual machine (run_vm.sh): the NIC, another host at the far end of its wire, transfers, verdict. busybox is all
# there is.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /run
failed=0
failure() { echo "FAILED: $*" && failed=1; }
# far COMMAND...: on the other host, which is a network namespace.
far() { nsenter -t "$other" -n "$@"; }

unshare -n sleep 1000000 &
other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set lo up
plug_in() {
  insmod /wire_nic.ko || failure "the module cannot be loaded"
  ip link set wire1 netns $other
  for conf in /proc/sys/net/ipv6/conf/default/accept_dad /proc/sys/net/ipv6/conf/wire0/accept_dad; do echo 0 >$conf; done
  ip link set wire0 mtu 9000 up
  ip addr add fd09::1/64 dev wire0
  ip addr add 10.9.0.1/24 dev wire0
  far sh -c 'echo 0 >/proc/sys/net/ipv6/conf/wire1/accept_dad'
  far ip link set wire1 mtu 9000 up
  far ip addr add fd09::2/64 dev wire1
  far ip addr add 10.9.0.2/24 dev wire1
}
plug_in
echo "up after $(cut -d' ' -f1 /proc/uptime) s with Linux $(uname -r)"

address=10.9.0.1
port=5201
# steered RULES [TABLE [BOUND]]: rules and RSS table are these, the latter by default that of the driver, and so many queues are bound.
steered() {
  /devmem_transfer rules wire0 >/rules
  [ "$(cat /rules)" = "$1; RSS: ${2:-0 1 0 1 0 1 0 1}; bound: ${3:-0}" ] || failure "rules: $(cat /rules), and should be: $*"
}
# transfer NAME PATTERN [FAULT VALUE]: what the receiver says has PATTERN.
transfer() {
  echo "== $1"
  if [ -n "$3" ]; then echo "$4" >"/sys/module/wire_nic/parameters/$3"; fi
  /devmem_transfer receive wire0 1 $address $port 32 >/received &
  receiver=$!
  far /devmem_transfer send wire1 $address $port 32 || failure "$1: the sender"
  wait $receiver || failure "$1: the receiver"
  cat /received
  grep -q "$2" /received || failure "$1: no '$2'"
  if [ -n "$3" ]; then echo 0 >"/sys/module/wire_nic/parameters/$3"; fi
}
transfer "every byte in device memory" "33554432 bytes, .* 0 linear bytes"
transfer "100 bytes of each packet beside its headers" "bytes, [1-9][0-9]* linear bytes" linear_bytes 100
transfer "every 7th packet in host memory" "bytes, [1-9][0-9]* linear bytes" whole_every 7
transfer "every 50th packet lost" "33554432 bytes, .* 0 linear bytes" lose_every 50
# out_of_order: how many packets the near host's TCP has had to put in order.
out_of_order() { awk '/^TcpExt/ { if (at) print $at; else for (i = 1; i <= NF; i++) if ($i == "TCPOFOQueue") at = i }' /proc/net/netstat; }
before=$(out_of_order)
transfer "every 5th packet after the next one" "33554432 bytes, .* 0 linear bytes" reorder_every 5
[ "$(out_of_order)" -gt "$before" ] || failure "all packets came in order"
echo 50 >/sys/module/wire_nic/parameters/lose_every
transfer "every 5th after the next one, and every 50th lost" "33554432 bytes, .* 0 linear bytes" reorder_every 5
echo 0 >/sys/module/wire_nic/parameters/lose_every
steered "0 rules:"

address=fd09::1
transfer "over IPv6" "33554432 bytes, .* 0 linear bytes"
steered "0 rules:"
address=10.9.0.1

# killed PORT: a receiver that waits at a port is killed.
killed() {
  /devmem_transfer receive wire0 1 $address $1 1 >/received &
  receiver=$!
  for _ in $(seq 300); do
    grep -q "the rule is ours" /received && break
    sleep 0.1
  done
  kill -9 $receiver
  wait $receiver
  steered "1 rules: 0 to queue 1" "0 0 0 0 0 0 0 0"
}
killed 5201
transfer "after a killed receiver" "33554432 bytes, .* 0 linear bytes"
steered "0 rules:"
killed 5202
transfer "after one that was killed at another port" "33554432 bytes, .* 0 linear bytes"
steered "0 rules:"

/devmem_transfer rule wire0 1 10.9.0.1 5201 || failure "an administrator adds a rule"
transfer "through an administrator's rule" "33554432 bytes, .* 0 linear bytes"
grep -q "the rule is an administrator's" /received || failure "another rule was added"
steered "1 rules: 0 to queue 1"
answer=$(/devmem_transfer receive wire0 0 10.9.0.1 5201 1) && failure "a rule leads elsewhere"
echo "$answer" | grep -q "TCPX_E_MISMATCH.*ethtool -N wire0 delete 0" || failure "no word of the rule that leads elsewhere"
/devmem_transfer remove wire0 0
steered "0 rules:"
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

# Endpoints, and what is below them, on both hosts.
export UCCL_TCPX_NETWORK=devmem UCCL_TCPX_SOFT_POOL_BYTES=4194304 NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=wire UCCL_TCPX_LOG_LEVEL=info
export UCCL_TCPX_OP_TIMEOUT_MS=60000 UCCL_TCPX_TIMEOUT_MS=60000
for layer in plugin pipeline endpoint; do
  echo "== tcpx_perf, layer $layer"
  /tcpx_perf server 0 --layer $layer >/served 2>&1 &
  server=$!
  far /tcpx_perf client $address 0 --layer $layer -b 64K -e 4M -f 8 -n 4 -w 1 >/asked 2>&1 || failure "layer $layer: the client"
  wait $server || failure "layer $layer: the server"
  grep -h "device memory" /served /asked
  grep -q "PASSED" /served || failure "layer $layer: no verdict"
  grep -q "came 23[0-9]* bytes into device memory by wire0" /served || failure "layer $layer: not into device memory"
  grep -q "sends from device memory by wire1, 0 of them copied" /asked || failure "layer $layer: not from device memory"
done
steered "0 rules:"

# endpoints NAME [WORD...]: bytes move with these words. memory: of both ends, device memory unless set.
endpoints() {
  echo "== endpoints: $1"
  shift
  /tcpx_perf server 0 --layer endpoint $memory >/served 2>&1 &
  server=$!
  far env "$@" /tcpx_perf client $address 0 --layer endpoint $memory -b 4M -n 8 -w 1 >/asked 2>&1 || { failure "the client" && tail -5 /asked; }
  wait $server || { failure "the server" && tail -5 /served; }
  grep -h "PASSED\|device memory by" /served /asked
}
for fault in "linear_bytes 100" "whole_every 7" "lose_every 50" "reorder_every 5"; do
  echo "${fault#* }" >"/sys/module/wire_nic/parameters/${fault% *}"
  endpoints "$fault"
  echo 0 >"/sys/module/wire_nic/parameters/${fault% *}"
done
echo 1 >/sys/module/wire_nic/parameters/whole_every
endpoints "all packets in host memory"
echo 0 >/sys/module/wire_nic/parameters/whole_every
for side in /served /asked; do grep -q "host memory.*proof page" $side || failure "all in host memory: $side does not say why"; done
grep -q "device memory by" /served && failure "all in host memory: the NIC is used all the same"
memory="--memory host" endpoints "host memory beside it"
grep -q "by wire0: into device memory" /served || failure "host memory: the NIC is not there"
grep -q "came 0 bytes into device memory by wire0, in 0 fragments" /served || failure "host memory goes through the NIC's"
grep -q "PASSED" /served || failure "host memory: no verdict"
UCCL_TCPX_SOFT_POOL_BYTES=1048576 endpoints "a pool of 256 pages, and 1024 of the NIC"

# A link, a queue and an interface that are taken away under load.
# loaded [WORD...]: a server and a client that transfers for long, by device memory.
loaded() {
  env "$@" /tcpx_perf server 0 --layer endpoint >/served 2>&1 &
  server=$!
  nsenter -t "$other" -n env "$@" /tcpx_perf client $address 0 --layer endpoint -b 1M --duration 3 >/asked 2>&1 &
  client=$!
  for _ in $(seq 300); do
    grep -q "connection 1" /served && return
    sleep 0.1
  done
  failure "no load"
}
# ended WHAT: within 60 s both sides have; `server_code` and `client_code` tell how.
ended() {
  for _ in $(seq 600); do
    kill -0 $server 2>/dev/null || kill -0 $client 2>/dev/null || break
    sleep 0.1
  done
  for side in $server $client; do kill -9 $side 2>/dev/null && failure "$1: a side stays"; done
  wait $server
  server_code=$?
  wait $client
  client_code=$?
}
echo "== the link goes down and comes back"
loaded
sleep 1
ip link set wire0 down && sleep 0.3 && ip link set wire0 up
ended "a link that goes down"
[ $server_code$client_code = 00 ] && grep -q PASSED /served || failure "a link that goes down: the transfer $(tail -3 /served /asked)"
grep -h "came [1-9].*device memory by" /served
echo "== a bound queue cannot be taken away"
loaded
answer=$(/devmem_transfer channels wire0 1) && failure "it can"
echo "$answer"
echo "$answer" | grep -q "errno" || failure "no word of the kernel's"
ended "a bound queue"
[ $server_code$client_code = 00 ] && grep -q PASSED /served || failure "a bound queue: the transfer $(tail -3 /served /asked)"
grep -q "came [1-9][0-9]* bytes into device memory by wire0" /served || failure "a bound queue: not into device memory"
steered "0 rules:"
/devmem_transfer channels wire0 1 || failure "one channel"
UCCL_TCPX_LOG_LEVEL=warning endpoints "without a queue to spare"
grep -q "PASSED" /served || failure "without a queue: no verdict"
[ "$(grep -c "no receive queue to spare, of 1: ethtool -L wire0 combined 2" /served)" = 1 ] || failure "without a queue: no line or several: $(cat /served)"
/devmem_transfer channels wire0 2 || failure "two channels"
steered "0 rules:"
endpoints "the queue is there again"
grep -q "came [1-9][0-9]* bytes into device memory by wire0" /served || failure "a queue again: not into device memory"

echo "== the interface is taken away"
loaded UCCL_TCPX_OP_TIMEOUT_MS=10000 UCCL_TCPX_TIMEOUT_MS=10000
sleep 1
ip link del wire0 || failure "it cannot be"
ended "no interface"
[ $server_code != 0 ] && [ $client_code != 0 ] || failure "no interface: exit codes $server_code, $client_code"
grep -h "TCPX_E_" /served /asked | sed "s/FAILED/ended/"
for side in /served /asked; do
  grep -q "TCPX_E_" $side || failure "no interface: no error in $side: $(cat $side)"
  grep -q "MISMATCH" $side && failure "no interface: wrong bytes: $(cat $side)"
done
left_files() { ls /run/tcpx-devmem | grep steering | grep -v 'lock$'; }
[ "$(left_files)" = "" ] || failure "no interface: records stay: $(left_files)"
rmmod wire_nic || failure "no interface: the module stays"
plug_in
steered "0 rules:"
endpoints "the interface is there again"
grep -q "came [1-9][0-9]* bytes into device memory by wire0" /served || failure "an interface again: not into device memory"

# Either side is killed, now and then.
kills=$(sed -n 's/.* kills=\([0-9]*\).*/\1/p' /proc/cmdline)
for i in $(seq "${kills:-6}"); do
  /tcpx_perf server 0 --layer endpoint >/served 2>&1 &
  server=$!
  nsenter -t "$other" -n /tcpx_perf client $address 0 --layer endpoint -b 1M --duration 100 >/asked 2>&1 &
  client=$!
  for _ in $(seq 300); do
    grep -q "connection 1" /served && break
    sleep 0.1
  done
  usleep $((i * 7919 % 1000000))
  if [ $((i % 2)) = 0 ]; then killed=$server left=$client; else killed=$client left=$server; fi
  kill -9 $killed
  for _ in $(seq 300); do
    kill -0 $left 2>/dev/null || break
    sleep 0.1
  done
  kill -9 $left 2>/dev/null && failure "kill $i: the other side stayed"
  wait $killed $left
done
echo "== ${kills:-6} kills"
endpoints "after kills"
# The same without privilege: a daemon of each host binds in the place of programs of another user.
chmod 666 /dev/udmabuf
mkdir -m 1777 /dev/shm
mkdir -p /etc
echo "app:x:1000:1000::/:/bin/sh" >/etc/passwd
printf '%s\n' "app:x:1000:" "devmem:x:2000:app" >/etc/group
# as_app HOST COMMAND: on the near or far host, as that user.
as_app() {
  case $1 in near) on="" ;; far) on="nsenter -t $other -n" ;; esac
  exec $on env UCCL_TCPX_DEVMEM_SOCKET=/run/tcpx-devmem/$1 su -s /bin/sh app -c "exec $2"
}
start_daemon() {
  case $1 in near) on="" ;; far) on="nsenter -t $other -n" ;; esac
  $on /tcpx_devmemd --socket /run/tcpx-devmem/$1 --group devmem --interface 'wire*' >/daemon.$1 2>&1 &
  daemon=$!
  eventually "a daemon" grep -q ready /daemon.$1
}
# eventually WHAT COMMAND...: within 30 s the command succeeds.
eventually() {
  what=$1 && shift
  for _ in $(seq 300); do
    "$@" && return
    sleep 0.1
  done
  failure "$what: not in time"
}
unprivileged() {
  echo "== $1"
  (as_app near "/tcpx_perf server 0 --layer endpoint") >/served 2>&1 &
  server=$!
  (as_app far "/tcpx_perf client $address 0 --layer endpoint -b 64K -e 1M -f 4 -n 4 -w 1") >/asked 2>&1 || failure "$1: the client"
  wait $server || failure "$1: the server"
  grep -q "PASSED" /served || failure "$1: no verdict"
  grep -h "device memory\|tcpx_devmemd" /served /asked
  grep -q "came [1-9][0-9]* bytes into device memory by wire0" /served || failure "$1: not into device memory"
}
# leave_running: a server that is led to, and its client.
leave_running() {
  (as_app near "/tcpx_perf server 0 --layer endpoint") >/served 2>&1 &
  server=$!
  (as_app far "/tcpx_perf client $address 0 --layer endpoint -b 1M -e 1M -n 1000000 -w 1") >/asked 2>&1 &
  client=$!
  eventually "a rule" led
}
led() { /devmem_transfer rules wire0 | grep -q "to queue 1"; }
undone() { [ "$(/devmem_transfer rules wire0)" = "0 rules:; RSS: 0 1 0 1 0 1 0 1; bound: 0" ]; }
(as_app near "/tcpx_perf server 0 --layer endpoint") >/served 2>&1 &
server=$!
(as_app far "/tcpx_perf client $address 0 --layer endpoint -b 64K -e 64K -n 1 -w 1") >/asked 2>&1 || failure "without a daemon: the client"
wait $server
grep -h "receives into host memory" /served | head -1
grep -q "CAP_NET_ADMIN.*tcpx_devmemd.*/run/tcpx-devmem/near" /served || failure "without a daemon it does not say both ways"
rm -r /dev/shm  # as in containers that may not write there
start_daemon far
start_daemon near
unprivileged "by tcpx_devmemd"
eventually "undone after the end" undone
leave_running
kill -9 $server
wait $server
eventually "a killed client's" undone
kill -9 $client
wait $client
unprivileged "by tcpx_devmemd, after a killed client"
leave_running
kill -9 $daemon
wait $daemon
led || failure "a killed daemon leaves no rule"
start_daemon near
steered "0 rules:"
kill -9 $server $client
wait $server $client
unprivileged "by tcpx_devmemd, after one that was killed"
cat /daemon.near
grep -q "user 1000 gives back queue 1 of wire0" /daemon.near || failure "the daemon does not say what ends"

# The daemon is killed, now and then, while clients connect, transfer and close.
daemon_kills=$(sed -n 's/.* daemon_kills=\([0-9]*\).*/\1/p' /proc/cmdline)
open_files() { ls /proc/$daemon/fd | wc -l; }
# clients: pairs of them, until there is a file /stop; how they ended is in /ended, a line each. A connection whose queue is taken
# away may end, but not with wrong bytes, and not in silence.
clients() {
  while [ ! -e /stop ]; do
    (as_app near "/tcpx_perf server 0 --layer endpoint") >/loop.served 2>&1 &
    server=$!
    (as_app far "/tcpx_perf client $address 0 --layer endpoint -b 64K -e 256K -f 4 -n 2 -w 1") >/loop.asked 2>&1
    asked=$?
    wait $server
    served=$?
    echo "$asked $served $(grep -c "PASSED" /loop.served) $(grep -c "came [1-9][0-9]* bytes into device memory by wire0" /loop.served)" >>/ended
    if [ $asked$served = 00 ] && grep -q PASSED /loop.served; then continue; fi
    grep -h "TCPX_E_" /loop.served /loop.asked | tail -1 >>/errors
    if grep -h "MISMATCH" /loop.served /loop.asked >>/wrong || ! grep -q "TCPX_E_" /loop.served /loop.asked; then
      cat /loop.served /loop.asked >>/wrong
    fi
  done
}
files=$(open_files)
: >/ended >/errors >/wrong
clients &
loop=$!
for i in $(seq "${daemon_kills:-6}"); do
  # Now and then while one certainly moves bytes, else wherever it is.
  if [ $((i % 3)) = 1 ]; then eventually "a rule, before kill $i of the daemon" led; fi
  usleep $((i * 7919 % 500000))
  kill -9 $daemon
  wait $daemon
  start_daemon near
done
by_device() { grep -q "^0 0 1 [1-9]" /ended; }
eventually "a pair by device memory, among the kills of the daemon" by_device
touch /stop
wait $loop
echo "== ${daemon_kills:-6} kills of the daemon: $(wc -l </ended) pairs of clients, of which $(grep -c "^0 0 1" /ended) passed, $(grep -c "^0 0 1 [1-9]" /ended) by device memory, and $(wc -l </errors) ended with an error; files open: $files before, $(open_files) after"
sort /errors | uniq -c | sort -rn | head -5
[ -s /wrong ] && failure "while the daemon is killed: $(head -20 /wrong)"
unprivileged "by tcpx_devmemd, after its kills"
eventually "undone after the daemon's kills" undone
[ "$(left_files)" = "" ] || failure "records stay: $(left_files)"
[ "$(open_files)" -le "$files" ] || failure "descriptors stay: $(ls -l /proc/$daemon/fd)"

kill $daemon
wait $daemon || failure "a daemon ends badly"
[ -e /run/tcpx-devmem/near ] && failure "a daemon leaves its socket"
steered "0 rules:"

# The suite of the software plugin, both ends of which are one process: what it sends to itself goes to the other host and comes back.
# Each case runs once: over the linked table or over that of the library's file. Tables of newer versions translate calls above the
# network and know nothing of device memory; the tests outside this machine run all cases over each of them.
suite=$(sed -n 's/.* suite=\([^ ]*\).*/\1/p' /proc/cmdline)
: "${suite:=*SoftConformance.*/linked:*SoftTable.*/file:SoftVersion11.*}"
echo "== conformance"
for conf in all wire0; do echo 1 >/proc/sys/net/ipv4/conf/$conf/accept_local; echo 0 >/proc/sys/net/ipv4/conf/$conf/rp_filter; done
far sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; for conf in all wire1; do echo 0 >/proc/sys/net/ipv4/conf/$conf/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/$conf/send_redirects; done'
ip rule add pref 10 lookup local
ip rule add pref 5 iif lo to 10.9.0.1 lookup 100
ip rule del pref 0
ip route add 10.9.0.1 via 10.9.0.2 dev wire0 table 100
export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME==wire0 NCCL_GPUDIRECTTCPX_SOCKET_FAMILY=AF_INET
cd / && /test_soft_abi --gtest_brief=1 --gtest_filter="$suite" >/suite 2>&1 || failure "conformance"
tail -30 /suite
grep -q "PASSED.* [1-9][0-9]* test" /suite || failure "conformance: no case ran"
steered "0 rules:"

taken() { grep ^Tcp: | tail -1 | cut -d" " -f7; }
echo "== TCP connections taken: $(cat /proc/net/snmp | taken) on this host, $(far cat /proc/net/snmp | taken) on the other"
kill $other
rmmod wire_nic || failure "the module cannot be removed"
dmesg | grep -E 'WARNING:|BUG:|Oops|stalled pool' && failure "the kernel complains"
if [ $failed = 0 ]; then echo "virtual machine: passed"; fi
poweroff -f
