#include "measure/slot_memory.h"

#include "measure/pattern.h"
#include "measure/size_sweep.h"

namespace tcpx::perf {

Result<SlotMemory> SlotMemory::create(MemoryOps& memory, MemoryType type, int gpu, uint64_t bytes) {
  const size_t rounded = slot_stride(bytes);
  auto buffer = type == MemoryType::kCuda ? memory.allocate_device(gpu, rounded) : memory.allocate_mapped(gpu, rounded);
  if (!buffer.is_ok()) return buffer.status();
  if (std::byte* const host = buffer->host(); host != nullptr) {
    // The first touch of a page is a fault, which is not what is to be measured.
    for (size_t at = 0; at < rounded; at += kPageBytes) host[at] = std::byte{};
    return SlotMemory(type, std::move(*buffer), nullptr);
  }
  auto on_gpu = GpuPattern::create(gpu, memory);
  if (!on_gpu.is_ok()) return on_gpu.status();
  return SlotMemory(type, std::move(*buffer), std::move(*on_gpu));
}

std::byte* SlotMemory::address() const {
  return type_ == MemoryType::kCuda ? buffer_.device() : buffer_.host();
}

Status SlotMemory::fill(uint64_t offset, uint64_t bytes, uint64_t seed) {
  if (on_gpu_) return on_gpu_->fill(buffer_.device() + offset, bytes, seed);
  fill_pattern({buffer_.host() + offset, bytes}, seed);
  return Status::ok();
}

Result<PatternCheck> SlotMemory::check(uint64_t offset, uint64_t bytes, uint64_t seed) {
  if (on_gpu_) return on_gpu_->check(buffer_.device() + offset, bytes, seed);
  return check_pattern({buffer_.host() + offset, bytes}, seed);
}

}  // namespace tcpx::perf
