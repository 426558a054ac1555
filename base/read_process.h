// Reads and writes the memory of another process with the rights of the user who may trace it, and without privileges.
#pragma once

#include <linux/capability.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

namespace tcpx {

/// The thread that makes it has no CAP_SYS_PTRACE as long as it lives; destroy it on that thread. To take the right away and give it back
/// costs 5 us, so a thread does that once for several calls of the functions below.
class WithoutTracingRight {
 public:
  WithoutTracingRight();
  ~WithoutTracingRight();
  WithoutTracingRight(const WithoutTracingRight&) = delete;
  WithoutTracingRight& operator=(const WithoutTracingRight&) = delete;
  /// The thread does not get it back, which saves taking it away ever again. Other threads keep theirs.
  void for_good() { given_up_ = false; }

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets_{};
  bool given_up_ = false;
};

/// Like process_vm_readv(2), but without CAP_SYS_PTRACE; the calling thread has the capability again afterwards. With the
/// capability it could read a process that was a peer of the same user and has since started another user's program (a process
/// keeps its number and pidfd across exec).
/// @return bytes copied; -1 with errno
ssize_t read_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from);

/// Writes into the memory of another process, like process_vm_writev(2). Otherwise as read_process.
ssize_t write_process(pid_t process, std::span<const iovec> to, std::span<const iovec> from);

/// True when the kernel would let another process read these pages of this process. It refuses pages that a driver has mapped.
bool can_be_read(const void* data, size_t bytes);

}  // namespace tcpx
