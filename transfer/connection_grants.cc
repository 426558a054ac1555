// The part of a Connection that talks to the other half: grants, what they make the sender post, acknowledgements.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "transfer/connection.h"

namespace tcpx {
namespace {

// A receiver waits for little from its peer; looking costs a system call.
constexpr uint32_t kReceiverLooksEvery = 32;

}  // namespace

bool Connection::pump_link() {
  if (!status_.is_ok() && all_closed()) return false;
  const bool waits = direction_ == Direction::kSend || (placing_id_ < next_id_ && placing_id_ == end_of_grantable());
  if (!waits && status_.is_ok() && ++calls_since_pump_ < kReceiverLooksEvery) return false;
  calls_since_pump_ = 0;
  const Result<bool> more = links_.peer->pump();
  // Without transfers the end of the link is none of ours: whoever comes next will see it.
  if (pending_ > 0 && !more.is_ok()) fail(more.status());
  if (pending_ > 0 && more.is_ok() && !*more && needs_peer())
    fail(Status(Code::kProtocol, "wait for the peer", "the peer has finished, this end has not"));
  return std::exchange(heard_, false);
}

// Whether some pending transfer cannot end by what is under way already. A peer that finishes is done with its half of all
// transfers, which is not to say that the plugin has delivered everything here, or has told us that it has.
bool Connection::needs_peer() const {
  if (direction_ == Direction::kRecv) return acknowledges() || placing_id_ < next_id_;
  if (!acknowledges()) return next_granted_.transfer < next_id_;
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [](const Transfer& t) { return t.state == TransferState::kPending && !t.acknowledged; });
}

// Receiver: one past the last transfer whose chunks may be granted.
uint64_t Connection::end_of_grantable() const {
  return acknowledges() ? std::min(next_id_, submitted_by_peer_ + 1) : next_id_;
}

// Receiver: places chunks on channels, posts them, and tells the sender, one message per transfer and call.
bool Connection::post_and_grant() {
  bool advanced = regrant_lost();
  const uint64_t end = end_of_grantable();
  if (placing_id_ >= end || !lost_.empty()) return advanced;
  Room room = look_for_room();
  while (placing_id_ < end && room.open != 0) {
    Transfer& transfer = slot(placing_id_);
    const uint64_t first = transfer.placed_chunks;
    std::array<uint8_t, kMaxGrantChunks> channels;
    size_t count = 0;
    while (count < channels.size() && transfer.placed_chunks < transfer.plan.count()) {
      const std::optional<size_t> path = place(transfer, transfer.placed_chunks, room);
      if (!path) break;
      channels[count++] = static_cast<uint8_t>(*path);
      ++transfer.placed_chunks;
    }
    if (count == 0) break;
    advanced = true;
    const Grant grant{.header = {.transfer = placing_id_,
                                 .transfer_bytes = transfer.plan.transfer_bytes(),
                                 .first_chunk = first,
                                 .count = static_cast<uint32_t>(count),
                                 .reserved = 0},
                      .channels = std::span(channels).first(count)};
    std::array<std::byte, kMaxPeerMessageBytes> text;
    if (!tell(FrameType::kGrant, encode_grant(text, grant))) break;
    if (transfer.placed_chunks == transfer.plan.count()) ++placing_id_;
  }
  return advanced;
}

Connection::Room Connection::look_for_room() const {
  Room room;
  for (size_t i = 0; i < paths_.size(); ++i) room.open |= paths_[i]->channel.has_room() ? 1u << i : 0;
  return room;
}

// Posts the chunk on the channel that suits it best. @param room is corrected when a channel turns out to have none
std::optional<size_t> Connection::place(Transfer& transfer, uint64_t chunk, Room& room) {
  const uint64_t bytes = transfer.plan[chunk].bytes;
  const uint64_t left = transfer.plan.transfer_bytes() - transfer.plan[chunk].offset + queued_behind(transfer);
  while (const std::optional<size_t> path = router_.pick(room.open, bytes, left, room.refused)) {
    const bool posted = try_post(*path, transfer, chunk);
    if (posted) router_.posted(*path, bytes, now_);
    if (!posted) room.refused |= 1u << *path;
    if (!posted || !paths_[*path]->channel.has_room()) room.open &= ~(1u << *path);
    if (posted) return path;
  }
  return std::nullopt;
}

