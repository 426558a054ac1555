#include "perf/pattern.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/text.h"

namespace tcpx {
namespace {

// One 64-bit word of the stream: the finaliser of SplitMix64 (Steele, Lea, Flood 2014), so that a byte out of place, a repeated
// page or a page of another seed cannot look right.
uint64_t word_at(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15u + (index + 1) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::byte byte_at(uint64_t seed, uint64_t position) {
  return static_cast<std::byte>(word_at(seed, position / 8) >> (8 * (position % 8)));
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, uint64_t seed, uint64_t offset) {
  size_t i = 0;
  for (; i < bytes.size() && (offset + i) % 8 != 0; ++i) bytes[i] = byte_at(seed, offset + i);
  for (; bytes.size() - i >= 8; i += 8) {
    const uint64_t word = word_at(seed, (offset + i) / 8);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = byte_at(seed, offset + i);
}

Status verify_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset) {
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == byte_at(seed, offset + i)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return Status::ok();
  return Status(
      Code::kMismatch, "verify data",
      concat(wrong, " of ", bytes.size(), " bytes differ, the first at ", first, ": expected ",
             Hex{static_cast<uint64_t>(byte_at(seed, offset + first))}, ", found ", Hex{static_cast<uint64_t>(bytes[first])}));
}

std::string hex_preview(std::span<const std::byte> bytes, size_t limit) {
  static const char* digits = "0123456789abcdef";
  std::string hex, text;
  for (const std::byte b : bytes.first(std::min(limit, bytes.size()))) {
    const auto value = static_cast<unsigned char>(b);
    hex.append({digits[value >> 4], digits[value & 15], ' '});
    text.push_back(std::isprint(value) != 0 ? static_cast<char>(value) : '.');
  }
  return concat(hex, bytes.size() > limit ? "... " : "", "|", text, "|");
}

}  // namespace tcpx
