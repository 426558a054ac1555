// Owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/fork.h"

namespace tcpx {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    keep_in_child(fd_);
    return std::exchange(fd_, -1);
  }
  void reset() {
    if (fd_ < 0) return;
    keep_in_child(fd_);
    ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace tcpx
