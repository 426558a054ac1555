// Test data whose every byte depends on its position and a seed, and the check that names the first byte that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/pattern_word.h"
#include "tcpx/status.h"

namespace tcpx {

/// Fills `bytes` with the pattern of `seed`, starting at position `offset` of an endless stream: two buffers filled with parts of
/// one stream can be compared with the whole.
void fill_pattern(std::span<std::byte> bytes, uint64_t seed, uint64_t offset = 0);

/// Compares all of `bytes` with the same part of the stream.
PatternCheck check_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset = 0);

/// The same as a Status: kMismatch naming the first wrong position, the expected and the found byte, and how many differ.
Status verify_pattern(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset = 0);

/// "48 65 6c 6c 6f ..." of at most `limit` bytes, and the printable characters behind them.
std::string hex_preview(std::span<const std::byte> bytes, size_t limit = 32);

}  // namespace tcpx
