// RingLane: one direction of a link's bulk data between two endpoints of one host, where the receiver gets at the sender's memory
// in no way of its own, or its own memory is of another kind. The sender copies the bytes into a ring in the area that both share
// (lanes/host_area.h), the receiver out of it, at the same time: host memory with the threads of its HostCopier, memory of its
// GPU with the GPU, for which the ring is pinned when that is first needed.
//
//   ring:  | told, not taken | being taken |        free        | being filled | told, not taken |
//                                          ^ read                              ^ written (both of what is over)
//
// Jobs are in the same order at both ends: that of the Go frames. The peer may write anything into the ring:
// its counter is checked before it is used.
//
// An end that waits for the other looks often for a moment, and then rests until the other wakes it, through the control stream and
// in its order (base/shared_stream.h): here `progress` stores `written` or `read`, and whoever called it then wakes the peer if
// `take_told` says so; the end that goes to sleep says what it `wants` and then looks whether it `can_move`.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/host_copier.h"
#include "base/memory_ops.h"
#include "base/usable_cores.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/unmapper.h"
#include "wire/messages.h"

namespace tcpx {

/// One thread at a time: the one that makes progress.
class RingLane final : public Lane {
 public:
  /// Bytes that are copied as one, and that the other end is told of at once. Long pieces, of which some are under way at each
  /// end, are for the GPU and the copier's threads. Where cores are few those only take them from each other, and short ones are
  /// copied within `progress`: on two cores 7.6 GB/s instead of 4.5.
  static constexpr size_t kLongPiece = size_t{512} << 10, kShortPiece = size_t{64} << 10;
  /// The GPU's that are under way at once: all links of an endpoint share its copier.
  static constexpr size_t kMaxGpuPieces = 8;
  /// Time for which an end that waits keeps looking before it rests: longer than the other takes for a piece, so that two ends that
  /// run wake nobody.
  static constexpr std::chrono::milliseconds kPatience{1};
  static size_t piece_for(uint32_t cores) { return cores < 8 ? kShortPiece : kLongPiece; }

  /// @param ring null: there is none. All must outlive this
  /// @param piece of host memory
  RingLane(BulkRing* ring, const PullParts& parts, bool sends, size_t piece = piece_for(usable_cores()))
      : Lane(!sends), ring_(ring), parts_(parts), sends_(sends), piece_(piece) {}
  /// Waits for the GPU.
  ~RingLane() override;

  /// Receiver: the bytes that the peer offers, and that cannot be pulled, come through this. @param from its sources
  bool takes(std::span<const HeldRange> to, const WireArray<WireSource>& from);
  /// Sender: they can be put into this.
  bool gives(std::span<const HeldRange> from) const;
  /// The GPU gets at the ring, which is pinned for it when it is first asked. @return false: it does not, as has been logged
  bool reaches_gpu();
  /// @param job stays the caller's when memory is wanting for it
  void push(std::unique_ptr<Job>&& job) {
    jobs_.push_back(std::move(job));
    pushed_ = true;
  }
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override;
  void abandon() override;
  const Status& status() const override { return status_; }
  bool idle() const override { return jobs_.empty() && ended_.empty(); }
  /// The other end has moved nothing for so long that this one rests until it is woken: it may have been stopped.
  uint32_t wants(TimePoint now) const override {
    if (!waits(now)) return 0;
    return sends_ ? kWakeForBulkRoom : kWakeForBulkBytes;
  }
  /// Idle, or woken when there is something to do.
  bool rests(TimePoint now) const override { return idle() || waits(now); }
  bool can_move() const override {
    if (next_cut_ >= jobs_.size() || !status_.is_ok()) return false;
    return sends_ ? begun_ - ring_->read.load(std::memory_order_relaxed) != BulkRing::kBytes
                  : ring_->written.load(std::memory_order_relaxed) != begun_;
  }
  uint32_t take_told() override {
    if (!std::exchange(told_, false)) return 0;
    return sends_ ? kWakeForBulkBytes : kWakeForBulkRoom;
  }
  /// Once the link has ended and this is idle: the ring is not used again. @return what pins it for the GPU, if anything does
  MemoryBuffer close() { return std::exchange(mapped_, {}); }
  bool serves(MemoryId region) const override;
  std::string flight_record() const override;

 private:
  bool waits(TimePoint now) const {
    return !jobs_.empty() && pieces_.empty() && ended_.empty() && status_.is_ok() && !pushed_ && !starved_ &&
           now - moved_at_ > kPatience;
  }

  struct Piece {
    std::shared_ptr<HostCopy> copy;    // of host memory
    std::optional<CopyTicket> ticket;  // of the GPU's
    uint64_t bytes = 0;
    bool ends_job = false;
  };

  std::optional<uint64_t> room();
  bool begin_piece();
  bool start(Piece& piece, bool for_gpu);
  bool is_over(const Piece& piece);
  bool is_for_gpu(std::span<const HeldRange> ranges) const { return !is_of_host(ranges.front().region(), parts_.memory); }
  bool end_pieces();
  void end_front_job();

  BulkRing* const ring_;
  const PullParts parts_;
  const bool sends_;
  const size_t piece_;
  bool asked_ = false;                     // to be pinned
  MemoryBuffer mapped_;                    // the ring's bytes, when the GPU reaches them
  std::deque<std::unique_ptr<Job>> jobs_;  // in order; cut from the front on
  size_t next_cut_ = 0;                    // index into jobs_ of the first one not wholly cut
  size_t range_ = 0;                       // of that one, where the next piece begins
  uint64_t offset_ = 0;
  std::deque<Piece> pieces_;           // under way, in order
  uint64_t begun_ = 0, copied_ = 0;    // bytes of the stream
  std::vector<CopySegment> segments_;  // reused
  bool pushed_ = false;                // since the last progress
  bool told_ = false;                  // since the last take_told
  bool starved_ = false;               // the GPU's copier, which others use as well, takes no more now
  TimePoint moved_at_{};
  Status status_;
};

}  // namespace tcpx
