// Cuts numbers off the front of a fuzzer's input, and the assertion that stays on in every build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace tcpx::fuzz {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  /// The next sizeof(T) bytes; missing ones at the end read as zero.
  template <class T>
  T take() {
    T value{};
    const size_t bytes = std::min(sizeof value, rest_.size());
    if (bytes > 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  /// The next `count` bytes, or what is left of them.
  std::span<const std::byte> take_bytes(size_t count) {
    const auto bytes = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  std::span<const std::byte> rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace tcpx::fuzz

#define FUZZ_REQUIRE(condition)                                                      \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)
