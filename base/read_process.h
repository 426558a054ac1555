// Reads and writes the memory of another process with the rights of the user who may trace it, and without privileges.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace tcpx {

/// Like process_vm_readv(2), but without CAP_SYS_PTRACE; the calling thread has the capability again afterwards. With the
/// capability it could read a process that was a peer of the same user and has since started another user's program (a process
/// keeps its number and pidfd across exec).
/// @return bytes copied; -1 with errno
ssize_t read_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from);

/// Writes into the memory of another process, like process_vm_writev(2). Otherwise as read_process.
ssize_t write_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from);

/// True when the kernel would let another process read these pages of this process. It refuses pages that a driver has mapped.
bool can_be_read(const void* data, size_t bytes);

/// Drops CAP_SYS_PTRACE for the calling thread for good, which saves dropping it in each call. Other threads keep it.
void forgo_tracing_right();

}  // namespace tcpx
