// SharedLane: one direction of a link's bulk data between two endpoints of one host, of which one may not read the other's memory.
// The sender copies it into a ring in the area that both share (endpoint/host_peer.h), the receiver out of it, at the same time,
// each with the threads of its HostCopier.
//
//   ring:  | told, not taken | being taken |        free        | being filled | told, not taken |
//                                          ^ read                              ^ written (both of what is over)
//
// Jobs are of host memory, and in the same order at both ends: that of the Go frames. The peer may write anything into the ring:
// its counter is checked before it is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/host_copier.h"
#include "base/memory_ops.h"
#include "base/usable_cores.h"
#include "endpoint/lane.h"
#include "endpoint/wire.h"

namespace tcpx {

/// One direction, in shared memory. All zeros is an empty one.
struct BulkRing {
  static constexpr size_t kBytes = size_t{4} << 20;
  alignas(64) std::atomic<uint64_t> written;  ///< bytes so far; the sender's
  alignas(64) std::atomic<uint64_t> read;     ///< bytes so far; the receiver's
  alignas(4096) std::byte bytes[kBytes];
};

/// One thread at a time: the one that makes progress.
class SharedLane {
 public:
  /// Bytes that are copied as one, and that the other end is told of at once. Long pieces, of which some are under way at each
  /// end, are for the copier's threads. Where cores are few those only take them from each other, and short ones are copied within
  /// `progress`: on two cores 7.6 GB/s instead of 4.5.
  static constexpr size_t kLongPiece = size_t{512} << 10, kShortPiece = size_t{64} << 10;
  static constexpr std::chrono::milliseconds kPatience{100};
  static size_t piece_for(uint32_t cores) { return cores < 8 ? kShortPiece : kLongPiece; }

  /// @param ring null: there is none. All must outlive this
  SharedLane(BulkRing* ring, HostCopier& copier, const MemoryOps& memory, bool sends, size_t piece = piece_for(usable_cores()))
      : ring_(ring), copier_(copier), memory_(memory), sends_(sends), piece_(piece) {}

  /// The bytes that the peer offers come through this. @param from its sources
  bool takes(const std::vector<HeldRange>& to, const WireArray<WireSource>& from) const;
  /// As those of Lane.
  void push(std::unique_ptr<Job> job) {
    jobs_.push_back(std::move(job));
    pushed_ = true;
  }
  bool progress(TimePoint now);
  Job* ended() { return ended_.empty() ? nullptr : ended_.front().get(); }
  void drop_ended() { ended_.pop_front(); }
  /// Ends them early: as soon as nothing is copied for them.
  void fail(const Status& reason);
  const Status& status() const { return status_; }
  bool idle() const { return jobs_.empty() && ended_.empty(); }
  /// Idle, or the other end has moved nothing for so long that looking now and then is enough: it may have been stopped.
  bool rests(TimePoint now) const {
    return idle() || (pieces_.empty() && ended_.empty() && status_.is_ok() && !pushed_ && now - moved_at_ > kPatience);
  }
  bool serves(MemoryId region) const;
  std::string flight_record() const;

 private:
  struct Piece {
    std::shared_ptr<HostCopy> copy;
    uint64_t bytes = 0;
    bool ends_job = false;
    bool is_over() const { return copy == nullptr || copy->done(); }  // null: memory was wanting for it
  };

  std::optional<uint64_t> room();
  bool begin_piece();
  bool end_pieces();
  void end_front_job();

  BulkRing* const ring_;
  HostCopier& copier_;
  const MemoryOps& memory_;
  const bool sends_;
  const size_t piece_;
  std::deque<std::unique_ptr<Job>> jobs_;  // in order; cut from the front on
  size_t next_cut_ = 0;                    // index into jobs_ of the first one not wholly cut
  size_t range_ = 0;                       // of that one, where the next piece begins
  uint64_t offset_ = 0;
  std::deque<Piece> pieces_;           // under way, in order
  uint64_t begun_ = 0, copied_ = 0;    // bytes of the stream
  std::vector<CopySegment> segments_;  // reused
  std::deque<std::unique_ptr<Job>> ended_;
  bool pushed_ = false;  // since the last progress
  TimePoint moved_at_{};
  Status status_;
};

}  // namespace tcpx