// Bytes of the transfers that come after this one. A few of them say enough: there is work for all channels.
uint64_t Connection::queued_behind(const Transfer& transfer) const {
  constexpr uint64_t kLookAhead = 64;
  uint64_t bytes = 0;
  const uint64_t first = static_cast<uint64_t>(transfer.id) + 1, end = std::min(end_of_grantable(), first + kLookAhead);
  for (uint64_t id = first; id < end; ++id) bytes += transfers_[id % transfers_.size()].plan.transfer_bytes();
  return bytes;
}

bool Connection::regrant_lost() {
  if (lost_.empty()) return false;
  bool advanced = false;
  Room room = look_for_room();
  while (!lost_.empty()) {
    const ChunkName name = lost_.front();
    const std::optional<size_t> path = place(slot(name.transfer), name.chunk, room);
    if (!path) break;
    lost_.pop_front();
    advanced = true;
    const Regrant regrant{.transfer = name.transfer,
                          .transfer_bytes = name.transfer_bytes,
                          .chunk = name.chunk,
                          .channel = static_cast<uint32_t>(*path),
                          .reserved = 0};
    std::array<std::byte, kMaxPeerMessageBytes> text;
    if (!tell(FrameType::kRegrant, encode_regrant(text, regrant))) break;
  }
  return advanced;
}

// Sender: posts what has been granted, each channel in the order of its grants.
bool Connection::post_granted() {
  bool advanced = false;
  for (size_t i = 0; i < paths_.size() && status_.is_ok(); ++i) {
    Path& path = *paths_[i];
    while (!path.granted.empty() && path.channel.has_room()) {
      const ChunkName& name = path.granted.front();
      if (name.transfer >= next_id_) break;  // the receiver is ahead of this end
      Transfer& transfer = slot(name.transfer);
      if (!is_pending(name.transfer)) {
        fail(Status(Code::kProtocol, "send transfer",
                    concat("transfer ", name.transfer, " was acknowledged before chunk ", name.chunk, " was sent")));
        break;
      }
      if (transfer.plan.transfer_bytes() != name.transfer_bytes) {
        fail(Status(Code::kMismatch, "send transfer",
                    concat("transfer ", name.transfer, " has ", transfer.plan.transfer_bytes(), " bytes at the sender and ",
                           name.transfer_bytes, " at the receiver")));
        break;
      }
      if (!try_post(i, transfer, name.chunk)) break;
      path.granted.pop();
      advanced = true;
    }
  }
  return advanced;
}

bool Connection::tell(FrameType type, std::span<const std::byte> payload) {
  Status status = links_.peer->post(type, payload);
  if (status.is_ok()) return true;
  fail(std::move(status));
  return false;
}

void Connection::acknowledge(const Transfer& transfer) {
  std::array<std::byte, kMaxPeerMessageBytes> text;
  tell(FrameType::kReceived, encode_transfer_number(text, static_cast<uint64_t>(transfer.id)));
}

void Connection::on_peer_message(FrameType type, std::span<const std::byte> payload) {
  if (!status_.is_ok()) return;
  heard_ = true;
  const bool sends = direction_ == Direction::kSend;
  const auto channels = static_cast<uint32_t>(paths_.size());
  Status status(Code::kProtocol, "read peer message", concat("an unexpected \"", name_of(type), '"'));
  if (type == FrameType::kChannelDown) {
    const auto down = decode_channel_down(payload, channels);
    status = down.is_ok() ? take_channel_down(*down) : down.status();
  } else if (type == FrameType::kGrant && sends) {
    const auto grant = decode_grant(payload, channels);
    status = grant.is_ok() ? take_grant(*grant) : grant.status();
  } else if (type == FrameType::kRegrant && sends && acknowledges()) {
    const auto regrant = decode_regrant(payload, channels);
    status = regrant.is_ok() ? take_regrant(*regrant) : regrant.status();
  } else if (type == FrameType::kReceived && sends && acknowledges()) {
    const auto transfer = decode_transfer_number(payload);
    status = transfer.is_ok() ? take_received(*transfer) : transfer.status();
  } else if (type == FrameType::kSubmitted && !sends && acknowledges()) {
    const auto transfer = decode_transfer_number(payload);
    status = transfer.is_ok() ? take_submitted(*transfer) : transfer.status();
  }
  if (!status.is_ok()) fail(std::move(status));
}

