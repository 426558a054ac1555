// An endpoint that its users share; closing it takes it away from new calls, and it ends when the last one has left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/fork.h"
#include "tcpx/endpoint.h"

namespace tcpx::python {

/// Any thread; no call needs the interpreter lock.
class SharedEndpoint {
 public:
  explicit SharedEndpoint(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}

  /// @return nullptr: see why_not_in_use
  std::shared_ptr<Endpoint> use() const {
    if (!is_of_this_process()) return nullptr;
    const std::lock_guard lock(mutex_);
    return endpoint_;
  }
  /// It is closed, or about to be, or the process is a fork of its own.
  Status why_not_in_use(const char* operation) const;
  /// Returns when nothing touches the application's memory any more, whoever closes it.
  void close();
  /// Waits for the end of the endpoint, until when its memory is in use. @return false: the time has passed
  bool is_gone(std::chrono::milliseconds wait) const;
  void wait_until_gone() const;
  /// A forked child has none of the threads that it would have to wait for, one of which may have had a mutex locked.
  bool is_of_this_process() const { return count_forks() == born_in_; }

 private:
  const uint64_t born_in_ = count_forks();
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::shared_ptr<Endpoint> endpoint_;
  bool gone_ = false;
};

}  // namespace tcpx::python
