#include "transfer/following_dispatcher.h"

#include <array>
#include <tuple>

#include "base/text.h"
#include "transfer/chunk_router.h"

namespace tcpx {
namespace {

constexpr const char* kFollow = "follow the peer's placing";

}  // namespace

Status FollowingDispatcher::submitted(TransferId id) {
  if (!parts_.failover) return Status::ok();
  std::array<std::byte, kMaxPeerMessageBytes> text;
  return parts_.peer->post(PeerMessage::kSubmitted, encode_transfer_number(text, static_cast<uint64_t>(id)));
}

Result<bool> FollowingDispatcher::post(TimePoint) {
  bool advanced = false;
  for (size_t i = 0; i < granted_.size(); ++i) {
    while (!granted_[i].empty() && parts_.channels[i].has_room()) {
      const ChunkName& name = granted_[i].front();
      if (name.transfer >= parts_.transfers.end()) break;  // the other end is ahead of this one
      TCPX_RETURN_IF_ERROR(check(name));
      if (!parts_.channels.try_post(i, parts_.transfers[name.transfer], name.chunk)) break;
      granted_[i].pop_front();
      --waiting_;
      advanced = true;
    }
  }
  return advanced;
}

// A grant must be of what was submitted here.
Status FollowingDispatcher::check(const ChunkName& name) {
  if (!parts_.transfers.is_pending(name.transfer)) {
    return Status(Code::kProtocol, kFollow,
                  concat("transfer ", name.transfer, " was acknowledged before chunk ", name.chunk, " was sent"));
  }
  const uint64_t bytes = parts_.transfers[name.transfer].plan.transfer_bytes();
  if (bytes == name.transfer_bytes) return Status::ok();
  const auto [sent, received] = parts_.sender_places ? std::pair(name.transfer_bytes, bytes) : std::pair(bytes, name.transfer_bytes);
  return Status(Code::kMismatch, kFollow,
                concat("transfer ", name.transfer, " has ", sent, " bytes at the sender and ", received, " at the receiver"));
}

Status FollowingDispatcher::finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint) {
  for (const ChunkEnd& end : ends) end_if_complete(parts_.transfers.count(end));
  if (parts_.sender_places) tell_deliveries(channel, ends);
  return Status::ok();
}

// Small ones a few at a time; long ones each, because the sender knows a slow channel by the time that its first ones take; and
// what the sender may be waiting for. A link that is broken shows where something is wanted of it.
void FollowingDispatcher::tell_deliveries(size_t channel, std::span<const ChunkEnd> ends) {
  constexpr uint64_t kAtATime = ChunkRouter::kFirstChunks, kLongBytes = 128u << 10;
  Deliveries& delivered = delivered_[channel];
  delivered.chunks += ends.size();
  for (const ChunkEnd& end : ends) delivered.untold_bytes += end.bytes;
  const bool more_comes = !granted_[channel].empty() || parts_.channels[channel].in_flight() > 0;
  if (more_comes && delivered.chunks - delivered.told < kAtATime && delivered.untold_bytes < kLongBytes) return;
  std::array<std::byte, kMaxPeerMessageBytes> text;
  const Delivered said{.chunks = delivered.chunks, .channel = static_cast<uint32_t>(channel), .reserved = 0};
  if (!parts_.peer->post(PeerMessage::kDelivered, encode_delivered(text, said)).is_ok()) return;
  delivered.told = delivered.chunks;
  delivered.untold_bytes = 0;
}

void FollowingDispatcher::end_if_complete(Transfer& transfer) {
  if (parts_.failover) {
    if (!transfer.acknowledged || transfer.outstanding > 0) return;
    transfer.finished_bytes = transfer.plan.transfer_bytes();
  } else if (!transfer.all_finished()) {
    return;
  }
  parts_.transfers.done(transfer);
}

void FollowingDispatcher::lost(size_t channel) {
  parts_.channels[channel].for_each_failed([&](const ChunkWork& work) {
    Transfer& transfer = parts_.transfers[static_cast<uint64_t>(work.transfer)];
    --transfer.outstanding;
    end_if_complete(transfer);  // acknowledged, and this was the last that still read its memory
  });
  waiting_ -= granted_[channel].size();
  granted_[channel].clear();
}

