// Counts memory allocated through another MemoryOps and not yet freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/memory_ops.h"

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
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override {
    return counted(memory_.allocate_mapped(device, bytes), mapped_bytes_);
  }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    return counted(memory_.allocate_device(device, bytes), device_bytes_);
  }
  bool host_readable(const void* address) const override { return memory_.host_readable(address); }
  bool is_device_memory(const void* address) const override { return memory_.is_device_memory(address); }
  std::optional<uint64_t> extent(const void* address) const override { return memory_.extent(address); }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override { return memory_.make_copy_lane(device); }

 private:
  static Result<MemoryBuffer> counted(Result<MemoryBuffer> allocated, std::atomic<size_t>& count) {
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
