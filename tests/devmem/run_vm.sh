#!/usr/bin/env bash
# run_vm.sh DEVMEM_TRANSFER TCPX_PERF TEST_SOFT_ABI TCPX_DEVMEMD PLUGIN: device-memory TCP over a kernel and NICs that can: a virtual
# machine with a NIC of our own (nic/), in which guest_init.sh runs these programs. The plugin stays where it is. Emulated: not everything
# that looks like KVM is able to run a kernel.
#
# DEVMEM_KILLS: how often a side is killed (default 6); DEVMEM_DAEMON_KILLS: how often the daemon is (default 6); DEVMEM_SECONDS: for which the machine may run (default 650);
# DEVMEM_SUITE: which cases of TEST_SOFT_ABI run, a filter of GoogleTest (default: each case once; '*' takes three times as long).
#
# Its system is that of scripts/install_deps.sh --vm. This takes root, which enters its system; exit code 77 when there is none.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)/build/devmem-vm
programs=("${@:1:4}") plugin=$5
skip() { echo "SKIPPED: $*" && exit 77; }
[[ $(id -u) -eq 0 ]] || skip "this takes root"
[[ -s $root/kernel ]] || skip "there is no virtual machine: scripts/install_deps.sh --vm makes one"
unshare --mount true 2>/dev/null || skip "this machine makes no mount namespaces"
kernel=$(<"$root/kernel")
work=$(mktemp -d "$root/run.XXXXXX")
trap 'rm -rf "$work"' EXIT

# inside COMMAND...: in the machine's system, whose mounts end with it. It sees those devices alone that a build needs, and cannot remove
# them from this machine.
inside() {
  unshare --mount bash -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev" || exit
    for node in null zero random urandom; do
      : >"$1/dev/$node" && mount --bind "/dev/$node" "$1/dev/$node" || exit
    done
    exec chroot "$@"' _ "$root" "$@"
}
mkdir -p "$root"/{proc,dev}
guest=$work/guest inside_work=/${work##*/}
mkdir -p "$work/nic" "$guest"/{bin,proc,sys,dev}
cp "$here"/nic/* "$work/nic"
inside make -s -C "/usr/src/linux-headers-$kernel" "M=$inside_work/nic" modules
cp "$work/nic/wire_nic.ko" "$guest"
cp "$root/usr/bin/busybox" "$guest/bin"
ln -s busybox "$guest/bin/sh"
cp "$here/guest_init.sh" "$guest/init"
for program in "${programs[@]}"; do cp "$program" "$guest"; done
cp --parents "$plugin" "$guest"
ldd "${programs[@]}" "$plugin" | grep '(0x' | grep -o '/[^ ]*' | sort -u | xargs -I{} cp -L --parents {} "$guest"
inside sh -c "cd $inside_work/guest && find . | busybox cpio -o -H newc 2>/dev/null >../initrd"
cp "$root"/usr/lib/modules/"$kernel"/vmlinuz "$work" 2>/dev/null || cp "$root/boot/vmlinuz-$kernel" "$work/vmlinuz"

inside timeout "${DEVMEM_SECONDS:-650}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 768 -nodefaults -display none \
  -no-reboot -serial stdio -kernel "$inside_work/vmlinuz" -initrd "$inside_work/initrd" -append "console=ttyS0 quiet panic=-1 kills=${DEVMEM_KILLS:-6} daemon_kills=${DEVMEM_DAEMON_KILLS:-6} suite=${DEVMEM_SUITE:-}" </dev/null |
  tee "$work/console" || true
grep -q '^virtual machine: passed' "$work/console"
