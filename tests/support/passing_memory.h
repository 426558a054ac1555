// Memory of a file that goes away in one of the ways in which a user's memory does.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "base/unique_fd.h"

namespace tcpx::testing {

enum class MemoryEnd { kTruncated, kForbidden, kUnmapped };
inline constexpr MemoryEnd kMemoryEnds[] = {MemoryEnd::kTruncated, MemoryEnd::kForbidden, MemoryEnd::kUnmapped};

inline const char* name_of(MemoryEnd end) {
  switch (end) {
    case MemoryEnd::kTruncated:
      return "Truncated";
    case MemoryEnd::kForbidden:
      return "Forbidden";
    case MemoryEnd::kUnmapped:
      return "Unmapped";
  }
  return "";
}

/// Full of ones.
class PassingMemory {
 public:
  explicit PassingMemory(size_t bytes) : bytes_(bytes), file_(::memfd_create("passing", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(bytes)), 0);
    // Far from where the kernel puts other mappings, one of which would take the place of this one when it is gone.
    auto* const near = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    (void)::munmap(near, bytes);
    void* const data = ::mmap(near - (size_t{64} << 30), bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(data, MAP_FAILED);
    data_ = static_cast<std::byte*>(data);
    for (size_t at = 0; at < bytes; ++at) data_[at] = std::byte{1};
  }
  ~PassingMemory() { (void)::munmap(data_, bytes_); }
  PassingMemory(const PassingMemory&) = delete;
  PassingMemory& operator=(const PassingMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void go(MemoryEnd end) {
    if (end == MemoryEnd::kTruncated) {
      EXPECT_EQ(::ftruncate(file_.get(), 0), 0);
    }
    if (end == MemoryEnd::kForbidden) {
      EXPECT_EQ(::mprotect(data_, bytes_, PROT_NONE), 0);
    }
    if (end == MemoryEnd::kUnmapped) {
      EXPECT_EQ(::munmap(data_, bytes_), 0);
    }
  }

 private:
  const size_t bytes_;
  const UniqueFd file_;
  std::byte* data_ = nullptr;
};

}  // namespace tcpx::testing