// The receiver grants every chunk once, in order, so that it needs to name only the channels and a chunk sent twice or left out
// cannot be asked for.
Status Connection::take_grant(const Grant& grant) {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kProtocol, "take grant",
                  concat("chunk ", grant.header.first_chunk, " of transfer ", grant.header.transfer, ": ", why));
  };
  if (grant.header.transfer != next_granted_.transfer || grant.header.first_chunk != next_granted_.chunk)
    return refuse("not the next one");
  if (next_granted_.chunk > 0 && grant.header.transfer_bytes != next_granted_.transfer_bytes)
    return refuse("the size of the transfer has changed");
  const uint64_t count = ChunkPlan::make(grant.header.transfer_bytes, options_.chunk_bytes)->count();
  if (grant.header.count > count - grant.header.first_chunk) return refuse("more chunks than the transfer has");
  for (size_t i = 0; i < grant.channels.size(); ++i) {
    TCPX_RETURN_IF_ERROR(
        queue_granted(grant.channels[i], {grant.header.transfer, grant.header.first_chunk + i, grant.header.transfer_bytes}));
  }
  next_granted_ = {grant.header.transfer, grant.header.first_chunk + grant.header.count, grant.header.transfer_bytes};
  if (next_granted_.chunk == count) next_granted_ = {grant.header.transfer + 1, 0, 0};
  return Status::ok();
}

Status Connection::take_regrant(const Regrant& regrant) {
  const ChunkName name{regrant.transfer, regrant.chunk, regrant.transfer_bytes};
  const bool granted_before = std::tie(name.transfer, name.chunk) < std::tie(next_granted_.transfer, next_granted_.chunk);
  // What has been acknowledged is not asked for again, and its memory is no longer ours to read.
  const bool finished = name.transfer < next_id_ && !is_pending(name.transfer);
  const bool exists = name.transfer >= 1 && name.chunk < ChunkPlan::make(name.transfer_bytes, options_.chunk_bytes)->count();
  if (!granted_before || finished || !exists) {
    return Status(Code::kProtocol, "take regrant",
                  concat("chunk ", name.chunk, " of transfer ", name.transfer, " cannot be asked for again"));
  }
  return queue_granted(regrant.channel, name);
}

Status Connection::queue_granted(size_t index, const ChunkName& name) {
  Path& path = *paths_[index];
  // The receiver does not know yet that the channel has failed. It will ask for the chunk again.
  if (!path.channel.status().is_ok()) return Status::ok();
  if (!path.granted.push(name)) {
    return Status(Code::kProtocol, "take grant", concat("more than ", kQueueDepth, " chunks wait for ", label(index)));
  }
  return Status::ok();
}

Status Connection::take_received(uint64_t number) {
  if (number >= next_granted_.transfer || !is_pending(number) || slot(number).acknowledged)
    return Status(Code::kProtocol, "take acknowledgement", concat("transfer ", number, " is not waiting for one"));
  Transfer& transfer = slot(number);
  transfer.acknowledged = true;
  end_if_complete(transfer);
  return Status::ok();
}

Status Connection::take_submitted(uint64_t number) {
  if (number != submitted_by_peer_ + 1)
    return Status(Code::kProtocol, "take submission", concat("transfer ", number, " behind ", submitted_by_peer_));
  submitted_by_peer_ = number;
  return Status::ok();
}

bool Connection::is_pending(uint64_t number) const {
  const Transfer& transfer = transfers_[number % transfers_.size()];
  return static_cast<uint64_t>(transfer.id) == number && transfer.state == TransferState::kPending;
}

}  // namespace tcpx
