// A connection handle as a line of text, for the standard streams of processes.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "tcpx/types.h"

namespace tcpx::testing {

inline std::string to_hex(const Handle& handle) {
  std::string text;
  for (const std::byte byte : handle.bytes) {
    text += "0123456789abcdef"[static_cast<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

/// nullopt when the text is not that of a whole handle.
inline std::optional<Handle> handle_from_hex(const std::string& text) {
  Handle handle;
  if (text.size() != 2 * kHandleBytes) return std::nullopt;
  for (size_t i = 0; i < kHandleBytes; ++i) {
    unsigned value = 0;
    if (std::sscanf(text.c_str() + 2 * i, "%2x", &value) != 1) return std::nullopt;
    handle.bytes[i] = static_cast<std::byte>(value);
  }
  return handle;
}

}  // namespace tcpx::testing
