#include "measure/pattern.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored as they are");

std::byte byte_at(uint64_t seed, uint64_t position) {
  return static_cast<std::byte>(pattern_word(seed, position / 8) >> (8 * (position % 8)));
}

/// Adds to `check` what differs in `bytes`, which lie at `at` in the data and at `position` in the stream.
void check_bytes(std::span<const std::byte> bytes, size_t at, uint64_t seed, uint64_t position, PatternCheck& check) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == byte_at(seed, position + i)) continue;
    if (check.wrong++ == 0) check.first_wrong = at + i;
  }
}

constexpr size_t kBlockBytes = 512;
// The arithmetic of a word hides what the processor would need to see far enough ahead by itself: with this, reading memory that
// is in no cache goes about three times as fast.
constexpr size_t kPrefetchBytes = 2048;

void prefetch(std::span<const std::byte> bytes) {
  constexpr size_t kLineBytes = 64;
  for (size_t i = 0; i < std::min(kBlockBytes, bytes.size()); i += kLineBytes) __builtin_prefetch(bytes.data() + i);
}

/// @param bytes whole words of the stream, the first of them `first_word`
bool is_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t first_word) {
  for (size_t i = 0; i < bytes.size() / kPatternWordBytes; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * kPatternWordBytes, kPatternWordBytes);
    if (word != pattern_word(seed, first_word + i)) return false;
  }
  return true;
}

/// Bytes from `offset` to the next whole word of the stream.
size_t bytes_to_word(uint64_t offset, size_t most) {
  return std::min<size_t>(most, (kPatternWordBytes - offset % kPatternWordBytes) % kPatternWordBytes);
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, uint64_t seed, uint64_t offset) {
  const size_t head = bytes_to_word(offset, bytes.size());
  for (size_t i = 0; i < head; ++i) bytes[i] = byte_at(seed, offset + i);
  const uint64_t first_word = (offset + head) / kPatternWordBytes;
  const size_t words = (bytes.size() - head) / kPatternWordBytes;
  std::byte* data = bytes.data() + head;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = pattern_word(seed, first_word + i);
    std::memcpy(data + i * kPatternWordBytes, &word, kPatternWordBytes);
  }
  for (size_t i = head + words * kPatternWordBytes; i < bytes.size(); ++i) bytes[i] = byte_at(seed, offset + i);
}

PatternCheck check_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset) {
  PatternCheck check;
  const size_t head = bytes_to_word(offset, bytes.size());
  check_bytes(bytes.first(head), 0, seed, offset, check);
  size_t at = head;
  while (bytes.size() - at >= kPatternWordBytes) {
    const size_t block = std::min(kBlockBytes, (bytes.size() - at) / kPatternWordBytes * kPatternWordBytes);
    prefetch(bytes.subspan(std::min(at + kPrefetchBytes, bytes.size())));
    if (!is_pattern(bytes.subspan(at, block), seed, (offset + at) / kPatternWordBytes)) {
      check_bytes(bytes.subspan(at, block), at, seed, offset + at, check);
    }
    at += block;
  }
  check_bytes(bytes.subspan(at), at, seed, offset + at, check);
  return check;
}

Status verify_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset) {
  const auto [wrong, first] = check_pattern(bytes, seed, offset);
  if (wrong == 0) return Status::ok();
  return Status(
      Code::kMismatch, "verify data",
      concat(wrong, " of ", bytes.size(), " bytes differ, the first at ", first, ": expected ",
             Hex{static_cast<uint64_t>(byte_at(seed, offset + first))}, ", found ", Hex{static_cast<uint64_t>(bytes[first])},
             "; received pages that were overwritten look like this", name_in_detail(Hint::kConsumedEarly)));
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
