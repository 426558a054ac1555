// Copies of short messages by a kernel that stays for a while: the fastest way for a few bytes between GPU and host memory.
//
// Launching a kernel or starting the copy engine and seeing it end takes 5 to 9 us on an H200, whatever the size. A kernel that
// is already running reads requests from mapped host memory and answers in 3 to 4 us (docs/field_notes.md). It takes one block,
// exits when no request has come for kPatience and after kLife in any case, so that calls that wait for the device to be idle
// (cudaFree, cudaDeviceSynchronize) wait no longer than that. Nothing is ever queued behind it on its stream, because streams
// share hardware queues and the application's work could be queued behind ours.
//
// A request may come just as the kernel exits. It is then untouched and reported as lost: the caller must copy in another way.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "device/cuda_handles.h"
#include "device/segment_launch.h"

namespace tcpx {

/// One thread at a time, with the device current.
class ResidentCopier {
 public:
  static constexpr std::chrono::microseconds kPatience{100};
  static constexpr std::chrono::microseconds kLife{1000};
  /// Beyond this the copy engine is as good (64 KiB to the GPU: 7.8 us against 8.7).
  static constexpr size_t kMostBytes = 64 * 1024;

  enum class Answer { kPending, kDone, kLost };

  /// @param memory must outlive it. @return kCuda and the errors of `memory`. The device is current.
  static Result<std::unique_ptr<ResidentCopier>> create(int device, MemoryOps& memory);
  ResidentCopier(const ResidentCopier&) = delete;
  ResidentCopier& operator=(const ResidentCopier&) = delete;
  /// Waits for the kernel to exit.
  ~ResidentCopier();

  /// True when the kernel was running a moment ago and a request can be posted.
  bool is_serving() const;
  /// Only when is_serving. @param segment of 1 to kMostBytes bytes. @param between_gpus both ends are GPU memory; false: they may be.
  /// @return its number.
  uint32_t post(const CopySegment& segment, bool between_gpus = false);
  /// Polls the oldest request not yet reported done or lost; this call reports it. An error is one of the GPU.
  Result<Answer> poll();
  /// True when more than half of the kernel's life is over.
  bool is_old(TimePoint now) const { return now - launched_at_ > kLife / 2; }
  /// Launches the kernel unless one is running or requests are unreported. @return true if it did. Does not wait.
  Result<bool> start(TimePoint now);
  /// After it returns nothing is copied any more. Unreported requests stay so.
  void drain() const;

 private:
  struct Posted {
    CopySegment segment{};
    ResidentMode mode{};
  };

  ResidentCopier(MemoryOps& memory, MemoryBuffer shared, Stream stream)
      : memory_(memory), shared_(std::move(shared)), stream_(std::move(stream)) {}
  ResidentMemory& shared() const { return *reinterpret_cast<ResidentMemory*>(shared_.host()); }
  ResidentMode mode_of(const CopySegment& segment) const;
  bool has_left() const;
  /// True when the oldest request is done; its bytes are in place then.
  bool take_oldest();

  MemoryOps& memory_;
  const MemoryBuffer shared_;
  const Stream stream_;
  std::array<Posted, kResidentBoxes> posted_;
  uint32_t next_ = 1;    // number of the next request
  uint32_t oldest_ = 1;  // oldest one not reported
  TimePoint launched_at_{};
  uint32_t asked_ = 0;
  uint32_t launch_ = 0;  // newest launch; 0: none yet
};

}  // namespace tcpx
