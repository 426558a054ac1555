// Messages between the two halves of a pipeline while data moves (wire/peer_mailbox.h). Pure: no socket, no clock.
//
//   grant          from the end that    the next chunks of a transfer, in order, go over these channels
//                  places the chunks
//   delivered      receiver -> sender   so many chunks of a channel are in place (only when the sender places the chunks)
//   channel down   both ways            a channel has failed, and why
// only with failover, where the receiver always places the chunks:
//   regrant        receiver -> sender   a chunk that a failed channel did not deliver goes over another one
//   received       receiver -> sender   a transfer is complete
//   submitted      sender -> receiver   this many transfers can be granted
//
// All integers are little-endian. Decoding bounds every count before it is used; an inconsistent message is kProtocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"
#include "wire/peer_mailbox.h"

namespace tcpx {

/// Most channels of one pipeline.
inline constexpr uint32_t kMaxChannels = 16;
/// Most chunks that one grant may name.
inline constexpr uint32_t kMaxGrantChunks = 256;
/// Most chunks, over all channels, that a sender may have placed before the receiver reports them as delivered.
inline constexpr uint32_t kMaxPlacedChunks = 1024;

/// The start of a grant; `count` bytes follow, each the channel of one chunk.
struct GrantHeader {
  uint64_t transfer;        ///< number within the pipeline: 1, 2, ...
  uint64_t transfer_bytes;  ///< as submitted at the end that places the chunks
  uint64_t first_chunk;     ///< index of the first chunk named
  uint32_t count;           ///< 1 ... kMaxGrantChunks
  uint32_t reserved;
};
static_assert(sizeof(GrantHeader) == 32);

struct Regrant {
  uint64_t transfer;
  uint64_t transfer_bytes;
  uint64_t chunk;
  uint32_t channel;
  uint32_t reserved;
};
static_assert(sizeof(Regrant) == 32);

struct Delivered {
  uint64_t chunks;  ///< delivered by the channel so far
  uint32_t channel;
  uint32_t reserved;
};
static_assert(sizeof(Delivered) == 16);

struct Grant {
  GrantHeader header{};
  std::span<const uint8_t> channels;
};

struct ChannelDown {
  uint32_t channel = 0;
  Status reason;
};

/// Decoders return kProtocol for an inconsistent message. @param channels number of channels of the pipeline; every channel that
/// a message names must be below it
Result<Grant> decode_grant(std::span<const std::byte> payload, uint32_t channels);
Result<Regrant> decode_regrant(std::span<const std::byte> payload, uint32_t channels);
Result<Delivered> decode_delivered(std::span<const std::byte> payload, uint32_t channels);
/// The text is made printable; the reason's operation is "peer reported".
Result<ChannelDown> decode_channel_down(std::span<const std::byte> payload, uint32_t channels);
/// Decodes "received" and "submitted". @return the number of the transfer
Result<uint64_t> decode_transfer_number(std::span<const std::byte> payload);

/// Encoders fill `room` and return the part used.
using PeerMessageRoom = std::span<std::byte, kMaxPeerMessageBytes>;
std::span<const std::byte> encode_grant(PeerMessageRoom room, const Grant& grant);
std::span<const std::byte> encode_regrant(PeerMessageRoom room, const Regrant& regrant);
std::span<const std::byte> encode_delivered(PeerMessageRoom room, const Delivered& delivered);
std::span<const std::byte> encode_channel_down(PeerMessageRoom room, const ChannelDown& down);
std::span<const std::byte> encode_transfer_number(PeerMessageRoom room, uint64_t transfer);

}  // namespace tcpx
