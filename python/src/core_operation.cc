#include "python/src/core_operation.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "python/src/raise.h"
#include "python/src/unlocked.h"

namespace tcpx::python {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds until(Clock::time_point end) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(end - Clock::now()));
}

}  // namespace

CoreOperation::~CoreOperation() {
  if (has_ended_) return;
  const Unlocked unlocked;
  // An end that nobody asked for counts against the endpoint's bound until somebody does.
  if (ended()) return;
  (void)cancel();
  while (!ended(kSlice)) {
  }
}

bool CoreOperation::has_outcome() {
  if (has_ended_) return true;
  const auto endpoint = shared_->use();
  std::unique_lock lock(taking_, std::defer_lock);
  if (shared_->is_of_this_process()) lock.lock();
  if (status_) return true;
  if (endpoint == nullptr) {
    // Before that something may still touch the memory.
    if (shared_->is_gone(milliseconds(0))) status_ = shared_->why_not_in_use("wait for an operation");
    return status_.has_value();
  }
  OperationAnswer answer = endpoint->poll(id_);
  // An unknown one: a thread that waits has taken the end, and is about to tell it.
  if (answer.state == OperationState::kDone || answer.state == OperationState::kFailed) status_ = std::move(answer.status);
  return answer.state != OperationState::kPending;
}

bool CoreOperation::ended(milliseconds wait) {
  if (has_ended_) return true;
  const auto end = Clock::now() + wait;
  std::unique_lock lock(waiting_, std::defer_lock);
  if (has_outcome()) {
    if (shared_->is_of_this_process()) lock.lock();
  } else if (wait.count() == 0 || !lock.try_lock_until(end) || !wait_for_outcome(end)) {
    return has_ended_;
  }
  if (has_ended_) return true;
  regions_.clear();  // may deregister memory, before whoever sees the end frees it
  has_ended_ = true;
  return true;
}

bool CoreOperation::wait_for_outcome(TimePoint end) {
  if (has_ended_) return true;
  const auto endpoint = shared_->use();
  if (endpoint == nullptr) {
    (void)shared_->is_gone(until(end));
    return has_outcome();
  }
  Status status = endpoint->wait(id_, until(end));
  const std::lock_guard lock(taking_);
  if (status_) return true;
  if (status.code() == Code::kTimeout) {
    // The operation's own deadline has the same code.
    OperationAnswer answer = endpoint->poll(id_);
    if (answer.state == OperationState::kPending) return false;
    if (answer.state != OperationState::kUnknown) status = std::move(answer.status);
  }
  status_ = std::move(status);
  return true;
}

Status CoreOperation::cancel() {
  if (has_ended_) return Status::ok();
  const auto endpoint = shared_->use();
  if (endpoint == nullptr) return Status::ok();
  const Status status = endpoint->cancel(id_);
  return status.code() == Code::kNotFound ? Status::ok() : status;
}

Result<void*> CoreOperation::completion_event() {
  const auto endpoint = shared_->use();
  if (endpoint == nullptr || has_ended_) return Status(Code::kNotFound, "completion event", "the operation has ended");
  return endpoint->completion_event(id_);
}

milliseconds milliseconds_of(double seconds) {
  if (!(seconds >= 0)) raise(Status(Code::kInvalidArgument, "timeout", concat(seconds, " seconds; a timeout is not negative")));
  constexpr double kLongest = 1e9;  // 30 years
  return milliseconds(std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::min(seconds, kLongest) * 1000))));
}

bool wait_for_end(CoreOperation& operation, std::optional<double> timeout) {
  const auto deadline = timeout ? Clock::now() + milliseconds_of(*timeout) : Clock::time_point::max();
  for (;;) {
    const auto left = timeout ? std::chrono::ceil<milliseconds>(deadline - Clock::now()) : kSlice;
    const bool ended = [&] {
      const Unlocked unlocked;
      return operation.ended(std::clamp(left, milliseconds(1), kSlice));
    }();
    if (ended) return true;
    if (!run_signal_handlers()) {
      const nanobind::python_error raised;
      {
        const Unlocked unlocked;
        (void)operation.cancel();
        while (!operation.ended(kSlice)) {
        }
      }
      throw raised;
    }
    if (timeout && left <= kSlice) return false;
  }
}

}  // namespace tcpx::python
