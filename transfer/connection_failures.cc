// The part of a Connection that knows what to do when a channel fails, a network interface goes down, or nothing moves.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "transfer/connection.h"

namespace tcpx {
namespace {

constexpr Duration kLookAtLinksEvery = std::chrono::milliseconds(100);
// Looks, 3 s: about as long as for a host that is silent (endpoint/link_rules.h). What is lost meanwhile TCP sends again.
constexpr int kLinkPatience = 30;

}  // namespace

std::string Connection::label(size_t index) const {
  const std::string& nic = paths_[index]->nic;
  return concat("channel ", index, nic.empty() ? "" : concat(" (", nic, ")"));
}

Status Connection::link_down(const std::string& nic, std::string_view what) const {
  if (nic.empty() || !links_.link_is_down || !links_.link_is_down(nic)) return Status::ok();
  return Status(Code::kSystem, "watch network interface", concat(nic, " is down", what), Domain::kErrno, ENETDOWN);
}

// @param looks at it that have found it down, one after the other
// @return ok: it is up, or may still come back
Status Connection::link_lost(const std::string& nic, std::string_view what, int patience, int& looks) const {
  Status down = link_down(nic, what);
  looks = down.is_ok() ? 0 : looks + 1;
  return looks > patience ? down : Status::ok();
}

// A TCP connection whose interface is gone just waits; the kernel knows at once. Where others can take over, that is soon enough.
void Connection::look_at_links() {
  if (pending_ == 0 || now_ < next_link_look_) return;
  next_link_look_ = now_ + kLookAtLinksEvery;
  auto open = std::count_if(paths_.begin(), paths_.end(), [](const auto& path) { return path->channel.status().is_ok(); });
  for (const auto& path : paths_) {
    if (!path->channel.status().is_ok()) continue;
    Status lost = link_lost(path->nic, "", acknowledges() && open > 1 ? 0 : kLinkPatience, path->looks_down);
    if (lost.is_ok()) continue;
    path->channel.fail(std::move(lost));
    --open;
  }
  if (!grants() || !status_.is_ok()) return;
  // Without it nothing can be granted any more.
  Status lost = link_lost(links_.peer_nic, ", which the two halves talk over", kLinkPatience, peer_looks_down_);
  if (!lost.is_ok()) fail(std::move(lost));
}

// The reason behind the reason: the peer may have noticed first and closed its comms.
Status Connection::first_link_down() const {
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (Status down = link_down(paths_[i]->nic, ""); !down.is_ok()) return labelled(i, down);
  }
  return grants() ? link_down(links_.peer_nic, ", which the two halves talk over") : Status::ok();
}

Status Connection::labelled(size_t index, const Status& reason) const {
  // One channel without a name is the connection itself.
  if (!grants() && paths_[index]->nic.empty()) return reason;
  return Status(reason.code(), reason.operation(), concat(label(index), ": ", reason.detail()), reason.domain(), reason.native());
}

// What a failed channel means: told to the peer once, the end of the connection without failover, work for others with it.
void Connection::take_failure(size_t index) {
  Path& path = *paths_[index];
  const Status& reason = path.channel.status();
  if (!std::exchange(path.failure_taken, true)) {
    if (links_.peer != nullptr && !path.told_by_peer) {
      std::array<std::byte, kMaxPeerMessageBytes> text;
      (void)links_.peer->post(FrameType::kChannelDown,
                              encode_channel_down(text, {.channel = static_cast<uint32_t>(index), .reason = reason}));
    }
    size_t open = 0;
    for (const auto& other : paths_) open += other->channel.status().is_ok() ? 1 : 0;
    if (status_.is_ok()) {
      if (!acknowledges() || open == 0) {
        Status down = reason.code() == Code::kPeerGone ? first_link_down() : Status::ok();
        fail(down.is_ok() ? labelled(index, reason) : std::move(down));
      } else {
        log(LogLevel::kWarning, name_of(direction_), " connection goes on over ", open, " of ", paths_.size(),
            " channels: ", labelled(index, reason).to_string());
      }
    }
  }
  if (!status_.is_ok() || !path.channel.closed() || std::exchange(path.written_off, true)) return;
  if (path.channel.abandoned()) {
    fail(reason);  // its chunks cannot go elsewhere while something may write to their memory
  } else {
    write_off(index);
  }
}

// Nothing touches the memory of the channel's chunks any more: they can go elsewhere.
void Connection::write_off(size_t index) {
  Path& path = *paths_[index];
  path.channel.for_each_failed([&](const ChunkWork& work) {
    Transfer& transfer = slot(static_cast<uint64_t>(work.transfer));
    --transfer.outstanding;
    if (direction_ == Direction::kRecv) {
      lost_.push_back({static_cast<uint64_t>(work.transfer), work.chunk.index, transfer.plan.transfer_bytes()});
    } else {
      end_if_complete(transfer);  // acknowledged, and this was the last that still read its memory
    }
  });
  path.granted.clear();
  router_.closed(index);
}

Status Connection::take_channel_down(const ChannelDown& down) {
  Path& path = *paths_[down.channel];
  if (path.channel.status().is_ok()) {
    path.told_by_peer = true;
    path.channel.fail(down.reason);
  }
  return Status::ok();
}

void Connection::fail(Status reason) {
  if (!status_.is_ok()) return;
  status_ = std::move(reason);
  for (const auto& path : paths_) path->channel.fail(status_);
}

// Chunks in flight that do not move are their channel's to notice. This is for transfers that wait for the other half, which
// with failover may itself be waiting for a channel first, before it asks for its chunks again.
void Connection::check_stall(bool advanced) {
  if (advanced || pending_ == 0 || in_flight() > 0) last_advance_ = now_;
  const Duration limit = options_.limits.stall_limit * (acknowledges() ? 2 : 1);
  if (!status_.is_ok() || now_ - last_advance_ < limit) return;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - last_advance_).count();
  Status status(Code::kTimeout, concat(name_of(direction_), " transfer"), concat("no word from the peer for ", ms, " ms"));
  log(LogLevel::kError, status.to_string(), "; ", flight_record());
  fail(std::move(status));
}

void Connection::fail_pending() {
  if (std::any_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->channel.abandoned(); })) {
    status_ = Status(status_.code(), status_.operation(),
                     status_.detail() + "; the plugin or copies of received data may still be running", status_.domain(),
                     status_.native());
  }
  for (Transfer& transfer : transfers_) {
    if (transfer.state != TransferState::kPending) continue;
    // Nothing reads the memory of what the peer has acknowledged any more: that was all it waited for.
    transfer.state = transfer.acknowledged ? TransferState::kDone : TransferState::kFailed;
    if (transfer.acknowledged) transfer.finished_bytes = transfer.plan.transfer_bytes();
  }
  pending_ = 0;
  placing_id_ = next_id_;
}

}  // namespace tcpx
