// Owners of a file descriptor: UniqueFd of one that is this process' own, ForeignFd of one that another process has a hand in.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/fork.h"

namespace tcpx {

/// @tparam Close closes a number that is valid
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

/// Closes it on a thread that nobody waits for (base/foreign_fd.cc).
void close_elsewhere(int fd);

using UniqueFd = OwnedFd<close_here>;

/// A descriptor that another process has passed, or a Unix socket, in which some may wait unread. Its last close takes as long as
/// that process likes: a TCP socket with unsent data and SO_LINGER holds up its closer for an hour, a file of FUSE for ever. So it is
/// closed elsewhere, and nothing else is asked of it that the file behind it answers (fstat is).
using ForeignFd = OwnedFd<close_elsewhere>;

/// True while all threads that close foreign descriptors have been held up for a while. Who would take more of them, of anybody,
/// does without: what can be held that way stays bounded.
bool foreign_closes_hang();

}  // namespace tcpx
