// The system calls of a socket with device memory, behind one seam: no machine without such a NIC can make these answers.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

namespace tcpx::devmem {

/// As the functions of these names: -1 with errno for an error.
class SocketCalls {
 public:
  virtual ~SocketCalls() = default;
  virtual ssize_t recvmsg(int fd, msghdr& message, int flags) = 0;
  virtual ssize_t sendmsg(int fd, const msghdr& message, int flags) = 0;
  virtual int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) = 0;

  /// This machine's.
  static SocketCalls& real();
};

}  // namespace tcpx::devmem
