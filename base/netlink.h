// Questions to the kernel over netlink(7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return Bytes(bytes.begin(), bytes.end());
}
/// nullopt when `bytes` are not as many as a T has.
template <class T>
std::optional<T> value_of(std::span<const std::byte> bytes) {
  T value;
  if (bytes.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// With padding behind it.
void append_attribute(Bytes& out, uint16_t type, std::span<const std::byte> payload);
/// Payload of the first attribute `type`. nullopt when there is none before the end or before one that is malformed.
std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes, uint16_t type);
/// Everything behind a message's header, bounded by its own length. An error that the kernel reports; kProtocol when `datagram`
/// is no answer to message number `sequence`.
Result<std::span<const std::byte>> netlink_payload(std::span<const std::byte> datagram, uint32_t sequence);

/// Sends one message and returns the payload of its answer. Takes a second at most.
/// @param protocol NETLINK_...
Result<Bytes> ask_netlink(int protocol, uint16_t type, std::span<const std::byte> payload);

}  // namespace tcpx
