// GpuOrder: orders transfers among the application's GPU work. A transfer can wait for a stream or an event before its memory
// is read or written, and can offer an event that fires when it has ended, for streams to wait on.
//
// Streams and events are the application's, given as void* because this header knows no CUDA: cudaStream_t and cudaEvent_t. Where
// host memory stands in there is no GPU work to wait for, and every call is refused with kUnsupported.
#pragma once

#include <cstddef>
#include <memory>

#include "tcpx/status.h"

namespace tcpx {

/// A point in the GPU's work. Any thread, one at a time. Destruction returns its event to its GpuOrder, which must outlive it.
class GpuMark {
 public:
  virtual ~GpuMark() = default;
  /// True when the GPU has reached the mark. An error is the error of the work before it. Never waits.
  virtual Result<bool> reached() = 0;
};

/// An event that the host fires. One thread at a time.
class GpuSignal {
 public:
  /// Fires if it has not fired yet, so that no stream hangs. May be destroyed while streams still wait on the event.
  virtual ~GpuSignal() = default;
  /// A cudaEvent_t: cudaStreamWaitEvent makes a stream wait until `fire`. Owned by the signal; valid while it lives.
  virtual void* event() const = 0;
  /// Lets the event complete. Cheap, does not wait, may be called more than once.
  virtual void fire() = 0;
};

/// Most marks (for each GPU whose streams are marked) and most signals that exist at a time for one GpuOrder.
inline constexpr size_t kMostMarks = 16384;
inline constexpr size_t kMostSignals = 64;

/// All functions are thread-safe.
class GpuOrder {
 public:
  virtual ~GpuOrder() = default;
  /// Marks the end of the work that `stream` (cudaStream_t of any GPU of the process) holds now.
  /// @param gpu whose default stream is meant when `stream` is a handle of one: nullptr, cudaStreamLegacy, cudaStreamPerThread
  /// @return kUnsupported without a GPU, or while the stream is being captured; kExhausted; kCuda.
  virtual Result<std::unique_ptr<GpuMark>> mark_stream(void* stream, int gpu) = 0;
  /// Marks the work that `event` (cudaEvent_t) was recorded for. The event must live, and not be recorded again, until the mark
  /// is reached or destroyed.
  /// @return kUnsupported without a GPU, or when the event was recorded in a capture (which CUDA then invalidates);
  /// kInvalidArgument for nullptr; kCuda.
  virtual Result<std::unique_ptr<GpuMark>> mark_event(void* event) = 0;
  /// Makes a signal. Until it fires, the signal occupies a thread of the GPU. It does not keep other streams or other signals
  /// from running, but calls that wait for the whole device wait for it: cudaDeviceSynchronize, freeing memory, creating streams.
  /// The thread that will fire the signal must not make such a call before. Not for programs that run with CUDA_LAUNCH_BLOCKING.
  /// @return kUnsupported without a GPU; kExhausted beyond kMostSignals; kCuda.
  virtual Result<std::unique_ptr<GpuSignal>> make_signal() = 0;
};

}  // namespace tcpx
