#include "device/unpacker_factory.h"

#include <utility>
#include <vector>

#include "device/copy_batch.h"
#include "device/event_ring.h"
#include "device/fragment_merge.h"

namespace tcpx {
namespace {

class D2dUnpacker final : public Unpacker {
 public:
  explicit D2dUnpacker(std::unique_ptr<EventRing> ring) : ring_(std::move(ring)), copies_(ring_->stream()) {
    merged_.reserve(kMaxFragments);
  }

  const char* name() const override { return "d2d"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(ring_->ready(blocks.size()));
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(ring_->device()));
    const Status started = start(blocks);
    if (!started.is_ok()) return ring_->fail(started);
    return ring_->commit();
  }

  Result<bool> query(UnpackTicket ticket) override { return ring_->query(ticket); }

 private:
  Status start(std::span<const DescriptorBlock> blocks) {
    for (const DescriptorBlock& block : blocks) {
      if (block.fragments().empty()) continue;
      const UnpackTarget& target = block.target();
      TCPX_RETURN_IF_ERROR(copies_.between(target.destination, target.pool));
      // Per block: neighbours of different blocks can be in different allocations, and no copy may span two.
      merge_fragments(block.fragments(), merged_);
      for (const Fragment& run : merged_) {
        TCPX_RETURN_IF_ERROR(copies_.add(target.destination + run.dst_off, target.pool + run.src_off, run.len));
      }
    }
    return copies_.start();
  }

  const std::unique_ptr<EventRing> ring_;
  CopyBatch copies_;
  std::vector<Fragment> merged_;  // scratch of submit
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_d2d_unpacker(int device) {
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<EventRing> ring, EventRing::create(device));
  return std::unique_ptr<Unpacker>(std::make_unique<D2dUnpacker>(std::move(ring)));
}

}  // namespace tcpx
