// Ranges of operations: checked one by one when an operation names them, or once for many operations (TransferPlan). Those of a
// plan are moved in rounds, because a peer is told of at most kMaxWireRanges at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/memory_registry.h"
#include "tcpx/endpoint.h"

namespace tcpx {

struct Operation;

/// The inside of a TransferPlan: constant, so any thread. Tables of regions and slots, which many ranges share, keep it small.
struct PlannedRanges {
  struct Range {
    std::byte* data = nullptr;
    uint64_t bytes = 0, offset = 0;  ///< offset: in the slot
    uint32_t region = 0, slot = 0;   ///< indices
  };
  static_assert(sizeof(Range) == 32);  // lists of a model's KV cache have hundreds of thousands
  uint64_t endpoint = 0;               ///< instance whose regions these are
  /// Not 0: the only range is memory that is divided into blocks of so many bytes, `blocks` here and `remote_blocks` in the slot;
  /// operations name blocks of both.
  uint64_t block_bytes = 0, blocks = 0, remote_blocks = 0;
  std::vector<Range> ranges;
  std::vector<MemoryId> regions;
  std::vector<SlotId> slots;
};

/// Checks the ranges and keeps what operations need of them; no region is held.
/// @param remote as many as `ranges`. @param endpoint instance of the registry
/// @return kNotFound, kInvalidArgument, kUnsupported naming the range
Result<std::shared_ptr<const PlannedRanges>> plan_ranges(MemoryRegistry& registry, std::span<const LocalRange> ranges,
                                                         std::span<const RemoteRange> remote, uint64_t endpoint);

/// The same for blocks of `block_bytes` bytes. @param remote where those of the slot begin, which end with it or before
Result<std::shared_ptr<const PlannedRanges>> plan_blocks(MemoryRegistry& registry, const LocalRange& local,
                                                         const RemoteRange& remote, size_t block_bytes, uint64_t endpoint);

/// Gives an operation its ranges. Neighbours at both ends are joined. Caller's thread.
/// @param remote none, or as many as `ranges`
/// @return as `plan_ranges`
Status hold_ranges(MemoryRegistry& registry, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                   Operation& operation);

/// GPUs whose memory the operation has, each once: the handle of a default stream does not say of which it is.
/// @param own the endpoint's, for an operation of nothing
std::vector<int> gpus_of(const Operation& operation, int own);

/// Ranges of a plan that one operation moves. One thread at a time.
class PlannedRounds {
 public:
  /// Indices of the ranges to move, in this order; those of blocks here and there may differ.
  struct Chosen {
    std::span<const uint32_t> local, remote;
  };
  /// Holds all regions of the plan from here on. @param chosen nullopt: all ranges. @param writes the chosen ranges will be written
  /// @return kNotFound: a region is not registered any more; kInvalidArgument: an index beyond the plan, or two of one range; to
  /// write to memory that may only be read
  static Result<std::unique_ptr<PlannedRounds>> begin(MemoryRegistry& registry, std::shared_ptr<const PlannedRanges> plan,
                                                      std::optional<Chosen> chosen, bool writes = false);

  /// Uses of all its regions.
  std::span<const RegionUse> uses() const { return uses_; }
  /// Every range has been in a round.
  bool done() const { return next_ == count_; }
  /// Gives the operation the ranges of the next round. There is one unless `done`, and the first one always: of nothing if need be.
  void next(Operation& operation);

 private:
  PlannedRounds(std::shared_ptr<const PlannedRanges> plan, std::vector<RegionUse> uses, std::vector<uint32_t> indices,
                std::vector<uint32_t> remote_indices, size_t count)
      : plan_(std::move(plan)),
        uses_(std::move(uses)),
        indices_(std::move(indices)),
        remote_indices_(std::move(remote_indices)),
        count_(count) {}
  PlannedRanges::Range at(size_t index) const;
  Status check_targets() const;

  const std::shared_ptr<const PlannedRanges> plan_;
  const std::vector<RegionUse> uses_;           // of its regions
  const std::vector<uint32_t> indices_;         // empty: all, in order
  const std::vector<uint32_t> remote_indices_;  // empty: the same
  const size_t count_;
  size_t next_ = 0;
};

}  // namespace tcpx
