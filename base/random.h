// Random numbers that nobody can guess: ids that grant something, cookies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

/// Fills `bytes` from the kernel's generator (getrandom(2)). Knowing any number of them tells nothing about others.
/// @return kSystem, and then `bytes` are not to be used
Status fill_random(std::span<std::byte> bytes);

/// One such number, never 0.
Result<uint64_t> random_id();

}  // namespace tcpx
