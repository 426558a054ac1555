// Memory that holds one byte or one word all over. Test code is not optimised, and a loop over its bytes is slow under a checker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tcpx::testing {

/// Each byte equals the one that far behind it.
inline bool repeats(std::span<const std::byte> bytes, size_t distance) {
  return bytes.size() <= distance || std::memcmp(bytes.data(), bytes.data() + distance, bytes.size() - distance) == 0;
}
inline bool all_are(std::span<const std::byte> bytes, std::byte byte) {
  return bytes.empty() || (bytes[0] == byte && repeats(bytes, 1));
}
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline void fill_words(std::span<std::byte> bytes, uint64_t word) {
  std::memcpy(bytes.data(), &word, sizeof word);
  for (size_t done = sizeof word; done < bytes.size(); done *= 2)
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
}
/// The value of every word. @return ~0: there are several
inline uint64_t only_word(std::span<const std::byte> bytes) {
  uint64_t first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  return repeats(bytes, sizeof first) ? first : ~uint64_t{0};
}

}  // namespace tcpx::testing
