// An operation as Python sees it: its end is taken from the endpoint once, by whichever thread asks first, and told to all.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Longest time without a look at Python's signals, or at whether the endpoint was closed.
inline constexpr std::chrono::milliseconds kSlice{50};

/// An endpoint that its users share; closing it takes it away from new calls, and the last one that uses it ends it.
struct SharedEndpoint {
  std::shared_ptr<Endpoint> use() const {
    const std::lock_guard lock(mutex);
    return endpoint;
  }
  mutable std::mutex mutex;
  std::shared_ptr<Endpoint> endpoint;  // nullptr: closed
};

/// Any thread; no call needs the interpreter lock.
class CoreOperation {
 public:
  CoreOperation(std::shared_ptr<const SharedEndpoint> shared, OperationId id) : shared_(std::move(shared)), id_(id) {}
  ~CoreOperation();

  /// Waits until the end, or the time has passed. @return whether it has ended
  bool ended(std::chrono::milliseconds wait = std::chrono::milliseconds(0));
  /// Once it has ended.
  const Status& status() const { return *status_; }
  Status cancel();
  /// @return cudaEvent_t; kNotFound: ended
  Result<void*> completion_event();

 private:
  std::shared_ptr<const SharedEndpoint> shared_;
  const OperationId id_;
  std::timed_mutex taking_;
  std::optional<Status> status_;
  std::atomic<bool> has_ended_ = false;
};

}  // namespace tcpx::python
