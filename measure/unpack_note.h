// A note for people who measured two ways to unpack and use the slower one.
#pragma once

#include <string>
#include <string_view>

namespace tcpx {

/// One way to unpack and how fast it was, in GB/s.
struct UnpackRate {
  std::string_view name;  ///< "kernel", "d2d", ...
  double gb_per_second = 0;
};

/// "64 MiB: unpack kernel 9.10 GB/s, d2d 12.3 GB/s (TCPX_H_UNPACK_SLOW). ..." when `used` is slower than `other` by more than a
/// tenth, which two runs of one kind rarely differ by; else "".
/// @param what was moved
std::string unpack_note(std::string_view what, const UnpackRate& used, const UnpackRate& other);

}  // namespace tcpx
