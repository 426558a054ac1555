// Chunk headers on their way from the control socket's thread to that of the data socket whose payload they describe, where headers come
// apart (net/soft/wire.h). Bounded: a full queue ends the reading of the control socket until one is taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// One thread pushes, one takes.
class HeaderQueue {
 public:
  static constexpr size_t kMost = 64;

  enum class Pushed {
    kFull,     ///< not pushed; the next take has `from_full`
    kQueued,   ///< the taker will come by itself
    kAwaited,  ///< the taker has found nothing before
  };
  Pushed push(const ChunkHeader& header) TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    refused_ = count_ == kMost;
    if (refused_) return Pushed::kFull;
    headers_[(first_ + count_++) % kMost] = header;
    return std::exchange(awaited_, false) ? Pushed::kAwaited : Pushed::kQueued;
  }
  /// Nothing is pushed any more.
  void end() TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ended_ = true;
  }

  struct Taken {
    std::optional<ChunkHeader> header;
    bool from_full = false;  ///< a push was refused, and would not be now
    bool is_end = false;     ///< there is none, and will be none
  };
  /// Call when the payload of the last one has been read.
  Taken take() TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    in_use_ = count_ > 0;
    awaited_ = !in_use_;
    if (!in_use_) return {.is_end = ended_};
    const ChunkHeader& header = headers_[first_];
    first_ = (first_ + 1) % kMost;
    --count_;
    return {.header = header, .from_full = std::exchange(refused_, false)};
  }

  /// The taker has found nothing, and there still is nothing. Any thread.
  bool is_awaited() const TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return awaited_;
  }
  /// Bytes of headers that nothing but the taker's thread holds up: none while it reads the payload of one. Any thread.
  uint32_t untaken_bytes() const TCPX_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return in_use_ ? 0 : static_cast<uint32_t>(count_ * kChunkHeaderBytes);
  }

 private:
  mutable Mutex mutex_;
  std::array<ChunkHeader, kMost> headers_ TCPX_GUARDED_BY(mutex_);
  size_t first_ TCPX_GUARDED_BY(mutex_) = 0;
  size_t count_ TCPX_GUARDED_BY(mutex_) = 0;
  bool refused_ TCPX_GUARDED_BY(mutex_) = false;  // the last push
  bool awaited_ TCPX_GUARDED_BY(mutex_) = false;
  bool in_use_ TCPX_GUARDED_BY(mutex_) = false;  // the last take has given one
  bool ended_ TCPX_GUARDED_BY(mutex_) = false;
};

}  // namespace tcpx::soft
