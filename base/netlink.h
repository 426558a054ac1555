// Requests to the kernel over netlink(7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
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
/// Payload of the message in `datagram`, bounded by the length in its header. @return the error that the kernel reports, with the
/// reason in its own words where it gives one; kProtocol when `datagram` does not answer message number `sequence`
Result<std::span<const std::byte>> netlink_payload(std::span<const std::byte> datagram, uint32_t sequence);

/// A netlink socket that stays open, for what the kernel keeps as long as its socket is open. One thread at a time.
class NetlinkSocket {
 public:
  /// @param protocol NETLINK_...
  static Result<NetlinkSocket> open(int protocol);
  /// Takes over a connected socket that keeps the boundaries of messages.
  explicit NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  /// Sends one message and returns the payload of the answer. Waits at most a second.
  Result<Bytes> ask(uint16_t type, std::span<const std::byte> payload);

 private:
  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

/// An attribute with a text, and the zero at its end that the kernel wants.
Bytes text_attribute(uint16_t type, const std::string& text);

/// A family of generic netlink, over a socket that it keeps open. One thread at a time.
class GenericFamily {
 public:
  /// @return kNotFound: this kernel has no such family
  static Result<GenericFamily> open(const std::string& name);
  static Result<GenericFamily> over(NetlinkSocket socket, const std::string& name);

  /// @return the attributes of the answer
  Result<Bytes> ask(uint8_t command, const Bytes& attributes) { return ask(id_, command, attributes); }

 private:
  explicit GenericFamily(NetlinkSocket socket) : socket_(std::move(socket)) {}
  Result<Bytes> ask(uint16_t family, uint8_t command, const Bytes& attributes);

  NetlinkSocket socket_;
  uint16_t id_ = 0;
};

/// As NetlinkSocket::ask, over a socket of its own.
/// @param protocol NETLINK_...
Result<Bytes> ask_netlink(int protocol, uint16_t type, std::span<const std::byte> payload);

}  // namespace tcpx
