// Memory that a test takes away: a touch of it afterwards ends the process.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <span>

namespace tcpx::testing {

class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes), data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Mapping() { EXPECT_EQ(::munmap(data_, bytes_), 0); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// It stays mapped, so that nothing else comes to its place.
  void take_away() { EXPECT_EQ(::mprotect(data_, bytes_, PROT_NONE), 0); }
  std::span<std::byte> span() { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  const size_t bytes_;
  void* const data_;
};

}  // namespace tcpx::testing
