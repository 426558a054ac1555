#include "transfer/comm.h"

#include <algorithm>
#include <utility>

#include "transfer/invariant.h"

namespace tcpx {

Comm::Comm(Comm&& other) noexcept
    : plugin_(other.plugin_),
      direction_(other.direction_),
      raw_(other.raw_),
      open_(std::exchange(other.open_, false)),
      registered_(std::move(other.registered_)) {}

Comm::~Comm() {
  // The call that first saw the error has logged it, and a destructor has no caller to report it to.
  (void)close();
}

Result<MemoryHandle> Comm::register_memory(void* data, size_t bytes, MemoryType type) {
  return keep([&](auto comm) { return plugin_->register_memory(comm, data, bytes, type); });
}

Result<MemoryHandle> Comm::register_list(std::shared_ptr<const RangeList> list) {
  return keep([&](auto comm) { return plugin_->register_list(comm, std::move(list)); });
}

template <class Register>
Result<MemoryHandle> Comm::keep(Register call) {
  require(open_, "memory is registered with an open comm");
  registered_.emplace_back();  // before registering: if this failed afterwards, the handle would never be deregistered
  auto handle = direction_ == Direction::kSend ? call(send_comm()) : call(recv_comm());
  if (handle.is_ok()) {
    registered_.back() = *handle;
  } else {
    registered_.pop_back();
  }
  return handle;
}

Status Comm::deregister_memory(MemoryHandle handle) {
  const auto found = std::find(registered_.begin(), registered_.end(), handle);
  require(open_ && found != registered_.end(), "memory is deregistered with the open comm it was registered with");
  *found = registered_.back();
  registered_.pop_back();
  return take_back(handle);
}

Status Comm::take_back(MemoryHandle handle) {
  return direction_ == Direction::kSend ? plugin_->deregister_memory(send_comm(), handle)
                                        : plugin_->deregister_memory(recv_comm(), handle);
}

Result<std::optional<Request>> Comm::try_post(std::byte* data, size_t bytes, int tag, MemoryHandle handle) {
  return direction_ == Direction::kSend ? plugin_->try_send(send_comm(), data, bytes, tag, handle)
                                        : plugin_->try_recv(recv_comm(), data, bytes, tag, handle);
}

Status Comm::consumed(Request request) {
  require(direction_ == Direction::kRecv, "only receives are consumed");
  return plugin_->consumed(recv_comm(), request);
}

Status Comm::deregister_all() {
  Status first = Status::ok();
  for (const MemoryHandle handle : std::exchange(registered_, {})) {
    Status status = take_back(handle);
    if (first.is_ok()) first = std::move(status);
  }
  return first;
}

Status Comm::close() {
  if (!open_) return Status::ok();
  Status first = deregister_all();
  Status status = abort();
  return first.is_ok() ? status : first;
}

Status Comm::abort() {
  if (!std::exchange(open_, false)) return Status::ok();
  registered_.clear();
  return direction_ == Direction::kSend ? plugin_->close(send_comm()) : plugin_->close(recv_comm());
}

}  // namespace tcpx
