// Time the GPU works: CUDA events right around the enqueued work.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "device/cuda_handles.h"

namespace tcpx {

/// One thread at a time. On the device that was current at creation.
class GpuClock {
 public:
  static Result<std::unique_ptr<GpuClock>> create();

  StreamView stream() const { return stream_.view(); }

  /// Seconds between two events around `enqueue`, on an idle GPU: time the GPU waits for the host inside of it counts.
  Result<double> time(const std::function<Status(StreamView)>& enqueue);
  /// The same with the GPU kept busy by a kernel for `head_start` before, so that all is enqueued when it begins: no waiting for
  /// the host counts, provided that enqueuing takes no longer.
  Result<double> time_queued(const std::function<Status(StreamView)>& enqueue, std::chrono::microseconds head_start);

 private:
  GpuClock(Stream stream, Event begin, Event end) : stream_(std::move(stream)), begin_(std::move(begin)), end_(std::move(end)) {}

  const Stream stream_;
  const Event begin_;
  const Event end_;
};

/// A kernel of one thread that does nothing: the least cost of a launch.
Status launch_nothing(StreamView stream);

}  // namespace tcpx
