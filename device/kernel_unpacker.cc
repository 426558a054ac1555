#include "device/kernel_unpacker.h"

#include <algorithm>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "device/event_ring.h"
#include "device/unpack_launch.h"
#include "device/unpack_policy.h"

namespace tcpx {
namespace {

constexpr size_t kBlockBytes = kMaxFragments * sizeof(KernelFragment);
constexpr size_t kSlotBytes = kMaxBatchBlocks * kBlockBytes;

class KernelUnpacker final : public Unpacker {
 public:
  KernelUnpacker(MemoryOps& memory, MemoryBuffer slots, uint32_t block_budget, std::unique_ptr<EventRing> ring)
      : memory_(memory), slots_(std::move(slots)), block_budget_(block_budget), ring_(std::move(ring)) {}

  const char* name() const override { return "kernel"; }

  Result<UnpackTicket> submit(std::span<const DescriptorBlock> blocks) override {
    TCPX_RETURN_IF_ERROR(ring_->ready(blocks.size()));
    const Result<DeviceGuard> guard = DeviceGuard::enter(ring_->device());
    if (!guard.is_ok()) return guard.status();
    size_t slot = ring_->next_slot() * kSlotBytes;
    for (const DescriptorBlock& block : blocks) {
      const std::span<const Fragment> fragments = block.fragments();
      const LaunchPolicy policy = choose_launch_policy(shape_of(block), block_budget_);
      if (policy.blocks == 0) continue;
      auto* const list = reinterpret_cast<KernelFragment*>(slots_.host() + slot);
      std::transform(fragments.begin(), fragments.end(), list, [&](const Fragment& f) {
        return KernelFragment{f.src_off, f.len, block.target().destination + f.dst_off};
      });
      const UnpackLaunch launch{reinterpret_cast<const KernelFragment*>(slots_.device() + slot),
                                static_cast<uint32_t>(fragments.size()), block.target().pool};
      const cudaError_t error = launch_unpack(policy, launch, ring_->stream().get());
      if (error != cudaSuccess) return ring_->fail(cuda_error(error, "launch unpack kernel"));
      slot += kBlockBytes;
    }
    return ring_->commit();
  }

  Result<bool> query(UnpackTicket ticket) override { return ring_->query(ticket); }

 private:
  UnpackShape shape_of(const DescriptorBlock& block) {
    const UnpackTarget& target = block.target();
    const uint64_t between_bases = reinterpret_cast<uintptr_t>(target.pool) - reinterpret_cast<uintptr_t>(target.destination);
    uint64_t differing = 0;
    uint32_t longest = 0;
    for (const Fragment& fragment : block.fragments()) {
      differing |= between_bases + fragment.src_off - fragment.dst_off;
      longest = std::max(longest, fragment.len);
    }
    return UnpackShape{static_cast<uint32_t>(block.fragments().size()), block.message_bytes(), longest,
                       differing % 16 == 0 ? AlignmentClass::kCongruent : AlignmentClass::kMixed, pool_memory(target.pool)};
  }

  PoolMemory pool_memory(const std::byte* pool) {
    // Asked once per pool, because the answer costs a driver call. A stale one would only cost speed.
    if (pool != known_pool_) {
      known_pool_memory_ = memory_.is_device_memory(pool) ? PoolMemory::kDevice : PoolMemory::kMappedHost;
      known_pool_ = pool;
    }
    return known_pool_memory_;
  }

  MemoryOps& memory_;
  const MemoryBuffer slots_;  // kQueueDepth scatter lists, read by the kernel where the host wrote them
  const uint32_t block_budget_;
  const std::byte* known_pool_ = nullptr;
  PoolMemory known_pool_memory_ = PoolMemory::kDevice;
  const std::unique_ptr<EventRing> ring_;  // last: its destructor waits for the launches that read slots_
};

}  // namespace

Result<std::unique_ptr<Unpacker>> make_kernel_unpacker(int device, MemoryOps& memory) {
  Result<std::unique_ptr<EventRing>> ring = EventRing::create(device);
  if (!ring.is_ok()) return ring.status();
  Result<MemoryBuffer> slots = memory.allocate_mapped(device, kQueueDepth * kSlotBytes);
  if (!slots.is_ok()) return slots.status();
  const Result<DeviceGuard> guard = DeviceGuard::enter(device);
  if (!guard.is_ok()) return guard.status();
  int multiprocessors = 0;
  TCPX_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "count multiprocessors"));
  const cudaError_t loaded = load_unpack_kernels();
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorUnsupportedPtxVersion) {
    return Status(Code::kUnsupported, "make unpacker kernel",
                  concat("this build has no kernel for GPU ", device, " (", cudaGetErrorName(loaded), "); use ",
                         environment_info(Variable::kUnpackImpl).name, "=d2d or host"),
                  Domain::kCuda, static_cast<int32_t>(loaded));
  }
  TCPX_RETURN_IF_ERROR(cuda_status(loaded, "load unpack kernels"));
  return std::unique_ptr<Unpacker>(std::make_unique<KernelUnpacker>(
      memory, std::move(slots).value(), static_cast<uint32_t>(multiprocessors), std::move(ring).value()));
}

}  // namespace tcpx
