// Host memory that passes for that of several GPUs: each allocation belongs to one, each thread has a current one, and copiers
// touch what their GPU reaches: its own memory, that of its peers, and the host's.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "tests/support/open_counts.h"

namespace tcpx::testing {

class SeveralGpus final : public MemoryOps {
 public:
  explicit SeveralGpus(int count) : count_(count) {}

  // Before an endpoint uses them:
  /// `device` can be let reach the memory of `owner`.
  void let_reach(int device, int owner) { peers_.insert({device, owner}); }
  /// Another end can map any memory, where it is.
  void let_share() { shares_ = true; }
  /// It has no copiers.
  void without_copiers(int device) { no_copiers_ = device; }

  /// Streams that have been marked, and the GPUs whose default streams they might have been.
  std::vector<std::pair<void*, int>> marked() const {
    const MutexLock lock(mutex_);
    return marked_;
  }

  /// Checksums that copiers of this GPU have begun.
  uint64_t sums(int device) const { return sums_.at(static_cast<size_t>(device)); }

  bool has_gpu() const override { return true; }
  int device_count() const override { return count_; }
  Result<int> current_device() const override { return current(); }
  Status set_current_device(int device) override {
    current() = device;
    return Status::ok();
  }
  Result<MemoryBuffer> allocate_mapped(int, size_t bytes) override {
    return counted("allocations of mapped memory", host_->allocate_mapped(0, bytes));
  }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    TCPX_ASSIGN_OR_RETURN(MemoryBuffer buffer, counted("allocations of GPU memory", host_->allocate_device(0, bytes)));
    const auto begin = reinterpret_cast<uintptr_t>(buffer.device());
    const MutexLock lock(mutex_);
    owned_[begin] = {begin + bytes, device};
    const auto memory = std::make_shared<MemoryBuffer>(std::move(buffer));  // shared: a std::function must be copyable
    return MemoryBuffer(memory->host(), memory->device(), bytes, [this, memory, begin] {
      const MutexLock freeing(mutex_);
      owned_.erase(begin);
    });
  }
  bool host_readable(const void*) const override { return true; }
  bool is_device_memory(const void* address) const override { return gpu_of(address).has_value(); }
  std::optional<int> gpu_of(const void* address) const override {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const MutexLock lock(mutex_);
    const auto behind = owned_.upper_bound(at);
    if (behind == owned_.begin()) return std::nullopt;
    const auto [end, device] = std::prev(behind)->second;
    return at < end ? std::optional(device) : std::nullopt;
  }
  bool reaches(int device, const void* address) override {
    const std::optional<int> owner = gpu_of(address);
    return !owner || *owner == device || peers_.contains({device, *owner});
  }
  std::optional<uint64_t> extent(const void* address) const override { return host_->extent(address); }
  Result<MemoryShare> share(const void* address, UniqueFd& fd) override {
    if (!shares_) return MemoryOps::share(address, fd);
    constexpr uint64_t kRest = uint64_t{1} << 40;
    return MemoryShare{.kind = ShareKind::kIpc, .base = reinterpret_cast<uintptr_t>(address), .bytes = kRest, .identity = 1};
  }
  Result<MemoryBuffer> map_shared(int /*device*/, const MemoryShare& share, int /*fd*/) override {
    return MemoryBuffer(nullptr, reinterpret_cast<void*>(share.base), share.bytes, [] {});
  }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int) override { return host_->make_copy_lane(0); }
  Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int device) override {
    if (device == no_copiers_) return Status(Code::kUnsupported, "make segment copier", "none by order of the test");
    TCPX_ASSIGN_OR_RETURN(auto copier, host_->make_segment_copier(0));
    return std::unique_ptr<SegmentCopier>(std::make_unique<Copier>(*this, device, std::move(copier)));
  }
  std::unique_ptr<GpuOrder> make_gpu_order(int) override { return std::make_unique<Order>(*this); }

 private:
  bool shares_ = false;
  class Copier final : public SegmentCopier {
   public:
    Copier(SeveralGpus& gpus, int device, std::unique_ptr<SegmentCopier> copier)
        : gpus_(gpus), device_(device), copier_(std::move(copier)) {}
    Result<CopyTicket> submit(std::span<const CopySegment> segments) override {
      check(segments);
      return copier_->submit(segments);
    }
    Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
      check(segments);
      ++gpus_.sums_.at(static_cast<size_t>(device_));
      return copier_->submit_summed(segments, place, part);
    }
    Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
      check_current();
      for (const CopySegment& segment : segments)
        EXPECT_TRUE(gpus_.reaches(device_, segment.from)) << "GPU " << device_ << " sums where it reaches nothing";
      ++gpus_.sums_.at(static_cast<size_t>(device_));
      return copier_->submit_sum(key, segments, sum);
    }
    Result<bool> query(CopyTicket ticket) override {
      check_current();
      return copier_->query(ticket);
    }

   private:
    void check(std::span<const CopySegment> segments) const {
      check_current();
      for (const CopySegment& segment : segments) {
        EXPECT_TRUE(gpus_.reaches(device_, segment.to)) << "GPU " << device_ << " writes where it reaches nothing";
        EXPECT_TRUE(gpus_.reaches(device_, segment.from)) << "GPU " << device_ << " reads where it reaches nothing";
      }
    }
    void check_current() const { EXPECT_EQ(current(), device_) << "the copier's GPU is not current"; }
    SeveralGpus& gpus_;
    const int device_;
    const std::unique_ptr<SegmentCopier> copier_;
  };

  class Reached final : public GpuMark {
   public:
    Result<bool> reached() override { return true; }
  };
  class Order final : public GpuOrder {
   public:
    explicit Order(SeveralGpus& gpus) : gpus_(gpus) {}
    Result<std::unique_ptr<GpuMark>> mark_stream(void* stream, int gpu) override {
      const MutexLock lock(gpus_.mutex_);
      gpus_.marked_.emplace_back(stream, gpu);
      return std::unique_ptr<GpuMark>(std::make_unique<Reached>());
    }
    Result<std::unique_ptr<GpuMark>> mark_event(void*) override { return none(); }
    Result<std::unique_ptr<GpuSignal>> make_signal() override { return none(); }

   private:
    static Status none() { return Status(Code::kUnsupported, "order GPU work", "no events here"); }
    SeveralGpus& gpus_;
  };

  static int& current() {
    static thread_local int device = 0;  // as every thread begins with CUDA
    return device;
  }

  const int count_;
  const std::unique_ptr<MemoryOps> host_ = make_host_memory_ops();
  std::set<std::pair<int, int>> peers_;
  int no_copiers_ = -1;
  std::array<std::atomic<uint64_t>, 4> sums_{};  // by GPU
  mutable Mutex mutex_;
  std::map<uintptr_t, std::pair<uintptr_t, int>> owned_ TCPX_GUARDED_BY(mutex_);  // begin: end, GPU
  std::vector<std::pair<void*, int>> marked_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::testing
