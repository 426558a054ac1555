#include "transfer/peer_messages.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "wire/frame.h"

namespace tcpx {
namespace {

constexpr const char* kReadMessage = "read peer message";

struct ChannelDownHeader {
  uint32_t channel;
  int32_t code;
  uint32_t text_bytes;
  uint32_t reserved;
};
static_assert(sizeof(ChannelDownHeader) == 16);
constexpr size_t kMaxCauseBytes = kMaxPeerMessageBytes - sizeof(ChannelDownHeader);
static_assert(sizeof(GrantHeader) + kMaxGrantChunks <= kMaxPeerMessageBytes);

Status bad(std::string detail) {
  return Status(Code::kProtocol, kReadMessage, std::move(detail));
}

// Copies the front of `payload` into `value`. @return the bytes after it
template <class T>
Result<std::span<const std::byte>> take(std::span<const std::byte> payload, T& value) {
  if (payload.size() < sizeof value) return bad(concat(payload.size(), " bytes where at least ", sizeof value, " belong"));
  std::memcpy(&value, payload.data(), sizeof value);
  return payload.subspan(sizeof value);
}

template <class T>
std::span<const std::byte> put(PeerMessageRoom room, const T& value) {
  std::memcpy(room.data(), &value, sizeof value);
  return room.first(sizeof value);
}

Status check_channel(uint32_t channel, uint32_t channels) {
  if (channel < channels) return Status::ok();
  return bad(concat("channel ", channel, " of ", channels));
}

// A message of fixed size that names one channel.
template <class T>
Result<T> decode_of_channel(std::span<const std::byte> payload, uint32_t channels, const char* what) {
  T message{};
  TCPX_ASSIGN_OR_RETURN(const auto rest, take(payload, message));
  if (!rest.empty()) return bad(concat(rest.size(), " bytes behind ", what));
  TCPX_RETURN_IF_ERROR(check_channel(message.channel, channels));
  return message;
}

}  // namespace

Result<Grant> decode_grant(std::span<const std::byte> payload, uint32_t channels) {
  Grant grant;
  TCPX_ASSIGN_OR_RETURN(const auto rest, take(payload, grant.header));
  if (grant.header.count == 0 || grant.header.count > kMaxGrantChunks || grant.header.count != rest.size())
    return bad(concat("a grant of ", grant.header.count, " chunks in ", rest.size(), " bytes"));
  grant.channels = {reinterpret_cast<const uint8_t*>(rest.data()), rest.size()};
  for (const uint8_t channel : grant.channels) TCPX_RETURN_IF_ERROR(check_channel(channel, channels));
  return grant;
}

Result<Regrant> decode_regrant(std::span<const std::byte> payload, uint32_t channels) {
  return decode_of_channel<Regrant>(payload, channels, "a regrant");
}

Result<Delivered> decode_delivered(std::span<const std::byte> payload, uint32_t channels) {
  return decode_of_channel<Delivered>(payload, channels, "a count of deliveries");
}

Result<ChannelDown> decode_channel_down(std::span<const std::byte> payload, uint32_t channels) {
  ChannelDownHeader header{};
  TCPX_ASSIGN_OR_RETURN(const auto text, take(payload, header));
  TCPX_RETURN_IF_ERROR(check_channel(header.channel, channels));
  if (header.text_bytes != text.size() || text.size() > kMaxCauseBytes)
    return bad(concat("a text of ", header.text_bytes, " bytes in ", text.size()));
  // A code of a newer build means what every failure of the peer means.
  const bool known = header.code > static_cast<int32_t>(Code::kOk) && header.code <= static_cast<int32_t>(kLastCode);
  return ChannelDown{.channel = header.channel,
                     .reason = Status(known ? static_cast<Code>(header.code) : Code::kPeerGone, "peer reported",
                                      printable(text, kMaxCauseBytes))};
}

Result<uint64_t> decode_transfer_number(std::span<const std::byte> payload) {
  uint64_t transfer = 0;
  TCPX_ASSIGN_OR_RETURN(const auto rest, take(payload, transfer));
  if (!rest.empty()) return bad(concat(rest.size(), " bytes behind the number of a transfer"));
  return transfer;
}

std::span<const std::byte> encode_grant(PeerMessageRoom room, const Grant& grant) {
  put(room, grant.header);
  std::memcpy(room.data() + sizeof grant.header, grant.channels.data(), grant.channels.size());
  return room.first(sizeof grant.header + grant.channels.size());
}

std::span<const std::byte> encode_regrant(PeerMessageRoom room, const Regrant& regrant) {
  return put(room, regrant);
}

std::span<const std::byte> encode_delivered(PeerMessageRoom room, const Delivered& delivered) {
  return put(room, delivered);
}

std::span<const std::byte> encode_channel_down(PeerMessageRoom room, const ChannelDown& down) {
  const std::string text = concat(down.reason.operation(), ": ", down.reason.detail());
  const size_t bytes = std::min(text.size(), kMaxCauseBytes);
  put(room, ChannelDownHeader{.channel = down.channel,
                              .code = static_cast<int32_t>(down.reason.code()),
                              .text_bytes = static_cast<uint32_t>(bytes),
                              .reserved = 0});
  std::memcpy(room.data() + sizeof(ChannelDownHeader), text.data(), bytes);
  return room.first(sizeof(ChannelDownHeader) + bytes);
}

std::span<const std::byte> encode_transfer_number(PeerMessageRoom room, uint64_t transfer) {
  return put(room, transfer);
}

}  // namespace tcpx
