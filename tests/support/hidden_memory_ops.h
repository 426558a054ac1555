// A GPU for a machine that has none, as far as addresses go: device memory that the host cannot touch.
//
// Device memory is mapped without any access right, so whoever reads or writes it on the host dies on the spot; only copy lanes
// reach it, through a second mapping of the same pages. Mapped memory is ordinary host memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "base/memory_ops.h"
#include "base/mutex.h"

namespace tcpx::testing {

class HiddenMemoryOps final : public MemoryOps {
 public:
  /// From now on the copy lanes fail with kSystem.
  void break_copies() { broken_ = true; }
  /// Copies that the lanes have made.
  uint64_t copies() const { return copies_; }

  bool has_gpu() const override { return true; }
  int device_count() const override { return 1; }
  Result<int> current_device() const override { return 0; }
  Status set_current_device(int device) override { return host_->set_current_device(device); }
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override { return host_->allocate_mapped(device, bytes); }

  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    TCPX_RETURN_IF_ERROR(host_->set_current_device(device));
    const int file = ::memfd_create("hidden", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return failed();
    void* hidden = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    void* open = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (hidden == MAP_FAILED || open == MAP_FAILED) return failed();
    {
      const MutexLock lock(mutex_);
      ranges_[reinterpret_cast<uintptr_t>(hidden)] = {bytes, static_cast<std::byte*>(open)};
    }
    return MemoryBuffer(nullptr, hidden, bytes, [this, hidden, open, bytes] {
      const MutexLock lock(mutex_);
      ranges_.erase(reinterpret_cast<uintptr_t>(hidden));
      ::munmap(hidden, bytes);
      ::munmap(open, bytes);
    });
  }

  bool host_readable(const void* address) const override { return reachable(address) == address; }
  bool is_device_memory(const void* address) const override { return !host_readable(address); }
  std::optional<uint64_t> extent(const void* address) const override { return host_->extent(address); }

  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override {
    TCPX_RETURN_IF_ERROR(host_->set_current_device(device));
    return std::unique_ptr<CopyLane>(std::make_unique<Lane>(this));
  }

 private:
  struct Range {
    size_t bytes;
    std::byte* open;
  };

  class Lane final : public CopyLane {
   public:
    explicit Lane(HiddenMemoryOps* ops) : ops_(ops) {}
    Status copy(void* dst, const void* src, size_t bytes) override {
      if (ops_->broken_) return Status(Code::kSystem, "copy memory", "broken by the test");
      ++ops_->copies_;
      if (bytes != 0) std::memcpy(ops_->reachable(dst), ops_->reachable(src), bytes);
      return Status::ok();
    }

   private:
    HiddenMemoryOps* ops_;
  };

  static Status failed() { return Status(Code::kSystem, "allocate hidden memory", "refused", Domain::kErrno, errno); }

  /// Where the host can touch what lies at `address`.
  void* reachable(const void* address) const {
    const MutexLock lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto range = ranges_.upper_bound(at);
    if (range == ranges_.begin()) return const_cast<void*>(address);
    --range;
    const uintptr_t offset = at - range->first;
    return offset < range->second.bytes ? range->second.open + offset : const_cast<void*>(address);
  }

  const std::unique_ptr<MemoryOps> host_ = make_host_memory_ops();
  mutable Mutex mutex_;
  std::map<uintptr_t, Range> ranges_ TCPX_GUARDED_BY(mutex_);
  std::atomic<bool> broken_ = false;
  std::atomic<uint64_t> copies_ = 0;
};

}  // namespace tcpx::testing
