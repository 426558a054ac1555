// RingLane: the lane through a ring in shared memory (lanes/host_area.h), in one direction between two endpoints of one host. It
// serves transfers that the receiver cannot pull: it cannot read the sender's memory, or its own memory is of another kind. The
// sender copies into the ring while the receiver copies out of it, host memory with the threads of HostCopier, GPU memory with the
// GPU, for which the ring is pinned when first needed. The driver pins it on a thread of the Unmapper: a sender's transfer is offered
// only when that is over, and the Go of a receiver's transfer leaves only then, so until then it can still go another way.
//
//   ring:  | filled | being filled |        free        | being taken | filled |
//                   ^ written                           ^ read                     (both count completed copies only)
//
// Jobs have the same order at both ends: the order of the Gos. The peer may write anything into the ring, so its counter is checked
// before use.
//
// An end that waits for the other keeps looking for a moment, and then rests until the peer wakes it through the control stream. The
// order of steps that loses no wake-up is that of base/shared_stream.h: here `progress` stores `written` or `read`, and its caller
// then wakes the peer if `take_told` says so; an end that goes to sleep tells what it `wants` and then checks `can_move`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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
  /// Bytes copied in one step; the other end is told after each. Long pieces suit the GPU and the copier's threads. On few cores the
  /// threads only slow each other down, so short pieces are copied within `progress`: on two cores 7.6 GB/s instead of 4.5.
  static constexpr size_t kLongPiece = size_t{512} << 10, kShortPiece = size_t{64} << 10;
  /// GPU pieces under way at once. Bounded because all links of an endpoint share the GPU's copier.
  static constexpr size_t kMaxGpuPieces = 8;
  /// How long a waiting end keeps looking before it rests. Longer than the other end takes for a piece, so that two running ends
  /// need no wake-ups.
  static constexpr std::chrono::milliseconds kPatience{1};
  static size_t piece_for(uint32_t cores) { return cores < 8 ? kShortPiece : kLongPiece; }

  /// All must outlive this.
  /// @param piece bytes of a host memory piece
  RingLane(BulkRing& ring, const LaneMaking& making, bool sends, size_t piece = piece_for(usable_cores()))
      : Lane(Way::kRing, !sends),
        ring_(ring),
        parts_(making.parts),
        stream_(making.stream),
        elsewhere_(making.elsewhere),
        sends_(sends),
        piece_(piece) {}
  /// Waits for the GPU.
  ~RingLane() override;

  bool is_ready(std::span<const HeldRange> ranges) override;
  /// No words: what is offered can be put into the ring.
  bool offer(std::span<const HeldRange> ranges, std::vector<std::byte>& /*words*/) override {
    return is_ready(ranges) && reaches(ranges);
  }
  bool take(std::span<const HeldRange> to, std::span<const std::byte> /*words*/) override {
    return !is_ready(to) || reaches(to);
  }
  void push(std::unique_ptr<Job>&& job, std::span<const std::byte> words, const GoFrame& go) override;
  bool sends_go() const override { return receives(); }
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override;
  void abandon() override;
  const Status& status() const override { return status_; }
  bool idle() const override { return jobs_.empty() && unpinned_.empty() && ended_.empty(); }
  /// Not 0 after kPatience without any move of the other end, which may have been stopped.
  uint32_t wants(TimePoint now) const override {
    if (!waits(now)) return 0;
    return sends_ ? kWakeForBulkRoom : kWakeForBulkBytes;
  }
  /// True when idle, or when the peer will wake this end.
  bool rests(TimePoint now) const override { return idle() || (unpinned_.empty() && waits(now)); }
  bool is_told() const override { return jobs_.empty() && unpinned_.empty() && !has_ended(); }
  bool can_move() const override {
    if (next_cut_ >= jobs_.size() || !status_.is_ok()) return false;
    return sends_ ? begun_ - ring_.read.load(std::memory_order_relaxed) != BulkRing::kBytes
                  : ring_.written.load(std::memory_order_relaxed) != begun_;
  }
  uint32_t take_told() override {
    if (!std::exchange(told_, false)) return 0;
    return sends_ ? kWakeForBulkBytes : kWakeForBulkRoom;
  }
  /// @return the GPU's pin of the ring, if any; one that is still being made is waited for when the buffer goes
  MemoryBuffer close() override;
  bool serves(MemoryId region) const override;
  std::string flight_record() const override;

 private:
  bool waits(TimePoint now) const {
    return !jobs_.empty() && pieces_.empty() && !has_ended() && status_.is_ok() && !pushed_ && !starved_ &&
           now - moved_at_ > kPatience;
  }

  struct Piece {
    std::shared_ptr<HostCopy> copy;    // host memory
    std::optional<CopyTicket> ticket;  // GPU memory
    uint64_t bytes = 0;
    bool ends_job = false;
  };

  /// A job of GPU memory without its Go.
  struct Unpinned {
    std::unique_ptr<Job> job;
    GoFrame go;
  };

  bool reaches(std::span<const HeldRange> ranges) const;
  void pin();
  bool end_unpinned();
  std::optional<uint64_t> room();
  bool begin_piece();
  bool start(Piece& piece, bool for_gpu);
  bool is_over(const Piece& piece);
  bool is_for_gpu(std::span<const HeldRange> ranges) const { return !is_of_host(ranges.front().region(), parts_.memory); }
  bool end_pieces();
  void end_front_job();

  BulkRing& ring_;
  const PullParts parts_;
  ControlStream& stream_;
  const std::function<Status(std::unique_ptr<Job>&&, GoFrame)> elsewhere_;
  const bool sends_;
  const size_t piece_;
  std::shared_ptr<PendingBuffer> pin_;     // the ring's bytes for the GPU; null: no transfer of its memory has been offered yet
  std::deque<Unpinned> unpinned_;          // received when the ring is pinned
  std::deque<std::unique_ptr<Job>> jobs_;  // in order; pieces are cut from the front
  size_t next_cut_ = 0;                    // index into jobs_ of the first job not cut to its end
  size_t range_ = 0;                       // where the next piece begins in that job
  uint64_t offset_ = 0;
  std::deque<Piece> pieces_;           // under way, in order
  uint64_t begun_ = 0, copied_ = 0;    // bytes since the ring was made
  std::vector<CopySegment> segments_;  // reused
  bool pushed_ = false;                // since the last progress
  bool told_ = false;                  // since the last take_told
  bool starved_ = false;               // the GPU's copier, which all links share, is full
  TimePoint moved_at_{};
  Status status_;
};

std::unique_ptr<Lane> make_ring_lane(const LaneMaking& making, bool receives);

}  // namespace tcpx
