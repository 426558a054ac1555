#include "device/host_unpacker.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "device/fragment_merge.h"
#include "device/ticket_ring.h"
#include "tcpx/types.h"

namespace tcpx {
namespace {

/// Staging memory: long enough that the fixed cost of a copy to the GPU (7 us on an H200) does not matter beside the bus.
constexpr size_t kStagingBytes = size_t{1} << 20;

class HostUnpacker final : public Unpacker {
 public:
  HostUnpacker(MemoryOps& memory, MemoryBuffer staging, std::unique_ptr<CopyLane> lane)
      : memory_(memory), staging_(std::move(staging)), lane_(std::move(lane)) {
    merged_.reserve(kMaxFragments);
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
    const bool pool_readable = memory_.host_readable(target.pool);
    merge_fragments(block.fragments(), merged_);
    if (memory_.host_readable(target.destination)) {
      for (const Fragment& run : merged_) {
        TCPX_RETURN_IF_ERROR(fetch(target.destination + run.dst_off, target.pool + run.src_off, run.len, pool_readable));
      }
      return Status::ok();
    }
    return unpack_through_staging(target, pool_readable);
  }

  /// merged_ is in the order of the destination and has no gaps there, so the staging memory always holds one stretch of it.
  Status unpack_through_staging(const UnpackTarget& target, bool pool_readable) {
    uint64_t flushed = 0;
    size_t staged = 0;
    for (const Fragment& run : merged_) {
      for (uint32_t done = 0; done < run.len;) {
        const auto part = static_cast<uint32_t>(std::min<uint64_t>(run.len - done, kStagingBytes - staged));
        TCPX_RETURN_IF_ERROR(fetch(staging_.host() + staged, target.pool + run.src_off + done, part, pool_readable));
        done += part;
        staged += part;
        if (staged < kStagingBytes) continue;
        TCPX_RETURN_IF_ERROR(lane_->copy(target.destination + flushed, staging_.device(), staged));
        flushed += staged;
        staged = 0;
      }
    }
    return staged == 0 ? Status::ok() : lane_->copy(target.destination + flushed, staging_.device(), staged);
  }

  Status fetch(std::byte* to, const std::byte* from, size_t bytes, bool pool_readable) {
    if (!pool_readable) return lane_->copy(to, from, bytes);
    std::memcpy(to, from, bytes);
    return Status::ok();
  }

  MemoryOps& memory_;
  const MemoryBuffer staging_;
  const std::unique_ptr<CopyLane> lane_;
  std::vector<Fragment> merged_;                            // scratch of submit
  TicketRing tickets_{std::numeric_limits<size_t>::max()};  // nothing is ever in flight, so nothing fills up
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_host_unpacker(int device, MemoryOps& memory) {
  Result<MemoryBuffer> staging = memory.allocate_mapped(device, kStagingBytes);
  if (!staging.is_ok()) return staging.status();
  Result<std::unique_ptr<CopyLane>> lane = memory.make_copy_lane(device);
  if (!lane.is_ok()) return lane.status();
  return std::unique_ptr<Unpacker>(std::make_unique<HostUnpacker>(memory, std::move(staging).value(), std::move(lane).value()));
}

}  // namespace tcpx
