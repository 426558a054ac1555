// TransferRing: the transfers of a pipeline, from submit until they have been polled to their end.
//
// Transfers are numbered 1, 2, ... in the order of submission, the same at both ends; transfer n lives in slot n modulo the size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tcpx/status.h"
#include "transfer/channel.h"
#include "transfer/chunk_plan.h"
#include "transfer/registrations.h"

namespace tcpx {

/// Describes a transfer: `bytes` bytes from (send) or into (receive) `memory`, starting at `offset`.
struct TransferSpec {
  RegisteredMemory memory;
  size_t offset = 0;
  size_t bytes = 0;
  bool unwanted = false;  ///< receive: discards the bytes; every chunk goes to `offset`, which needs room for the longest only
  /// Chunk i of the n-th transfer (n = 0, 1, ...) carries tag + n * kTagsPerTransfer + i; a transfer of more than
  /// kTagsPerTransfer chunks counts as several. Only the lowest 31 bits are used, because a plugin takes no more. Known plugins
  /// ignore tags (17), but others may match them.
  int tag = 0;
};
inline constexpr uint64_t kTagsPerTransfer = 10000;

enum class TransferState { kPending, kDone, kFailed, kUnknown };

struct TransferAnswer {
  TransferState state = TransferState::kUnknown;
  Status status;            ///< kFailed: the reason
  uint64_t bytes_done = 0;  ///< of chunks sent or received successfully
};

struct Transfer {
  TransferId id{};
  TransferState state = TransferState::kUnknown;
  TransferSpec spec;
  ChunkPlan plan;
  uint64_t first_tag = 0;
  uint64_t placed_chunks = 0;    ///< chunks given to a channel for the first time (posted, or posted and granted)
  uint64_t finished_chunks = 0;  ///< with failover a sender may count a chunk twice
  uint64_t finished_bytes = 0;
  uint32_t outstanding = 0;   ///< chunks that a channel holds
  bool acknowledged = false;  ///< sender with failover: the peer has everything

  uint64_t number() const { return static_cast<uint64_t>(id); }
  bool all_finished() const { return finished_chunks >= plan.count(); }
  /// Offset of a chunk in the transfer's memory.
  size_t place_of(const Chunk& chunk) const { return spec.offset + (spec.unwanted ? 0 : chunk.offset); }
  /// Chunk `index` with everything needed to post it, except the memory handle.
  ChunkWork work(uint64_t index) const;
};

/// One thread at a time.
class TransferRing {
 public:
  /// @param room most transfers submitted and not yet polled to their end; at least 1
  explicit TransferRing(uint32_t room) : transfers_(room) {}

  /// Adds a transfer, which is pending. @return kExhausted: no room
  Result<TransferId> add(const TransferSpec& spec, const ChunkPlan& plan);
  /// The slot of transfer `number`. It may hold another transfer; compare the id.
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

  /// Counts a chunk that has been sent or received successfully. @return its transfer, which is still pending
  Transfer& count(const ChunkEnd& end);
  void done(Transfer& transfer);
  /// Marks all pending transfers as failed. Transfers that the peer has acknowledged are marked done instead: they waited only
  /// until nothing reads their memory any more, which is now the case.
  void fail_pending();

  /// State of a transfer; one that has ended is forgotten. @param failure status of failed transfers
  TransferAnswer poll(TransferId id, const Status& failure);

 private:
  std::vector<Transfer> transfers_;
  uint64_t end_ = 1;
  uint64_t pending_ = 0;
  uint64_t next_tag_ = 0;
};

}  // namespace tcpx
