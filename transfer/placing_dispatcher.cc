#include "transfer/placing_dispatcher.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "transfer/peer_messages.h"

namespace tcpx {

// One past the last transfer whose chunks may be granted.
uint64_t PlacingDispatcher::end_of_grantable() const {
  return parts_.failover ? std::min(parts_.transfers.end(), submitted_by_peer_ + 1) : parts_.transfers.end();
}

bool PlacingDispatcher::waits_for_peer() const {
  return placing_ < parts_.transfers.end() && (parts_.sender_places || placing_ == end_of_grantable());
}

bool PlacingDispatcher::needs_peer() const {
  return parts_.failover || placing_ < parts_.transfers.end();
}

PlacingDispatcher::Room PlacingDispatcher::room() const {
  return {.open = chunks_under_way_ < kMaxPlacedChunks ? parts_.channels.room() : 0};
}

// Tells the other end in one message per transfer and call.
Result<bool> PlacingDispatcher::post(TimePoint now) {
  now_ = now;
  const Result<bool> regranted = regrant_lost(now);
  if (!regranted.is_ok()) return regranted;
  bool advanced = *regranted;
  const uint64_t end = end_of_grantable();
  if (placing_ >= end || !lost_.empty()) return advanced;
  Room room = this->room();
  while (placing_ < end && room.open != 0) {
    Transfer& transfer = parts_.transfers[placing_];
    const uint64_t first = transfer.placed_chunks;
    std::array<uint8_t, kMaxGrantChunks> channels;
    size_t count = 0;
    while (count < channels.size() && transfer.placed_chunks < transfer.plan.count()) {
      const std::optional<size_t> channel = place(transfer, transfer.placed_chunks, room, now);
      if (!channel) break;
      channels[count++] = static_cast<uint8_t>(*channel);
      ++transfer.placed_chunks;
    }
    if (count == 0) break;
    advanced = true;
    TCPX_RETURN_IF_ERROR(send_grant(transfer, first, std::span(channels).first(count)));
    if (transfer.placed_chunks == transfer.plan.count()) ++placing_;
  }
  return advanced;
}

Status PlacingDispatcher::send_grant(const Transfer& transfer, uint64_t first, std::span<const uint8_t> channels) {
  const Grant grant{.header = {.transfer = transfer.number(),
                               .transfer_bytes = transfer.plan.transfer_bytes(),
                               .first_chunk = first,
                               .count = static_cast<uint32_t>(channels.size()),
                               .reserved = 0},
                    .channels = channels};
  std::array<std::byte, kMaxPeerMessageBytes> text;
  return parts_.peer->post(PeerMessage::kGrant, encode_grant(text, grant));
}

// Posts the chunk on the channel that suits it best. @param room is corrected when a channel turns out to have none
std::optional<size_t> PlacingDispatcher::place(Transfer& transfer, uint64_t chunk, Room& room, TimePoint now) {
  const uint64_t bytes = transfer.plan[chunk].bytes;
  const uint64_t left = transfer.plan.transfer_bytes() - transfer.plan[chunk].offset + queued_behind(transfer);
  while (const std::optional<size_t> channel = router_.pick(room.open, bytes, left, room.refused)) {
    const bool posted = parts_.channels.try_post(*channel, transfer, chunk);
    if (posted) router_.posted(*channel, bytes, now);
    if (posted && parts_.sender_places) {
      under_way_[*channel].chunks.push_back(bytes);
      if (++chunks_under_way_ == kMaxPlacedChunks) room.open = 0;
    }
    if (!posted) room.refused |= 1u << *channel;
    if (!posted || !parts_.channels[*channel].has_room()) room.open &= ~(1u << *channel);
    if (posted) return channel;
  }
  return std::nullopt;
}

// Bytes of the transfers that come after this one. A few of them say enough: there is work for all channels.
uint64_t PlacingDispatcher::queued_behind(const Transfer& transfer) const {
  constexpr uint64_t kLookAhead = 64;
  uint64_t bytes = 0;
  const uint64_t first = transfer.number() + 1, end = std::min(end_of_grantable(), first + kLookAhead);
  for (uint64_t number = first; number < end; ++number) bytes += parts_.transfers[number].plan.transfer_bytes();
  return bytes;
}

Result<bool> PlacingDispatcher::regrant_lost(TimePoint now) {
  if (lost_.empty()) return false;
  bool advanced = false;
  Room room{.open = parts_.channels.room()};
  while (!lost_.empty()) {
    const ChunkName name = lost_.front();
    const std::optional<size_t> channel = place(parts_.transfers[name.transfer], name.chunk, room, now);
    if (!channel) break;
    lost_.pop_front();
    advanced = true;
    const Regrant regrant{.transfer = name.transfer,
                          .transfer_bytes = name.transfer_bytes,
                          .chunk = name.chunk,
                          .channel = static_cast<uint32_t>(*channel),
                          .reserved = 0};
    std::array<std::byte, kMaxPeerMessageBytes> text;
    TCPX_RETURN_IF_ERROR(parts_.peer->post(PeerMessage::kRegrant, encode_regrant(text, regrant)));
  }
  return advanced;
}

Status PlacingDispatcher::finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) {
  Status first;
  for (const ChunkEnd& end : ends) {
    if (!parts_.sender_places) router_.delivered(channel, end.bytes, now);
    Transfer& transfer = parts_.transfers.count(end);
    if (!transfer.all_finished()) continue;
    if (parts_.failover) {
      std::array<std::byte, kMaxPeerMessageBytes> text;
      Status told = parts_.peer->post(PeerMessage::kReceived, encode_transfer_number(text, transfer.number()));
      if (first.is_ok()) first = std::move(told);
    }
    parts_.transfers.done(transfer);
  }
  return first;
}

