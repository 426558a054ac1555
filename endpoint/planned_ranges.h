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
  bool counts_uses = false;  ///< of a slot at least

  /// Uses of the regions, one each. @return kNotFound: one is not registered any more
  Status hold(MemoryRegistry& registry, std::vector<RegionUse>& uses) const;
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

/// The ranges that a call names. Caller's thread; what it was made of must outlive it.
class NamedRanges {
 public:
  /// @param remote empty, or as many as `ranges`
  NamedRanges(std::span<const LocalRange> ranges, std::span<const RemoteRange> remote) : ranges_(ranges), remote_(remote) {}

  /// Checks them, and holds their regions. @param writes they will be written. @return as plan_ranges
  Status check(MemoryRegistry& registry, bool writes);
  /// Bytes of all ranges, after `check`.
  uint64_t bytes() const { return bytes_; }
  /// True when a slot at least counts its uses, after `check`.
  bool counts_uses() const { return counts_uses_; }
  /// Uses of the regions, once, after `check`.
  std::vector<RegionUse> take_uses() { return std::move(uses_); }
  /// Makes room for `count` ranges, so that `give` takes no memory.
  void make_room(size_t count, Operation& operation) const;
  /// Gives an operation the next `count` ranges. Those that follow each other at both ends are joined. Only after `check`.
  /// @param uses from `take_uses`
  void give(size_t count, std::span<const RegionUse> uses, Operation& operation);

 private:
  const std::span<const LocalRange> ranges_;
  const std::span<const RemoteRange> remote_;
  std::vector<RegionUse> uses_;
  uint64_t bytes_ = 0;
  bool counts_uses_ = false;
  size_t next_ = 0;
  size_t use_ = 0;  // of the range before
};

/// Parts of an operation of many ranges. While the peer copies one, the next is looked up, told and looked up there, which takes about
/// as long as NVLink takes for ranges of 16 KiB.
/// @return 1 ... kMaxParts
size_t parts_of(size_t ranges, uint64_t bytes);
inline constexpr size_t kMaxParts = 16;
/// Part `part` of `parts` of `count` things: begin and end. Each part is longer than the one before by as much as the first is long: the
/// first ones begin early, and the last ones cost little.
std::pair<size_t, size_t> stretch_of(size_t count, size_t part, size_t parts);

/// The GPUs whose memory is used, each once. Needed because the handle of a default stream does not tell its GPU.
/// @param own the endpoint's GPU, returned where there is no memory
std::vector<int> gpus_of(std::span<const RegionUse> uses, int own);

/// The ranges of a plan that one operation moves, round by round. One thread at a time.
class PlannedRounds {
 public:
  /// Indices of the ranges to move, in this order. Of blocks, the indices here and in the slot may differ.
  struct Chosen {
    std::span<const uint32_t> local, remote;
  };
  /// @param uses of all regions of the plan, and for as long. @param chosen nullopt: all ranges
  /// @param writes the chosen ranges will be written. @param part of `parts`: only these of the ranges
  /// @return kInvalidArgument: an index beyond the plan, remote indices that do not
  /// fit, or a write to memory that may only be read
  static Result<std::unique_ptr<PlannedRounds>> begin(std::shared_ptr<const PlannedRanges> plan, std::span<const RegionUse> uses,
                                                      std::optional<Chosen> chosen, bool writes = false, size_t part = 0,
                                                      size_t parts = 1);

  /// True when every range has been in a round.
  bool done() const { return next_ == end_; }
  /// Gives the operation the ranges of the next round. Call it once at first, even if there are no ranges, and then until `done`.
  void next(Operation& operation);

 private:
  PlannedRounds(std::shared_ptr<const PlannedRanges> plan, std::span<const RegionUse> uses, std::vector<uint32_t> indices,
                std::vector<uint32_t> remote_indices, std::pair<size_t, size_t> stretch, size_t first)
      : plan_(std::move(plan)),
        uses_(uses),
        indices_(std::move(indices)),
        remote_indices_(std::move(remote_indices)),
        first_(first),
        next_(stretch.first),
        end_(stretch.second) {}
  PlannedRanges::Range at(size_t index) const;
  Status check_targets() const;

  const std::shared_ptr<const PlannedRanges> plan_;
  const std::span<const RegionUse> uses_;       // of the plan's regions
  const std::vector<uint32_t> indices_;         // empty: all, in order
  const std::vector<uint32_t> remote_indices_;  // empty: as indices_
  const size_t first_;                          // of `indices_` among all that the call names
  size_t next_;
  const size_t end_;
};

}  // namespace tcpx
