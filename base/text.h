// Builds messages from parts. Light to compile, because every file that reports an error includes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace tcpx {

/// An integer to be written as 0x...
struct Hex {
  uint64_t value;
};

namespace internal {
inline void append_hex(std::string& out, uint64_t value) {
  char digits[16];
  int n = 0;
  do digits[n++] = "0123456789abcdef"[value & 15];
  while ((value >>= 4) != 0);
  out.append("0x");
  while (n > 0) out.push_back(digits[--n]);
}

template <class T>
void append(std::string& out, const T& part) {
  if constexpr (std::is_same_v<T, bool>) {
    out.append(part ? "true" : "false");
  } else if constexpr (std::is_same_v<T, char>) {
    out.push_back(part);
  } else if constexpr (std::is_same_v<T, Hex>) {
    append_hex(out, part.value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    out.append(std::to_string(part));
  } else {
    out.append(std::string_view(part));
  }
}
}  // namespace internal

/// concat("sent ", 3, " of ", n) -> "sent 3 of 7"
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (internal::append(out, parts), ...);
  return out;
}

}  // namespace tcpx
