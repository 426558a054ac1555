// PeerOperations: the writes and reads that the peer has started on memory of this end. Nothing that the peer says is trusted: ranges
// are checked against what was advertised to it, and a frame that a correct peer would not send ends the link.
//
//   write   short   copied into place at once, or by the GPU        -> Done
//           long    a job of a receiving lane                       -> Go (for a pull after the copy), later Done
//   read    short   copied out at once, or by the GPU               -> ReadData
//           long    waits for the peer's Go                         -> Ready, then a job of a sending lane
//
// On an eager link long writes and reads may begin without a Go (wire/messages.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "endpoint/copy_queue.h"
#include "endpoint/link_context.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
class PeerOperations {
 public:
  /// @param link must outlive this
  explicit PeerOperations(LinkContext& link) : link_(link), copies_(link.shared.copies) {}

  // Frames of the peer. @return kProtocol: a correct peer would not send this now
  /// @param header of a Write, WriteData or Read
  Status on(const FrameHeader& header, std::span<const std::byte> payload);
  /// The peer's Go for its read.
  Status on(const GoFrame& frame);
  /// @return false: no read of that number waits for a Go here
  bool cancel_read(uint64_t number);
  /// Refuses a write that waits for the application's GPU. A write that has begun goes on.
  void cancel_write(uint64_t number);
  /// Refuses a write that got a Go and that the peer will not begin.
  Status drop_write(uint64_t number);

  /// Begins operations that nothing holds up any more, and moves short copies along. @return true when something advanced
  bool progress();
  /// A lane has ended a job of the peer: nothing touches its memory any more.
  void end_moved(PeerJob& job, bool received);
  /// Call when the link has failed: drops everything that has not begun.
  void end() {
    reads_.clear();
    held_up_.clear();
  }

  /// True when no copy is under way.
  bool quiet() const { return copies_.empty(); }
  /// True when an operation waits for the application's GPU or for a lane.
  bool waits() const { return !held_up_.empty(); }
  /// Long reads that wait for the peer's Go.
  size_t waiting_reads() const { return reads_.size(); }
  /// True when an operation that is not in a lane uses the region.
  bool serves(MemoryId region) const;

 private:
  /// A short write or read of GPU memory whose copy is in the queue.
  struct Copying {
    uint64_t number = 0;
    std::vector<HeldRange> ranges;
    Delivery delivery;  // of a write
    Charge charge;      // of a read
  };

  /// A frame that names memory which the application's GPU still uses, or for which a lane is not ready. Its window, where it is
  /// counted, bounds the number of these.
  struct HeldUp {
    FrameHeader header;
    std::vector<std::byte> payload;
    SlotId by;  // of that memory
  };

  // @param counted the frame is counted in its window already. @return nullopt: taken; a slot: the GPU still uses its memory, or a
  // lane is not ready for it, and the frame must be taken again later
  Result<std::optional<SlotId>> take(const FrameHeader& header, std::span<const std::byte> payload, bool counted);
  template <class Frame>
  Result<std::optional<SlotId>> take(const FrameHeader& header, std::span<const std::byte> payload, bool counted);
  Status begin(const WriteFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge);
  Status begin(const WriteDataFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge);
  Status begin(const ReadFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge);
  /// The packing of the answer to a long read.
  Packing packing_of(const ReadFrame& frame, std::span<const HeldRange> ranges) const;
  Status begin_long(const ReadFrame& frame, std::vector<HeldRange>&& ranges, const Charge& charge);
  bool begin_held_up();
  void let_go_by(const WriteFrame& frame, const Charge& charge);
  bool is_short(const ReadFrame& frame) const { return frame.bytes <= link_.inline_bytes; }

  void end_copy(const Status& copied);
  void queue(Copying copying, bool writes, std::span<const std::byte> data);
  void lease(const WireArray<WireRange>& ranges);
  Result<std::vector<HeldRange>> look_up(const WireArray<WireRange>& wanted, bool writes, std::optional<SlotId>& busy,
                                         std::vector<SlotId>& counted) const;
  template <class T>
  std::optional<T> or_refuse(Result<T> result, uint64_t operation, const Charge& charge);
  void answer_read(uint64_t number, std::span<const std::byte> data);

  LinkContext& link_;
  std::unordered_map<uint64_t, std::unique_ptr<PeerJob>> reads_;  // long ones, until the peer's Go
  std::vector<HeldUp> held_up_;                                   // in the order in which they came
  CopyQueue<Copying> copies_;
  std::vector<std::byte> room_;  // reused
};

}  // namespace tcpx
