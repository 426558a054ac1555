#include "net/devmem/socket_calls.h"

namespace tcpx::devmem {
namespace {

class RealSocketCalls final : public SocketCalls {
 public:
  ssize_t recvmsg(int fd, msghdr& message, int flags) override { return ::recvmsg(fd, &message, flags); }
  ssize_t sendmsg(int fd, const msghdr& message, int flags) override { return ::sendmsg(fd, &message, flags); }
  int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) override {
    return ::setsockopt(fd, level, name, value, bytes);
  }
};

}  // namespace

SocketCalls& SocketCalls::real() {
  static RealSocketCalls calls;
  return calls;
}

}  // namespace tcpx::devmem
