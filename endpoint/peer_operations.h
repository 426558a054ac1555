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
#include "endpoint/lane.h"
#include "endpoint/link_context.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
class PeerOperations {
 public:
  /// @param link must outlive this
  explicit PeerOperations(LinkContext& link) : link_(link), copies_(link.shared.copies) {}

  // Frames of the peer. @return kProtocol: no peer of ours sends that
  Status on(const WriteFrame& frame);
  Status on(const WriteDataFrame& frame);
  Status on(const ReadFrame& frame);
  /// Of a read.
  Status on(const GoFrame& frame);
  /// @return false: no read of that number waits here
  bool cancel_read(uint64_t number);

  /// Moves short copies along. @return true when something advanced
  bool progress();
  /// A job of the peer's has come back from its lane: nothing touches its memory any more.
  void end_moved(Job& job, bool received);
  /// The link has failed: reads that wait will hear nothing.
  void end() { reads_.clear(); }

  /// No copy is under way.
  bool quiet() const { return copies_.empty(); }
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

  void end_copy(const Result<bool>& done);
  void queue(Copying copying, bool writes, std::span<const std::byte> data);
  Result<std::vector<HeldRange>> look_up(const WireArray<WireRange>& wanted) const;
  template <class T>
  std::optional<T> or_refuse(Result<T> result, uint64_t operation, const Charge& charge);
  void answer_read(uint64_t number, std::span<const std::byte> data);

  LinkContext& link_;
  std::unordered_map<uint64_t, std::unique_ptr<Job>> reads_;  // long ones, until the peer's "go"
  CopyQueue<Copying> copies_;
  std::vector<std::byte> room_;  // reused
};

}  // namespace tcpx