void PlacingDispatcher::lost(size_t channel) {
  parts_.channels[channel].for_each_failed([&](const ChunkWork& work) {
    Transfer& transfer = parts_.transfers[static_cast<uint64_t>(work.transfer)];
    --transfer.outstanding;
    lost_.push_back({transfer.number(), work.chunk.index, transfer.plan.transfer_bytes()});
  });
  router_.closed(channel);
}

Status PlacingDispatcher::take(PeerMessage type, std::span<const std::byte> payload) {
  if (type == PeerMessage::kDelivered && parts_.sender_places) {
    TCPX_ASSIGN_OR_RETURN(const auto delivered, decode_delivered(payload, static_cast<uint32_t>(under_way_.size())));
    return take_delivered(delivered);
  }
  if (type != PeerMessage::kSubmitted || !parts_.failover) return ChunkDispatcher::take(type, payload);
  TCPX_ASSIGN_OR_RETURN(const auto number, decode_transfer_number(payload));
  if (number != submitted_by_peer_ + 1)
    return Status(Code::kProtocol, "take submission", concat("transfer ", number, " behind ", submitted_by_peer_));
  submitted_by_peer_ = number;
  return Status::ok();
}

Status PlacingDispatcher::take_delivered(const Delivered& delivered) {
  UnderWay& channel = under_way_[delivered.channel];
  if (delivered.chunks <= channel.delivered || delivered.chunks - channel.delivered > channel.chunks.size()) {
    return Status(Code::kProtocol, "take deliveries",
                  concat(delivered.chunks, " chunks of ", parts_.channels.label(delivered.channel), " behind ", channel.delivered,
                         ", with ", channel.chunks.size(), " under way"));
  }
  for (; channel.delivered < delivered.chunks; ++channel.delivered, --chunks_under_way_) {
    router_.delivered(delivered.channel, channel.chunks.front(), now_);
    channel.chunks.pop_front();
  }
  return Status::ok();
}

std::string PlacingDispatcher::waiting() const {
  std::string text;
  for (uint64_t number = placing_; number < parts_.transfers.end() && number < placing_ + 4; ++number) {
    if (!parts_.transfers.is_pending(number)) continue;  // failed with the pipeline
    const Transfer& transfer = parts_.transfers[number];
    text += concat("\ntransfer ", number, ": ", transfer.placed_chunks, " of ", transfer.plan.count(), " chunks granted");
  }
  if (!lost_.empty()) text += concat("\n", lost_.size(), " chunks of failed channels wait for another one");
  return text;
}

}  // namespace tcpx
