#include "python/src/shared_endpoint.h"

#include <thread>

namespace tcpx::python {

using std::chrono::milliseconds;

Status SharedEndpoint::why_not_in_use(const char* operation) const {
  if (is_of_this_process()) return Status(Code::kCancelled, operation, "the endpoint was closed");
  return Status(Code::kUnsupported, operation,
                "this process is a fork of the one that made the endpoint: start a program instead");
}

void SharedEndpoint::close() {
  if (!is_of_this_process()) return;
  std::shared_ptr<Endpoint> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(endpoint_);
  }
  if (last == nullptr) return wait_until_gone();
  last->stop_waiting();
  // Calls of other threads use it for a slice at most.
  while (last.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
  last.reset();
  const std::lock_guard lock(mutex_);
  gone_ = true;
  ended_.notify_all();
}

bool SharedEndpoint::is_gone(milliseconds wait) const {
  if (!is_of_this_process()) return true;
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, wait, [this] { return gone_; });
}

void SharedEndpoint::wait_until_gone() const {
  while (!is_gone(milliseconds(50))) {
  }
}

}  // namespace tcpx::python
