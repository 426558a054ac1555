#include "python/src/core_operation.h"

namespace tcpx::python {

CoreOperation::~CoreOperation() {
  // An end that nobody asked for counts against the endpoint's bound until somebody does.
  if (!has_ended_) (void)ended();
}

bool CoreOperation::ended(std::chrono::milliseconds wait) {
  if (has_ended_) return true;
  const auto until = std::chrono::steady_clock::now() + wait;
  const std::unique_lock lock(taking_, until);
  if (!lock) return has_ended_;
  if (has_ended_) return true;
  const auto endpoint = shared_->use();
  if (endpoint == nullptr) {
    status_ = Status(Code::kCancelled, "wait for an operation", "the endpoint was closed");
  } else if (wait.count() == 0) {
    OperationAnswer answer = endpoint->poll(id_);
    if (answer.state == OperationState::kPending) return false;
    status_ = std::move(answer.status);
  } else {
    Status status = endpoint->wait(id_, wait);
    if (status.code() == Code::kTimeout) {
      // The operation's own deadline has the same code.
      OperationAnswer answer = endpoint->poll(id_);
      if (answer.state == OperationState::kPending) return false;
      if (answer.state != OperationState::kUnknown) status = std::move(answer.status);
    }
    status_ = std::move(status);
  }
  has_ended_ = true;
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

}  // namespace tcpx::python
