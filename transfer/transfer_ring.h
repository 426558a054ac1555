// TransferRing: the transfers of a pipeline, from submit until they have been polled to their end.
//
// Transfers are numbered 1, 2, ... as they are submitted, alike at both ends; transfer n lives in slot n modulo the size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tcpx/status.h"
#include "transfer/channel.h"
#include "transfer/chunk_plan.h"
#include "transfer/registrations.h"

namespace tcpx {

/// A transfer to be: `bytes` bytes from (send) or into (receive) `memory`, starting at `offset`.
struct TransferSpec {
  RegisteredMemory memory;
  size_t offset = 0;
  size_t bytes = 0;
  bool unwanted = false;  ///< receive: every chunk goes to `offset`, where room for the longest is enough
  /// Chunk i of the n-th transfer (n = 0, 1, ...) carries tag + n * kTagsPerTransfer + i, where transfers of more chunks count as
  /// several; only the lowest 31 bits, which is all a plugin takes. Known plugins ignore tags (17), another may match them.
  int tag = 0;
};
inline constexpr uint64_t kTagsPerTransfer = 10000;

enum class TransferState { kPending, kDone, kFailed, kUnknown };

struct TransferAnswer {
  TransferState state = TransferState::kUnknown;
  Status status;            ///< kFailed: why
  uint64_t bytes_done = 0;  ///< of chunks that reached their good end
};

struct Transfer {
  TransferId id{};
  TransferState state = TransferState::kUnknown;
  TransferSpec spec;
  ChunkPlan plan;
  uint64_t first_tag = 0;
  uint64_t placed_chunks = 0;    ///< given to a channel in their first turn (one channel: posted; receiver: granted)
  uint64_t finished_chunks = 0;  ///< with failover a sender may count a chunk twice
  uint64_t finished_bytes = 0;
  uint32_t outstanding = 0;   ///< chunks that a channel holds
  bool acknowledged = false;  ///< sender with failover: the peer has everything

  uint64_t number() const { return static_cast<uint64_t>(id); }
  bool all_finished() const { return finished_chunks >= plan.count(); }
  /// In its memory.
  size_t place_of(const Chunk& chunk) const { return spec.offset + (spec.unwanted ? 0 : chunk.offset); }
  /// Chunk `index` with all that posting it takes but its memory handle.
  ChunkWork work(uint64_t index) const;
};

/// One thread at a time.
class TransferRing {
 public:
  /// @param room transfers submitted and not yet polled to their end; at least 1
  explicit TransferRing(uint32_t room) : transfers_(room) {}

  /// The next transfer, pending. @return kExhausted: no room
  Result<TransferId> add(const TransferSpec& spec, const ChunkPlan& plan);
  /// The slot of `number`, where the transfer itself is only if its id says so.
  Transfer& operator[](uint64_t number) { return transfers_[number % transfers_.size()]; }
  const Transfer& operator[](uint64_t number) const { return transfers_[number % transfers_.size()]; }

  /// Number of the transfer that is added next.
  uint64_t end() const { return end_; }
  uint64_t pending() const { return pending_; }
  bool is_pending(uint64_t number) const;
  template <class Condition>
  bool any_pending(Condition condition) const {
    return pending_ > 0 && std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
             return transfer.state == TransferState::kPending && condition(transfer);
           });
  }

  /// Counts a chunk that has reached its good end. @return its transfer, which is still pending
  Transfer& count(const ChunkEnd& end);
  void done(Transfer& transfer);
  /// Everything pending has failed, except what the peer has acknowledged: nothing reads its memory any more, and that was all it
  /// waited for.
  void fail_pending();

  /// A transfer that has ended is forgotten. @param failure what a failed one answers
  TransferAnswer poll(TransferId id, const Status& failure);

 private:
  std::vector<Transfer> transfers_;
  uint64_t end_ = 1;
  uint64_t pending_ = 0;
  uint64_t next_tag_ = 0;
};

}  // namespace tcpx
