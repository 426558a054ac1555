// Sizes that tests multiply.
#pragma once

#include <cstddef>

namespace tcpx::testing {

inline constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

}  // namespace tcpx::testing
