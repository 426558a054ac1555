// Requests to the kernel over netlink(7).
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
/// Reads a T. nullopt when `bytes` does not have the size of a T.
template <class T>
std::optional<T> value_of(std::span<const std::byte> bytes) {
  T value;
  if (bytes.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Appends an attribute, with the padding that follows it.
void append_attribute(Bytes& out, uint16_t type, std::span<const std::byte> payload);
/// Payload of the first attribute `type`. nullopt when there is none before the end or before a malformed attribute.
std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes, uint16_t type);
/// Payload of the message in `datagram`, bounded by the length in its header. @return the error that the kernel reports;
/// kProtocol when `datagram` does not answer message number `sequence`
Result<std::span<const std::byte>> netlink_payload(std::span<const std::byte> datagram, uint32_t sequence);

/// Sends one message and returns the payload of the answer. Waits at most a second.
/// @param protocol NETLINK_...
Result<Bytes> ask_netlink(int protocol, uint16_t type, std::span<const std::byte> payload);

}  // namespace tcpx
