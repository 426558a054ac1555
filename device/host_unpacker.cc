#include "device/unpacker_factory.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/guarded_copy.h"
#include "base/socket_io.h"
#include "device/fragment_merge.h"
#include "device/ticket_ring.h"
#include "tcpx/types.h"

namespace tcpx {
namespace {

/// Staging memory per direction: long enough that the fixed cost of a copy (7 us on an H200) does not matter beside the bus.
constexpr size_t kStagingBytes = size_t{1} << 20;
/// Largest gap between two stretches of the pool that is fetched along with them, because a second copy takes longer: a bus of
/// 50 GB/s moves the gap in 2.6 us.
constexpr uint64_t kGapBytes = uint64_t{128} << 10;

/// One copy that fetches several fragments and the bytes between them.
struct Fetch {
  size_t count;
  uint64_t bytes;
};

/// Fragments to fetch at once, from the first on.
/// @param list not empty, in the order of the source; fragments may share bytes of it.
Fetch next_fetch(std::span<const Fragment> list) {
  const uint64_t begin = list.front().src_off;
  Fetch fetch{1, list.front().len};
  for (const Fragment& next : list.subspan(1)) {
    const uint64_t next_begin = next.src_off - begin;
    const uint64_t bytes = std::max(fetch.bytes, next_begin + next.len);
    if (next_begin > fetch.bytes + kGapBytes || bytes > kStagingBytes) break;
    fetch = {fetch.count + 1, bytes};
  }
  return fetch;
}

class HostUnpacker final : public Unpacker {
 public:
  HostUnpacker(MemoryOps& memory, MemoryBuffer fetched, MemoryBuffer gathered, std::unique_ptr<CopyLane> lane)
      : memory_(memory), fetched_(std::move(fetched)), gathered_(std::move(gathered)), lane_(std::move(lane)) {
    merged_.reserve(kMaxFragments);
    portion_.reserve(kMaxFragments);
  }

  const char* name() const override { return "host"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(tickets_.ready(blocks.size()));
    for (const DescriptorBlock& block : blocks) {
      const Status copied = unpack(block);
      if (!copied.is_ok()) return tickets_.fail(copied);
    }
    return tickets_.push();
  }

  Result<bool> query(UnpackTicket ticket) override {
    return tickets_.query(ticket, [](size_t) { return Result<bool>(true); });
  }

 private:
  Status unpack(const DescriptorBlock& block) {
    const UnpackTarget& target = block.target();
    merge_fragments(block.fragments(), merged_);
    if (memory_.host_readable(target.destination)) return gather(target.pool, merged_, target.destination);
    return unpack_in_portions(target);
  }

  /// merged_ is in the order of the destination and has no gaps there, so the staging memory always holds one stretch of it.
  Status unpack_in_portions(const UnpackTarget& target) {
    uint64_t flushed = 0;
    size_t staged = 0;
    const auto flush = [&]() -> Status {
      TCPX_RETURN_IF_ERROR(gather(target.pool, portion_, gathered_.host()));
      TCPX_RETURN_IF_ERROR(lane_->copy(target.destination + flushed, gathered_.device(), staged));
      flushed += staged;
      staged = 0;
      portion_.clear();
      return Status::ok();
    };
    portion_.clear();
    for (const Fragment& run : merged_) {
      for (uint32_t done = 0; done < run.len;) {
        const auto part = static_cast<uint32_t>(std::min<uint64_t>(run.len - done, kStagingBytes - staged));
        portion_.push_back({run.src_off + done, part, staged});
        done += part;
        staged += part;
        if (staged == kStagingBytes) TCPX_RETURN_IF_ERROR(flush());
      }
    }
    return staged == 0 ? Status::ok() : flush();
  }

  /// @param from what lies `begin` bytes into the pool
  Status copy(std::span<const Fragment> list, const std::byte* from, uint32_t begin, std::byte* to) {
    segments_.clear();
    for (const Fragment& f : list) segments_.push_back({to + f.dst_off, from + (f.src_off - begin), f.len});
    const int error = guarded_copy(segments_);
    return error == 0 ? Status::ok() : system_error("unpack", error);
  }

  /// Copies `list` from the pool to `to`, which the host can write. May reorder the list.
  Status gather(const std::byte* pool, std::span<Fragment> list, std::byte* to) {
    if (list.empty()) return Status::ok();
    if (memory_.host_readable(pool)) {
      return copy(list, pool, 0, to);
    }
    std::sort(list.begin(), list.end(), [](const Fragment& a, const Fragment& b) { return a.src_off < b.src_off; });
    while (!list.empty()) {
      const uint32_t begin = list.front().src_off;
      const Fetch fetch = next_fetch(list);
      // A fragment fetched alone needs no second copy, and may be longer than the staging memory.
      std::byte* const fetched = fetch.count == 1 ? to + list.front().dst_off : fetched_.host();
      TCPX_RETURN_IF_ERROR(lane_->copy(fetched, pool + begin, fetch.bytes));
      if (fetch.count > 1) {
        TCPX_RETURN_IF_ERROR(copy(list.first(fetch.count), fetched, begin, to));
      }
      list = list.subspan(fetch.count);
    }
    return Status::ok();
  }

  MemoryOps& memory_;
  const MemoryBuffer fetched_;   // a stretch in transit from a pool that the host cannot read
  const MemoryBuffer gathered_;  // a stretch in transit to a destination that the host cannot write
  const std::unique_ptr<CopyLane> lane_;
  std::vector<Fragment> merged_;                            // scratch of submit
  std::vector<Fragment> portion_;                           // scratch of submit: the part for gathered_
  std::vector<CopySegment> segments_;                       // scratch of submit
  TicketRing tickets_{std::numeric_limits<size_t>::max()};  // nothing is ever in flight, so nothing fills up
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_host_unpacker(int device, MemoryOps& memory) {
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer fetched, memory.allocate_mapped(device, kStagingBytes));
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer gathered, memory.allocate_mapped(device, kStagingBytes));
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<CopyLane> lane, memory.make_copy_lane(device));
  return std::unique_ptr<Unpacker>(
      std::make_unique<HostUnpacker>(memory, std::move(fetched), std::move(gathered), std::move(lane)));
}

}  // namespace tcpx
