// A stand-in for GPU memory on a machine without one: device memory that the host cannot access.
//
// Device memory is mapped without access rights, so reading or writing it on the host crashes at once; only copy lanes and segment
// copiers reach it, through a second mapping of the same pages. Mapped memory is ordinary host memory, and host memory is mapped
// (map_host) when the test has not forbidden that.
//
// Asynchronous copies end at once, unless the test holds them: each then ends, or fails, on command of the test. A segment copier
// copies when it is asked for the second time whether it has, and takes one at a time, unless
// the test lets it take more.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "tests/support/open_counts.h"
#include "tests/support/plain_sum.h"

namespace tcpx::testing {

class HiddenMemoryOps : public MemoryOps {
 public:
  /// From now on the copy lanes fail with kSystem.
  void break_copies() { broken_ = true; }
  /// Copies made by the lanes.
  uint64_t copies() const { return copies_; }

  /// From now on asynchronous copies stay in flight, and those of segment copiers.
  void hold_copies() {
    const MutexLock lock(copies_mutex_);
    holding_ = true;
  }
  /// Copies in flight.
  size_t held_copies() const {
    const MutexLock lock(copies_mutex_);
    return held_.size();
  }
  /// Ends the copy in flight that was started as number `index` of those in flight now.
  void end_copy(size_t index, bool well = true) {
    const MutexLock lock(copies_mutex_);
    end_locked(index, well);
  }
  /// The copy in flight with this number fails, but continues to touch memory until it is ended.
  void fail_copy(size_t index) {
    const MutexLock lock(copies_mutex_);
    held_.at(index)->result_ = in_flight_failure();
  }
  /// Ends all copies with success, and holds none from now on.
  void release_copies() {
    const MutexLock lock(copies_mutex_);
    holding_ = false;
    while (!held_.empty()) end_locked(0, true);
  }
  /// Asynchronous copies started by `thread`.
  size_t copies_started_by(std::thread::id thread) const {
    const MutexLock lock(copies_mutex_);
    const auto found = started_.find(thread);
    return found == started_.end() ? 0 : found->second;
  }
  /// Sets the result of current_device on every thread.
  void pretend_current(int device) { current_ = device; }
  /// Mapped memory in use.
  size_t mapped_bytes() const { return mapped_bytes_; }
  /// From now on no host memory is mapped.
  void forbid_mapping() { maps_ = false; }
  /// From now on this is an allocation that can be shared.
  void let_share(void* base, size_t bytes) {
    shared_ = {.kind = ShareKind::kIpc, .base = reinterpret_cast<uintptr_t>(base), .bytes = bytes};
  }
  /// Segment copiers take so many copies at once.
  void let_copy_at_once(size_t count) { at_once_ = count; }
  /// The most that one has had.
  size_t most_at_once() const { return most_at_once_; }
  /// Checksums that they have been asked for.
  uint64_t sums() const { return sums_; }
  /// The bytes at `address`, for the test.
  std::byte* open(const void* address) const { return static_cast<std::byte*>(reachable(address)); }

  bool has_gpu() const override { return true; }
  int device_count() const override { return 1; }
  Result<int> current_device() const override { return current_.load(); }
  Status set_current_device(int device) override { return host_->set_current_device(device); }
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override {
    auto buffer = counted("allocations of mapped memory", host_->allocate_mapped(device, bytes));
    if (!buffer.is_ok()) return buffer;
    mapped_bytes_ += bytes;
    const auto memory = std::make_shared<MemoryBuffer>(std::move(*buffer));  // shared: a std::function must be copyable
    return MemoryBuffer(memory->host(), memory->device(), bytes, [this, memory, bytes] { mapped_bytes_ -= bytes; });
  }

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
    return counted("allocations of GPU memory", MemoryBuffer(nullptr, hidden, bytes, [this, hidden, open, bytes] {
                     const MutexLock lock(mutex_);
                     ranges_.erase(reinterpret_cast<uintptr_t>(hidden));
                     ::munmap(hidden, bytes);
                     ::munmap(open, bytes);
                   }));
  }

  Result<MemoryBuffer> map_host(int /*device*/, void* host, size_t bytes) override {
    if (!maps_) return Status(Code::kCuda, "pin host memory", "forbidden by the test");
    mapped_bytes_ += bytes;
    return counted("mappings of host memory", MemoryBuffer(host, host, bytes, [this, bytes] { mapped_bytes_ -= bytes; }));
  }

  Result<MemoryShare> share(const void* address, UniqueFd& fd) override {
    if (shared_.kind == ShareKind::kNone) return MemoryOps::share(address, fd);
    return shared_;
  }

