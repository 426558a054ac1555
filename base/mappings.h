// Mappings: what this process may do with host memory, as the kernel reports it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tcpx {

/// Access to a range of memory. kNone: some byte is not mapped, or may not be read.
enum class HostAccess : uint8_t { kNone, kRead, kReadWrite };

/// Tells what the process may do with every byte of the range now. Opens /proc/self/maps and asks about each mapping of the range, in
/// 10 us. Before Linux 6.11 it reads the file from its beginning up to the range. That takes 0.3 us for each anonymous mapping below
/// the range and 0.8 us for each mapped file, so up to 5 ms in a process with many mappings: too slow to call for each message.
/// @return nullopt: the system does not report it
std::optional<HostAccess> host_access(const void* data, size_t bytes);

/// Bytes from `address` to the end of its mapping, at the same cost. @return nullopt: nothing is mapped there, or it is unknown
std::optional<uint64_t> mapped_bytes(const void* address);

}  // namespace tcpx
