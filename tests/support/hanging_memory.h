// Memory that does not answer: whoever touches it stands still until the test lets go of it. Its first and last pages do answer.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/unique_fd.h"

namespace tcpx::testing {

class HangingMemory {
 public:
  /// @param bytes whole pages, at least three. Hangs at once, if it `can_hang`.
  explicit HangingMemory(size_t bytes) : bytes_(bytes) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data, MAP_FAILED);
    data_ = static_cast<std::byte*>(data);
    EXPECT_EQ(::madvise(data, bytes, MADV_NOHUGEPAGE), 0);
    data_[0] = data_[bytes - 1] = std::byte{1};
    hang();
  }
  ~HangingMemory() {
    release();
    (void)::munmap(data_, bytes_);
  }
  HangingMemory(const HangingMemory&) = delete;
  HangingMemory& operator=(const HangingMemory&) = delete;

  bool hangs() const { return static_cast<bool>(faults_); }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  /// From now on it is ordinary memory, full of zeros where nobody has written. Who stood still goes on.
  void release() { faults_.reset(); }

 private:
  // Also for faults of the kernel, which root alone may ask for.
  void hang() {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register inner{.range = {.start = reinterpret_cast<uintptr_t>(data_) + page, .len = bytes_ - 2 * page},
                          .mode = UFFDIO_REGISTER_MODE_MISSING,
                          .ioctls = 0};
    if (faults && ::ioctl(faults.get(), UFFDIO_API, &api) == 0 && ::ioctl(faults.get(), UFFDIO_REGISTER, &inner) == 0)
      faults_ = std::move(faults);
  }

  const size_t bytes_;
  std::byte* data_ = nullptr;
  UniqueFd faults_;
};

}  // namespace tcpx::testing

/// Of a test.
#define TCPX_NEEDS_HANGING(memory) \
  if (!(memory).hangs()) GTEST_SKIP() << "userfaultfd is refused: " << std::strerror(errno)
