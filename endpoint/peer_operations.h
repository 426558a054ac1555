// PeerOperations: writes and reads that the peer has started, on memory of this end. Nothing of what it says is believed: ranges
// are checked against what was advertised to it, and what no peer of ours says ends the link.
//
// A peer of the same host may pull what it reads, and have pulled what it writes: then there is no job of a lane, and no Go before
// the copy. Where it may not, shared lanes take the places of lanes.
//
//   write   short   copied into place at once, or by the GPU        -> Done
//           long    a job of the receiving lane                     -> Go, later Done
//   read    short   copied from there at once, or by the GPU        -> ReadData
//           long    waits for the peer's Go                         -> Ready, then a job of the sending lane
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

  // Frames of the peer. @return kProtocol: no peer of ours sends that
  /// A write, short or long, or a read.
  Status on(const ControlHeader& header, std::span<const std::byte> payload);
  /// Of a read.
  Status on(const GoFrame& frame);
  /// @return false: no read of that number waits for a Go here
  bool cancel_read(uint64_t number);
  /// Refuses a write that waits for the application's GPU. One that has begun goes on.
  void cancel_write(uint64_t number);
  /// Refuses a write that this end has said Go to, and that will not begin.
  Status drop_write(uint64_t number);

  /// Begins what the GPU's work no longer holds up, and moves short copies along. @return true when something advanced
  bool progress();
  /// A job of the peer's has come back from its lane: nothing touches its memory any more.
  void end_moved(PeerJob& job, bool received);
  /// The link has failed: reads that wait will hear nothing.
  void end() {
    reads_.clear();
    held_up_.clear();
  }

  /// No copy is under way.
  bool quiet() const { return copies_.empty(); }
  /// Something waits for the application's GPU.
  bool waits() const { return !held_up_.empty(); }
  /// Long reads that wait for the peer's "go".
  size_t waiting_reads() const { return reads_.size(); }
  /// Something that is not in a lane uses the region.
  bool serves(MemoryId region) const;

 private:
  /// A short write or read of GPU memory, as long as its copy is in the queue.
  struct Copying {
    uint64_t number = 0;
    std::vector<HeldRange> ranges;
    Delivery delivery;  // of a write
    Charge charge;      // of a read
  };

  /// A frame that names memory with which the application's GPU is not done yet. It is counted in its window, which bounds these.
  struct HeldUp {
    ControlHeader header;
    std::vector<std::byte> payload;
    SlotId by;  // of that memory
  };

  // @param counted in its window already. @return the slot with whose memory the GPU is not done, so that the frame is taken again
  // later; nullopt: taken
  Result<std::optional<SlotId>> take(const ControlHeader& header, std::span<const std::byte> payload, bool counted);
  template <class Frame>
  Result<std::optional<SlotId>> take(const ControlHeader& header, std::span<const std::byte> payload, bool counted);
  Status begin(const WriteFrame& frame, std::vector<HeldRange> ranges, const Charge& charge);
  Status begin(const WriteDataFrame& frame, std::vector<HeldRange> ranges, const Charge& charge);
  Status begin(const ReadFrame& frame, std::vector<HeldRange> ranges, const Charge& charge);
  Status begin_long(const ReadFrame& frame, std::vector<HeldRange> ranges, const Charge& charge);
  bool begin_held_up();
  void let_go_by(const WriteFrame& frame, const Charge& charge);
  bool is_short(const ReadFrame& frame) const { return frame.bytes <= link_.shared.inline_bytes; }

  void end_copy(const Result<bool>& done);
  void queue(Copying copying, bool writes, std::span<const std::byte> data);
  Result<std::vector<HeldRange>> look_up(const WireArray<WireRange>& wanted, bool writes, std::optional<SlotId>& busy) const;
  template <class T>
  std::optional<T> or_refuse(Result<T> result, uint64_t operation, const Charge& charge);
  void answer_read(uint64_t number, std::span<const std::byte> data);

  LinkContext& link_;
  std::unordered_map<uint64_t, std::unique_ptr<PeerJob>> reads_;  // long ones, until the peer's "go"
  std::vector<HeldUp> held_up_;                                   // in their order
  CopyQueue<Copying> copies_;
  std::vector<std::byte> room_;  // reused
};

}  // namespace tcpx
