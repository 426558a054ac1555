// Checks the ranges of operations: one by one when an operation names them, or once for many operations (TransferPlan). The ranges of
// a plan are moved in rounds, because one frame names at most kMaxWireRanges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/memory_registry.h"
#include "tcpx/endpoint.h"

namespace tcpx {

struct Operation;

/// Content of a TransferPlan. Never changes, so any thread. Many ranges share a region or slot; tables of these keep it small.
struct PlannedRanges {
  struct Range {
    std::byte* data = nullptr;
    uint64_t bytes = 0, offset = 0;  ///< offset: in the slot
    uint32_t region = 0, slot = 0;   ///< indices
  };
  static_assert(sizeof(Range) == 32);  // plans for a model's KV cache have hundreds of thousands of ranges
  uint64_t endpoint = 0;               ///< instance that registered the regions
  /// If not 0, the only range is divided into blocks of this size, `blocks` here and `remote_blocks` in the slot, and operations name
  /// blocks of both.
  uint64_t block_bytes = 0, blocks = 0, remote_blocks = 0;
  uint64_t bytes = 0;  ///< of all ranges, unless they are blocks
  std::vector<Range> ranges;
  std::vector<MemoryId> regions;
  std::vector<SlotId> slots;

  /// Ranges or blocks that an operation moves which names none.
  size_t count() const { return block_bytes == 0 ? ranges.size() : std::min(blocks, remote_blocks); }
  /// About as many bytes as `some` of the ranges have.
  uint64_t bytes_of(size_t some) const {
    return block_bytes != 0 ? some * block_bytes : ranges.empty() ? 0 : bytes / ranges.size() * some;
  }
};

/// Checks the ranges and keeps what operations need of them. Holds no region.
/// @param remote as many as `ranges`. @param endpoint instance of the registry
/// @return kNotFound, kInvalidArgument, kUnsupported naming the range
Result<std::shared_ptr<const PlannedRanges>> plan_ranges(MemoryRegistry& registry, std::span<const LocalRange> ranges,
                                                         std::span<const RemoteRange> remote, uint64_t endpoint);

/// As plan_ranges, for blocks of `block_bytes` bytes. @param remote where the slot's blocks begin; they end within the slot
Result<std::shared_ptr<const PlannedRanges>> plan_blocks(MemoryRegistry& registry, const LocalRange& local,
                                                         const RemoteRange& remote, size_t block_bytes, uint64_t endpoint);

/// Checks ranges and gives them to an operation. Ranges that follow each other at both ends are joined. Caller's thread.
/// @param remote empty, or as many as `ranges`. @param first number of the first range, for errors
/// @return as plan_ranges
Status hold_ranges(MemoryRegistry& registry, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                   Operation& operation, size_t first = 0);

/// Parts of an operation of many ranges. While the peer copies one, the next is looked up, told and looked up there, which takes about
/// as long as NVLink takes for ranges of 16 KiB.
/// @return 1 ... kMaxParts
size_t parts_of(size_t ranges, uint64_t bytes);
inline constexpr size_t kMaxParts = 16;
/// Part `part` of `parts` of `count` things: begin and end.
std::pair<size_t, size_t> stretch_of(size_t count, size_t part, size_t parts);

/// The GPUs whose memory the operation uses, each once. Needed because the handle of a default stream does not tell its GPU.
/// @param own the endpoint's GPU, returned for an operation without ranges
std::vector<int> gpus_of(const Operation& operation, int own);

/// The ranges of a plan that one operation moves, round by round. One thread at a time.
class PlannedRounds {
 public:
  /// Indices of the ranges to move, in this order. Of blocks, the indices here and in the slot may differ.
  struct Chosen {
    std::span<const uint32_t> local, remote;
  };
  /// Holds all regions of the plan from here on. @param chosen nullopt: all ranges. @param writes the chosen ranges will be written
  /// @param part of `parts`: only these of the ranges
  /// @return kNotFound: a region is not registered any more; kInvalidArgument: an index beyond the plan, remote indices that do not
  /// fit, or a write to memory that may only be read
  static Result<std::unique_ptr<PlannedRounds>> begin(MemoryRegistry& registry, std::shared_ptr<const PlannedRanges> plan,
                                                      std::optional<Chosen> chosen, bool writes = false, size_t part = 0,
                                                      size_t parts = 1);

  /// Uses of all regions of the plan.
  std::span<const RegionUse> uses() const { return uses_; }
  /// True when every range has been in a round.
  bool done() const { return next_ == end_; }
  /// Gives the operation the ranges of the next round. Call it once at first, even if there are no ranges, and then until `done`.
  void next(Operation& operation);

 private:
  PlannedRounds(std::shared_ptr<const PlannedRanges> plan, std::vector<RegionUse> uses, std::vector<uint32_t> indices,
                std::vector<uint32_t> remote_indices, std::pair<size_t, size_t> stretch)
      : plan_(std::move(plan)),
        uses_(std::move(uses)),
        indices_(std::move(indices)),
        remote_indices_(std::move(remote_indices)),
        next_(stretch.first),
        end_(stretch.second) {}
  PlannedRanges::Range at(size_t index) const;
  Status check_targets() const;

  const std::shared_ptr<const PlannedRanges> plan_;
  const std::vector<RegionUse> uses_;           // of the plan's regions
  const std::vector<uint32_t> indices_;         // empty: all, in order
  const std::vector<uint32_t> remote_indices_;  // empty: as indices_
  size_t next_;
  const size_t end_;
};

}  // namespace tcpx
