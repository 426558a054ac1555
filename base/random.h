// Unpredictable random numbers, for ids that grant access and for cookies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

/// Fills `bytes` from the kernel's generator (getrandom(2)). Knowing some of the bytes reveals nothing about the others.
/// @return kSystem; the caller must not use `bytes` then
Status fill_random(std::span<std::byte> bytes);

/// One unpredictable number, never 0.
Result<uint64_t> random_id();

}  // namespace tcpx