  bool host_readable(const void* address) const override { return reachable(address) == address; }
  bool is_device_memory(const void* address) const override { return !host_readable(address); }
  std::optional<uint64_t> extent(const void* address) const override { return host_->extent(address); }

  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override {
    TCPX_RETURN_IF_ERROR(host_->set_current_device(device));
    return std::unique_ptr<CopyLane>(std::make_unique<Lane>(this));
  }
  Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int /*device*/) override {
    return std::unique_ptr<SegmentCopier>(std::make_unique<Segments>(this));
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
    Result<std::unique_ptr<AsyncCopy>> make_async_copy() override {
      return std::unique_ptr<AsyncCopy>(std::make_unique<Copy>(ops_, *this));
    }

   private:
    HiddenMemoryOps* ops_;
  };

  class Segments final : public SegmentCopier {
    struct Waiting {
      std::vector<CopySegment> segments;
      const ByteSumKey* key = nullptr;  // of a checksum
      uint64_t* sum = nullptr;
      std::optional<SumPlace> place = std::nullopt;  // of a copy that is summed
      bool asked = false;
    };

   public:
    explicit Segments(HiddenMemoryOps* ops) : ops_(ops) {}
    Result<CopyTicket> submit(std::span<const CopySegment> segments) override { return submit(Waiting{copy_of(segments)}); }
    Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) override {
      ++ops_->sums_;
      return submit(Waiting{copy_of(segments), &key, &sum});
    }
    Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) override {
      ++ops_->sums_;
      return submit(Waiting{.segments = copy_of(segments), .sum = &part, .place = place});
    }
    Result<CopyTicket> submit(Waiting work) {
      if (ops_->broken_) return Status(Code::kCuda, "copy memory", "broken by the test", Domain::kCuda, 700);
      if (work.segments.size() > kMaxCopySegments) return Status(Code::kInvalidArgument, "copy memory", "too many segments");
      if (waiting_.size() >= ops_->at_once_) return Status(Code::kExhausted, "copy memory", "enough are in flight");
      waiting_.push_back(std::move(work));
      ops_->most_at_once_ = std::max<size_t>(ops_->most_at_once_, waiting_.size());
      return CopyTicket{++last_};
    }
    Result<bool> query(CopyTicket ticket) override {
      if (ops_->broken_) return Status(Code::kCuda, "copy memory", "broken by the test", Domain::kCuda, 700);
      if (ops_->holds()) return false;
      const auto behind = last_ - static_cast<uint64_t>(ticket);
      if (behind >= waiting_.size()) return true;
      if (!std::exchange(waiting_[waiting_.size() - 1 - behind].asked, true)) return false;
      for (; waiting_.size() > behind; waiting_.pop_front()) {
        const auto& [segments, key, sum, place, asked] = waiting_.front();
        if (key != nullptr) *sum = plain_sum(*key, segments, [this](const std::byte* from) { return ops_->open(from); });
        for (const CopySegment& s : segments) {
          if (key == nullptr) std::memcpy(ops_->open(s.to), ops_->open(s.from), s.bytes);
        }
        if (place) *sum = plain_part(*place, segments, [this](const std::byte* to) { return ops_->open(to); });
      }
      return true;
    }

   private:
    static std::vector<CopySegment> copy_of(std::span<const CopySegment> segments) { return {segments.begin(), segments.end()}; }
    HiddenMemoryOps* ops_;
    std::deque<Waiting> waiting_;
    uint64_t last_ = 0;
  };

  class Copy final : public AsyncCopy {
   public:
    Copy(HiddenMemoryOps* ops, Lane& lane) : ops_(ops), lane_(lane) {}
    ~Copy() override { wait(); }
    Status start(void* dst, const void* src, size_t bytes) override {
      const MutexLock lock(ops_->copies_mutex_);
      if (in_flight_) return Status(Code::kInternal, "start copy", "the one before is in flight");
      ++ops_->started_[std::this_thread::get_id()];
      result_ = Status::ok();
      if (!ops_->holding_) return lane_.copy(dst, src, bytes);
      dst_ = dst;
      src_ = src;
      bytes_ = bytes;
      in_flight_ = true;
      ops_->held_.push_back(this);
      return Status::ok();
    }
    Result<bool> is_done() override {
      const MutexLock lock(ops_->copies_mutex_);
      if (!result_.is_ok()) return result_;
      return !in_flight_;
    }
    void wait() override {
      const MutexLock lock(ops_->copies_mutex_);
      while (in_flight_) ops_->copy_ended_.wait(ops_->copies_mutex_);
    }

   private:
    friend class HiddenMemoryOps;
    HiddenMemoryOps* const ops_;
    Lane& lane_;
    void* dst_ = nullptr;
    const void* src_ = nullptr;
    size_t bytes_ = 0;
    bool in_flight_ = false;  // like all below, guarded by the lock of ops_
    Status result_;
  };

  bool holds() const {
    const MutexLock lock(copies_mutex_);
    return holding_;
  }
  void end_locked(size_t index, bool well) TCPX_REQUIRES(copies_mutex_) {
    Copy& copy = *held_.at(index);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
    Status made = well ? copy.lane_.copy(copy.dst_, copy.src_, copy.bytes_) : in_flight_failure();
    if (copy.result_.is_ok()) copy.result_ = std::move(made);
    copy.in_flight_ = false;
    copy_ended_.notify_all();
  }

  static Status in_flight_failure() {
    return Status(Code::kCuda, "copy memory", "broken in flight by the test", Domain::kCuda, 700);
  }
  static Status failed() { return Status(Code::kSystem, "allocate hidden memory", "refused", Domain::kErrno, errno); }

  /// Address at which the host can access the memory at `address`.
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
  std::atomic<bool> broken_ = false, maps_ = true;
  std::atomic<uint64_t> copies_ = 0, sums_ = 0;
  std::atomic<int> current_ = 0;
  std::atomic<size_t> mapped_bytes_ = 0, at_once_ = 1, most_at_once_ = 0;
  MemoryShare shared_;

  mutable Mutex copies_mutex_;
  CondVar copy_ended_;
  bool holding_ TCPX_GUARDED_BY(copies_mutex_) = false;
  std::vector<Copy*> held_ TCPX_GUARDED_BY(copies_mutex_);
  std::map<std::thread::id, size_t> started_ TCPX_GUARDED_BY(copies_mutex_);
};

inline std::unique_ptr<MemoryOps> make_hidden_memory_ops() {
  return std::make_unique<HiddenMemoryOps>();
}

}  // namespace tcpx::testing
