// Bytes and connection handles as hexadecimal text, for a line of text.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tcpx/types.h"

namespace tcpx::testing {

inline std::string to_hex_text(const void* data, size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const uint8_t byte = static_cast<const uint8_t*>(data)[i];
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// Characters that are not hexadecimal digits count as 0.
inline std::vector<uint8_t> from_hex_text(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

inline std::string to_hex(const Handle& handle) {
  return to_hex_text(handle.bytes.data(), kHandleBytes);
}

/// nullopt when the text has not the length of a handle's.
inline std::optional<Handle> handle_from_hex(const std::string& text) {
  if (text.size() != 2 * kHandleBytes) return std::nullopt;
  Handle handle;
  std::memcpy(handle.bytes.data(), from_hex_text(text).data(), kHandleBytes);
  return handle;
}

}  // namespace tcpx::testing