bool FollowingDispatcher::needs_peer() const {
  if (!parts_.failover) return next_granted_.transfer < parts_.transfers.end();
  return parts_.transfers.any_pending([](const Transfer& transfer) { return !transfer.acknowledged; });
}

Status FollowingDispatcher::take(PeerMessage type, std::span<const std::byte> payload) {
  const auto channels = static_cast<uint32_t>(granted_.size());
  if (type == PeerMessage::kGrant) {
    TCPX_ASSIGN_OR_RETURN(const auto grant, decode_grant(payload, channels));
    return take_grant(grant);
  }
  if (type == PeerMessage::kRegrant && parts_.failover) {
    TCPX_ASSIGN_OR_RETURN(const auto regrant, decode_regrant(payload, channels));
    return take_regrant(regrant);
  }
  if (type == PeerMessage::kReceived && parts_.failover) {
    TCPX_ASSIGN_OR_RETURN(const auto number, decode_transfer_number(payload));
    return take_received(number);
  }
  return ChunkDispatcher::take(type, payload);
}

// Every chunk is granted once, in order, so that only the channels need be named and a chunk sent twice or left out cannot be asked
// for.
Status FollowingDispatcher::take_grant(const Grant& grant) {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kProtocol, "take grant",
                  concat("chunk ", grant.header.first_chunk, " of transfer ", grant.header.transfer, ": ", why));
  };
  if (grant.header.transfer != next_granted_.transfer || grant.header.first_chunk != next_granted_.chunk)
    return refuse("not the next one");
  if (next_granted_.chunk > 0 && grant.header.transfer_bytes != next_granted_.transfer_bytes)
    return refuse("the size of the transfer has changed");
  const uint64_t count = count_chunks(grant.header.transfer_bytes);
  if (grant.header.count > count - grant.header.first_chunk) return refuse("more chunks than the transfer has");
  for (size_t i = 0; i < grant.channels.size(); ++i) {
    TCPX_RETURN_IF_ERROR(
        queue(grant.channels[i], {grant.header.transfer, grant.header.first_chunk + i, grant.header.transfer_bytes}));
  }
  next_granted_ = {grant.header.transfer, grant.header.first_chunk + grant.header.count, grant.header.transfer_bytes};
  if (next_granted_.chunk == count) next_granted_ = {grant.header.transfer + 1, 0, 0};
  return Status::ok();
}

Status FollowingDispatcher::take_regrant(const Regrant& regrant) {
  const ChunkName name{regrant.transfer, regrant.chunk, regrant.transfer_bytes};
  const bool granted_before = std::tie(name.transfer, name.chunk) < std::tie(next_granted_.transfer, next_granted_.chunk);
  // An acknowledged chunk is not asked for again, and its memory is no longer ours to read.
  const bool finished = name.transfer < parts_.transfers.end() && !parts_.transfers.is_pending(name.transfer);
  const bool exists = name.transfer >= 1 && name.chunk < count_chunks(name.transfer_bytes);
  if (!granted_before || finished || !exists) {
    return Status(Code::kProtocol, "take regrant",
                  concat("chunk ", name.chunk, " of transfer ", name.transfer, " cannot be asked for again"));
  }
  return queue(regrant.channel, name);
}

Status FollowingDispatcher::queue(size_t channel, const ChunkName& name) {
  // The receiver does not know yet that the channel has failed. It will ask for the chunk again.
  if (!parts_.channels[channel].status().is_ok()) return Status::ok();
  if (waiting_ == kMaxPlacedChunks)
    return Status(Code::kProtocol, "take grant", concat("more than ", kMaxPlacedChunks, " chunks wait to be posted"));
  granted_[channel].push_back(name);
  ++waiting_;
  return Status::ok();
}

Status FollowingDispatcher::take_received(uint64_t number) {
  TransferRing& transfers = parts_.transfers;
  if (number >= next_granted_.transfer || !transfers.is_pending(number) || transfers[number].acknowledged)
    return Status(Code::kProtocol, "take acknowledgement", concat("transfer ", number, " is not waiting for one"));
  transfers[number].acknowledged = true;
  end_if_complete(transfers[number]);
  return Status::ok();
}

std::string FollowingDispatcher::waiting_for(size_t channel) const {
  return concat(", ", granted_[channel].size(), " chunks granted and not posted");
}

}  // namespace tcpx
