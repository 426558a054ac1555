// Memory that a test takes away, or makes one that may only be read: a touch, or a write, afterwards ends the process.
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
  void take_away() { take_away(span()); }
  /// Whole pages of it.
  static void take_away(std::span<std::byte> pages) { protect(pages, PROT_NONE); }
  static void make_read_only(std::span<std::byte> pages) { protect(pages, PROT_READ); }
  static void make_writable(std::span<std::byte> pages) { protect(pages, PROT_READ | PROT_WRITE); }
  std::span<std::byte> span() { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  static void protect(std::span<std::byte> pages, int rights) { EXPECT_EQ(::mprotect(pages.data(), pages.size(), rights), 0); }

  const size_t bytes_;
  void* const data_;
};

}  // namespace tcpx::testing
