// Header split, which the kernel calls TCP data split: told by the ethtool family of generic netlink only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tcpx::doctor {

/// Whether the headers of TCP packets are put apart from their data. nullopt when driver or kernel do not tell, or there is no
/// such interface. Takes two seconds at most.
std::optional<bool> ask_data_split(const std::string& interface);

/// What stands behind the headers of a netlink message, bounded by its own length. nullopt when `datagram` is no answer to
/// message number `sequence`: shorter than it says, an error, or something else.
std::optional<std::span<const std::byte>> netlink_attributes(std::span<const std::byte> datagram, uint32_t sequence);
/// Payload of the first attribute `type`. nullopt when there is none before the end or before one that is malformed.
std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes, uint16_t type);
/// What the attributes of an answer to ETHTOOL_MSG_RINGS_GET say.
std::optional<bool> data_split_of(std::span<const std::byte> attributes);

}  // namespace tcpx::doctor
