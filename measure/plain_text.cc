#include "measure/plain_text.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace tcpx {
namespace {

struct Decoded {
  size_t length = 0;  ///< 0: not UTF-8
  uint32_t value = 0;
};

Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t length = (lead & 0xe0) == 0xc0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : (lead & 0xf8) == 0xf0 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  uint32_t value = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[length] || surrogate || value > 0x10ffff) return {};
  return {length, value};
}

bool is_control(uint32_t value) {
  // XML 1.0 knows no U+FFFE and U+FFFF either.
  return value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0xfffe || value == 0xffff;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const Decoded decoded = decode(text);
    if (decoded.length == 0 || is_control(decoded.value)) return false;
    text.remove_prefix(decoded.length);
  }
  return true;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  size_t used = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const size_t word_width = display_width(word);
    if (lines.empty() || used + 1 + word_width > width) {
      lines.emplace_back(word);
      used = word_width;
    } else {
      lines.back().append(" ").append(word);
      used += 1 + word_width;
    }
  }
  return lines;
}

std::string format_fixed(double value, int decimals) {
  assert(std::abs(value) < 1e15 && decimals >= 0 && decimals <= 15);
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, decimals).ptr;
  std::string text(digits.data(), end);
  if (text.starts_with('-') && text.find_first_of("123456789") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t best = 0;
  for (size_t i = 1; i < kUnits.size(); ++i) {
    const double in_unit = std::ldexp(bytes, -10 * static_cast<int>(i));
    if (in_unit >= 1 && in_unit * 100 == std::floor(in_unit * 100)) best = i;
  }
  std::string text = format_fixed(std::ldexp(bytes, -10 * static_cast<int>(best)), 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " " + kUnits[best];
}

std::string format_measured(double value) {
  assert(std::isfinite(value));
  const double size = std::abs(value);
  if (size != 0 && (size < 0.001 || size >= 1e15)) {
    std::array<char, 40> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::scientific, 2).ptr;
    return {digits.data(), end};
  }
  return format_fixed(value, size == 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

}  // namespace tcpx
