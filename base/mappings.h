// What this process may do with host memory, as its page tables' owner, the kernel, tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tcpx {

/// kNone: some byte is not there, or may not be read.
enum class HostAccess : uint8_t { kNone, kRead, kReadWrite };

/// What the process may do with every byte of the range now. Reads /proc/self/maps from its beginning to the range: 0.3 us for each
/// mapping of memory below it and 0.8 us for each of a file, so 5 ms for a process that has mapped much. Not for each message.
/// @return nullopt: the system does not tell
std::optional<HostAccess> host_access(const void* data, size_t bytes);

/// Bytes from `address` to the end of the mapping it lies in, at the same cost. @return nullopt: nothing is mapped there, or unknown
std::optional<uint64_t> mapped_bytes(const void* address);

}  // namespace tcpx
