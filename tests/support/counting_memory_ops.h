// Counts memory allocated through another MemoryOps and not yet freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/memory_ops.h"
#include "tests/support/open_counts.h"

namespace tcpx::testing {

class CountingMemoryOps : public MemoryOps {
 public:
  /// `memory` must outlive this; this must outlive all memory allocated through it.
  explicit CountingMemoryOps(MemoryOps& memory) : memory_(memory) {}

  /// Bytes in use of mapped memory, and of all memory.
  size_t mapped_bytes() const { return mapped_bytes_; }
  size_t all_bytes() const { return mapped_bytes_ + device_bytes_; }

  bool has_gpu() const override { return memory_.has_gpu(); }
  int device_count() const override { return memory_.device_count(); }
  Result<int> current_device() const override { return memory_.current_device(); }
  Status set_current_device(int device) override { return memory_.set_current_device(device); }
  Result<EnteredDevice> enter(int device) override { return memory_.enter(device); }
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override {
    return summed(counted("allocations of mapped memory", memory_.allocate_mapped(device, bytes)), mapped_bytes_);
  }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    return summed(counted("allocations of GPU memory", memory_.allocate_device(device, bytes)), device_bytes_);
  }
  bool host_readable(const void* address) const override { return memory_.host_readable(address); }
  bool is_device_memory(const void* address) const override { return memory_.is_device_memory(address); }
  std::optional<uint64_t> extent(const void* address) const override { return memory_.extent(address); }
  std::optional<std::string> pci_path(int device) const override { return memory_.pci_path(device); }
  std::optional<int> gpu_of(const void* address) const override { return memory_.gpu_of(address); }
  bool reaches(int device, const void* address) override { return memory_.reaches(device, address); }
  Status check_export(int device, const Pages& pages) override { return memory_.check_export(device, pages); }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override { return memory_.make_copy_lane(device); }
  Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int device) override { return memory_.make_segment_copier(device); }
  std::unique_ptr<GpuOrder> make_gpu_order(int device) override { return memory_.make_gpu_order(device); }

 private:
  static Result<MemoryBuffer> summed(Result<MemoryBuffer> allocated, std::atomic<size_t>& count) {
    if (!allocated.is_ok()) return allocated;
    const size_t bytes = allocated->size();
    count += bytes;
    const auto memory =
        std::make_shared<MemoryBuffer>(std::move(*allocated));  // shared, because a std::function must be copyable
    return MemoryBuffer(memory->host(), memory->device(), bytes, [memory, bytes, &count] { count -= bytes; });
  }

  MemoryOps& memory_;
  std::atomic<size_t> mapped_bytes_ = 0, device_bytes_ = 0;
};

}  // namespace tcpx::testing
