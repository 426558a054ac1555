// Owners and views of CUDA streams and events, the device guard, and the one place where a cudaError_t becomes a Status.
//
// An owner is move-only and destroys its handle; a view is a plain copy that must not outlive its owner. A query for completion
// returns a bool: cudaErrorNotReady never leaves this file, so it cannot be mistaken for an error.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "device/device_context.h"
#include "tcpx/status.h"

namespace tcpx {

/// kCuda with the native code, its name and its text; logged here, once. Also clears the thread's last CUDA error, so that the
/// application does not see ours.
/// @param error anything but cudaSuccess.
Status cuda_error(cudaError_t error, std::string_view operation);

/// ok for cudaSuccess, else cuda_error.
inline Status cuda_status(cudaError_t error, std::string_view operation) {
  return error == cudaSuccess ? Status::ok() : cuda_error(error, operation);
}

/// For destructors, which can only log. Silent when the runtime is already gone at process exit: then so is the handle.
void report_cuda_failure(cudaError_t error, std::string_view operation);

/// While it lives, calls of this thread do not invalidate a capture that another thread, or this one, has begun in the global mode, and make
/// no context on a device that nobody uses.
/// An application's capture would be lost, and our own call fail, by a query of an event or stream, by waiting for either, by
/// allocating, freeing and pinning, whatever stream they are of (each was probed on an H100). So every function here, and every
/// other call of ours of that kind, holds one. Threads of our own (base/own_thread.h) change their mode once, for good; a caller's
/// thread gets its mode back.
class CaptureGuard {
 public:
  CaptureGuard();
  CaptureGuard(CaptureGuard&& other) noexcept
      : entered_(std::move(other.entered_)), back_to_(std::exchange(other.back_to_, std::nullopt)) {}
  CaptureGuard& operator=(CaptureGuard&&) = delete;
  ~CaptureGuard();

 private:
  EnteredDevice entered_;                         // without a context, to change the mode makes one on device 0
  std::optional<cudaStreamCaptureMode> back_to_;  // nothing: an outer guard, or nobody, changes the mode back
};

inline constexpr unsigned kAskEvery = 4096;

class StreamView {
 public:
  explicit StreamView(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t get() const { return stream_; }
  /// Blocks until all work submitted so far has finished.
  Status synchronize() const;
  /// The error of its work or of the device, if any; does not wait. Where completion is seen in a word that the GPU writes, a
  /// failure shows nowhere else: ask after every kAskEvery unsuccessful polls of the word.
  Status health() const;
  /// True while its work is captured into a graph instead of being run.
  Result<bool> is_captured() const;

 private:
  cudaStream_t stream_;
};

class EventView {
 public:
  explicit EventView(cudaEvent_t event) : event_(event) {}
  cudaEvent_t get() const { return event_; }
  /// Marks the end of the work submitted to `stream` so far. The current device must be the stream's.
  Status record(StreamView stream) const;
  /// True when the marked work has finished (or nothing was ever marked); an error is that of this work or of earlier work.
  Result<bool> is_done() const;
  /// GPU time between the mark of `begin` and this one, to about half a microsecond. Both must be timed events, and done.
  Result<Duration> elapsed_since(EventView begin) const;

 private:
  cudaEvent_t event_;
};

/// Independent of the legacy default stream in both directions: a kernel that spins there for our data must not block it.
class Stream {
 public:
  /// On the current device, with the highest priority: its work is short and waited for.
  static Result<Stream> create();
  StreamView view() const { return StreamView(stream_.get()); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const;
  };
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

enum class EventTiming {
  kOff,  ///< makes recording and querying cheaper
  kOn,
};

class Event {
 public:
  /// On the current device.
  static Result<Event> create(EventTiming timing = EventTiming::kOff);
  EventView view() const { return EventView(event_.get()); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const;
  };
  explicit Event(cudaEvent_t event) : event_(event) {}
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

/// Makes a device current for the calling thread until the end of the scope, and is a CaptureGuard.
class DeviceGuard {
 public:
  static Result<DeviceGuard> enter(int device) {
    TCPX_ASSIGN_OR_RETURN(EnteredDevice entered, enter_device(device));
    return DeviceGuard(std::move(entered));
  }

 private:
  explicit DeviceGuard(EnteredDevice entered) : entered_(std::move(entered)) {}
  EnteredDevice entered_;
  CaptureGuard captures_;
};

}  // namespace tcpx
