// A stream that counts its finished work in host memory: a query costs a load, where that of an event costs a driver call of
// 1.8 us, which also invalidates a stream capture that the application has begun in the global mode.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/memory_ops.h"
#include "device/cuda_handles.h"

namespace tcpx {

/// One thread at a time, with the device current; any thread, at any time, may ask with `has_reached`. A mark is a number, ascending.
class FlaggedStream {
 public:
  /// @return kUnsupported when the driver lacks stream memory operations; kCuda.
  static Result<FlaggedStream> create(int device, MemoryOps& memory);

  StreamView stream() const { return stream_.view(); }
  /// Marks all work submitted to stream() so far.
  Result<uint32_t> mark();
  /// True when the work before that mark has finished and is visible. An error is that of the stream's work.
  Result<bool> has_reached(uint32_t mark);
  /// Returns when the stream's work has finished, successfully or not.
  void drain() const;

 private:
  FlaggedStream(Stream stream, MemoryBuffer flag, void* write)
      : stream_(std::move(stream)), flag_(std::move(flag)), write_(write), asked_(std::make_unique<std::atomic<uint32_t>>(0)) {}

  Stream stream_;
  MemoryBuffer flag_;  // one uint32_t: the newest mark reached
  void* write_;        // cuStreamWriteValue32
  uint32_t newest_ = 0;
  std::unique_ptr<std::atomic<uint32_t>> asked_;  // allocated, so that this can be moved
};

}  // namespace tcpx
