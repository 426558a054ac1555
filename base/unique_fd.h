// Owners of file descriptors: UniqueFd for a descriptor that only this process uses, ForeignFd for one whose file another process
// controls.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/fork.h"

namespace tcpx {

/// Owns a descriptor; movable. @tparam Close closes a valid descriptor
template <void (*Close)(int)>
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    keep_in_child(fd_);
    return std::exchange(fd_, -1);
  }
  void reset() {
    if (fd_ >= 0) Close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

inline void close_here(int fd) {
  keep_in_child(fd);
  ::close(fd);
}

/// Closes the descriptor on a thread for which nobody waits (base/foreign_fd.cc).
void close_elsewhere(int fd);

using UniqueFd = OwnedFd<close_here>;

/// A descriptor that another process has passed, or a Unix socket, in which passed descriptors may wait unread. The other process
/// decides how long its last close takes: a TCP socket with unsent data and SO_LINGER can block the closing thread for an hour, a
/// file of FUSE forever. So it is closed on another thread. No other call whose answer comes from the file itself, such as fstat,
/// may be made on it.
using ForeignFd = OwnedFd<close_elsewhere>;

/// True while all threads that close foreign descriptors have been blocked for a while. Callers then take no more foreign
/// descriptors from any process, so that the number of blocked ones stays bounded.
bool foreign_closes_hang();

}  // namespace tcpx
