// An operation as Python sees it: its end is taken from the endpoint once, by whichever thread asks first, and told to all.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "python/src/regions.h"
#include "python/src/shared_endpoint.h"
#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Longest time without a look at Python's signals, or at whether the endpoint was closed.
inline constexpr std::chrono::milliseconds kSlice{50};

/// Keeps what it uses registered until it has ended. Any thread.
class CoreOperation {
 public:
  CoreOperation(std::shared_ptr<const SharedEndpoint> shared, OperationId id,
                std::vector<std::shared_ptr<BufferRegistration>> regions)
      : shared_(std::move(shared)), id_(id), regions_(std::move(regions)) {}
  /// One that has not ended was given up by an exception: cancelled, and waited for. Needs the interpreter lock.
  ~CoreOperation();

  /// Whether its end is there to be told: `ended` tells it, then. Does not wait; with or without the interpreter lock.
  bool has_outcome();
  /// Waits until the end, or the time has passed. Without the interpreter lock. @return whether it has ended
  bool ended(std::chrono::milliseconds wait = std::chrono::milliseconds(0));
  /// Once it has ended.
  const Status& status() const { return *status_; }
  Status cancel();
  /// @return cudaEvent_t; kNotFound: ended
  Result<void*> completion_event();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  bool wait_for_outcome(TimePoint until);

  std::shared_ptr<const SharedEndpoint> shared_;
  const OperationId id_;
  std::timed_mutex waiting_;  // who waits in the library, or ends the use of the memory
  std::mutex taking_;         // who takes the end; held for moments
  std::optional<Status> status_;
  std::vector<std::shared_ptr<BufferRegistration>> regions_;
  std::atomic<bool> has_ended_ = false;
};

/// At least 1 ms, because the library takes no deadline that has passed. Raises InvalidArgument for what is no time.
std::chrono::milliseconds milliseconds_of(double seconds);

/// Waits for the end of an operation. A signal whose handler raises cancels it, and waits for its end: the memory is free then.
/// @param timeout seconds; nullopt: the operation's own deadline ends it. @return false: the time has passed
bool wait_for_end(CoreOperation& operation, std::optional<double> timeout);

}  // namespace tcpx::python
