// Unpredictable random numbers: ids that grant access, cookies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

/// Fills `bytes` from the kernel's generator (getrandom(2)). Any number of them reveals nothing about the others.
/// @return kSystem; `bytes` must not be used then
Status fill_random(std::span<std::byte> bytes);

/// One unpredictable number, never 0.
Result<uint64_t> random_id();

}  // namespace tcpx
