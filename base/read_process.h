// Reading the memory of another process, as a user who may trace it and with no more rights than that.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

namespace tcpx {

/// As process_vm_readv(2), but without CAP_SYS_PTRACE, which the calling thread has again afterwards: with it a process is read that
/// was a peer of this user and has started a program of another one since (number and pidfd of a process survive exec).
/// @return bytes copied; -1 with errno
ssize_t read_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from);

/// The calling thread goes without that right for good, which saves giving it up for each call. Its process keeps it.
void forgo_tracing_right();

}  // namespace tcpx
