// The part of an Endpoint that takes memory and operations from its callers.
#include <thread>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "endpoint/endpoint_impl.h"
#include "endpoint/link_rules.h"

namespace tcpx {
namespace {

// Short enough for small messages on few cores, where the one who spins may keep the one who works from working.
constexpr Duration kWaitSpin = std::chrono::microseconds(200);

Status refuse(OperationKind kind, std::string why) {
  return Status(Code::kInvalidArgument, std::string(name_of(kind)), std::move(why));
}

}  // namespace

Result<MemoryId> Endpoint::Impl::register_memory(const void* data, size_t bytes, std::optional<MemoryType> type) {
  MemoryOps& memory = *parts_.memory;
  if (!type) type = memory.has_gpu() && memory.is_device_memory(data) ? MemoryType::kCuda : MemoryType::kHost;
  if (memory.has_gpu() && (*type == MemoryType::kCuda) != memory.is_device_memory(data)) {
    return Status(Code::kInvalidArgument, "register memory",
                  *type == MemoryType::kCuda ? "not GPU memory" : "GPU memory cannot be registered as host memory");
  }
  // A plugin that hands GPU memory to a NIC does not notice when the driver refuses. Such memory is staged.
  const bool staged = *type == MemoryType::kCuda && parts_.plugin->steers_flows() &&
                      !memory.check_export(config_.gpu_idx, whole_pages(const_cast<void*>(data), bytes)).is_ok();
  return registry_.add(data, bytes, *type, staged);
}

Status Endpoint::Impl::deregister(MemoryId id) {
  auto removed = remove_region(id, Deadline::after(timeout_));
  // A peer may hold it for ever. Its connection is closed then, and lets go.
  if (!removed.is_ok() && removed.status().code() == Code::kTimeout && end_links_that_serve(id))
    removed = remove_region(id, Deadline::after(kGrace));
  if (!removed.is_ok()) return removed.status();
  return forget(*removed);
}

Result<std::optional<Region>> Endpoint::Impl::remove_region(MemoryId id, Deadline deadline) {
  // Without the thread, the waiting caller makes the progress it waits for.
  while (!config_.progress_thread && !deadline.expired()) {
    auto removed = registry_.try_remove(id);
    if (removed.is_ok() || removed.status().code() != Code::kExhausted) return removed;
    if (!progress()) std::this_thread::yield();
  }
  return registry_.remove(id, deadline);
}

// @return false: there is none
bool Endpoint::Impl::end_links_that_serve(MemoryId region) {
  bool any = false;
  {
    const ProgressLock lock(*this);
    for (auto& [id, served] : links_) {
      Link& link = *served.link;
      if (!link.serves(region)) continue;
      any = true;
      served.has_work = true;
      attend(link, [&link] {
        link.fail(Status(Code::kTimeout, "deregister memory",
                         "the peer had begun to use it and did not end: the connection is closed so that nothing touches it"));
      });
    }
  }
  events_.wake();
  return any;
}

// Registrations with connections go before the application may free the memory.
Status Endpoint::Impl::forget(const std::optional<Region>& region) {
  if (!region) return Status::ok();
  const ProgressLock lock(*this);
  for (auto& [id, served] : links_) served.link->forget(region->id);
  return Status::ok();
}

Result<RemoteSlot> Endpoint::Impl::advertise(ConnId conn, const LocalRange& range) {
  const auto state = find(conn);
  if (!state.is_ok()) return state.status();
  return registry_.advertise(conn, range.memory, range.data, range.bytes);
}

Result<OperationId> Endpoint::Impl::submit(OperationKind kind, ConnId conn, std::span<const LocalRange> ranges,
                                           std::span<const RemoteRange> remote, const SubmitOptions& options) {
  TCPX_ASSIGN_OR_RETURN(const auto state, find(conn));
  if (ranges.size() > kMaxRanges) return refuse(kind, concat(ranges.size(), " ranges, at most ", kMaxRanges));
  const bool one_sided = kind == OperationKind::kWrite || kind == OperationKind::kRead;
  if (one_sided && remote.size() != ranges.size())
    return refuse(kind, concat(ranges.size(), " local ranges and ", remote.size(), " remote ones"));
  const bool sends = kind == OperationKind::kSend || kind == OperationKind::kWrite;
  if (options.notify != nullptr) {
    if (!sends) return refuse(kind, "only sends and writes carry notifications");
    TCPX_RETURN_IF_ERROR(check_notify(*options.notify));
  }
  if (options.timeout && options.timeout->count() < 1) return refuse(kind, "a timeout below 1 ms");

  TCPX_ASSIGN_OR_RETURN(auto acquired, operations_.acquire());
  Operation& operation = *acquired;
  operation.kind = kind;
  operation.conn = conn;
  operation.link = state->link;
  operation.submitted_at = Clock::steady().now();
  operation.deadline = later(operation.submitted_at, saturated(options.timeout.value_or(timeout_)));
  if (Status status = fill(operation, ranges, remote, options); !status.is_ok()) {
    operations_.abandon(operation);
    return status;
  }
  const OperationId id = operation.id;
  if (kind == OperationKind::kSend) operation.sequence = state->next_send.fetch_add(1, std::memory_order_relaxed);
  if (kind == OperationKind::kRecv) operation.sequence = state->next_recv.fetch_add(1, std::memory_order_relaxed);
  submitted_.push(operation);
  events_.wake();
  return id;
}

Status Endpoint::Impl::fill(Operation& operation, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                            const SubmitOptions& options) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    TCPX_ASSIGN_OR_RETURN(auto use, registry_.use(ranges[i].memory, ranges[i].data, ranges[i].bytes));
    if (i < remote.size()) {
      const RemoteSlot& slot = remote[i].slot;
      TCPX_RETURN_IF_ERROR(check_slot(slot));
      if (remote[i].offset > slot.bytes || ranges[i].bytes > slot.bytes - remote[i].offset) {
        return refuse(operation.kind, concat(ranges[i].bytes, " bytes at ", remote[i].offset, " of a slot of ", slot.bytes,
                                             " bytes (range ", i, ")"));
      }
    }
    if (ranges[i].bytes == 0) continue;
    if (!operation.ranges.empty() && use.region().type != operation.ranges.front().use.region().type)
      return refuse(operation.kind, "host and GPU memory in one transfer");
    operation.bytes += ranges[i].bytes;
    operation.ranges.push_back({std::move(use), static_cast<std::byte*>(ranges[i].data), ranges[i].bytes});
    if (i < remote.size()) operation.remote.push_back({remote[i].slot.id, remote[i].offset, ranges[i].bytes});
  }
  if (options.notify != nullptr) operation.notify = std::make_unique<NotifyMsg>(*options.notify);
  const auto after = [&operation](Result<std::unique_ptr<GpuMark>> mark) {
    if (mark.is_ok()) operation.after.push_back(std::move(*mark));
    return mark.status();
  };
  if (options.after_stream) TCPX_RETURN_IF_ERROR(after(gpu_order_->mark_stream(*options.after_stream)));
  if (options.after_event != nullptr) TCPX_RETURN_IF_ERROR(after(gpu_order_->mark_event(options.after_event)));
  if (options.completion_event) {
    TCPX_ASSIGN_OR_RETURN(auto signal, gpu_order_->make_signal());
    operation.set_signal(std::move(signal));
  }
  return Status::ok();
}

Status Endpoint::Impl::wait(OperationId id, std::optional<Milliseconds> timeout) {
  const Deadline deadline =
      timeout ? Deadline::after(*timeout) : Deadline(later(Deadline::after(timeout_).at(), kWaitBeyondDeadline));
  Backoff backoff(cores_);
  for (;;) {
    const bool ended = config_.progress_thread
                           ? operations_.wait(id, deadline, spin() == Duration::zero() ? Duration::zero() : kWaitSpin)
                           : operations_.wait(id, Deadline(TimePoint{}), Duration::zero());
    if (ended) {
      OperationAnswer answer = operations_.poll(id);
      if (answer.state == OperationState::kUnknown)
        return Status(Code::kNotFound, "wait", concat("no operation ", static_cast<uint64_t>(id)));
      return answer.status;
    }
    if (deadline.expired()) return Status(Code::kTimeout, "wait", "the operation is still pending");
    if (config_.progress_thread) continue;
    if (progress()) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
}

Status Endpoint::Impl::cancel(OperationId id) {
  if (operations_.is_unknown(id)) return Status(Code::kNotFound, "cancel", concat("no operation ", static_cast<uint64_t>(id)));
  if (operations_.request_cancel(id)) events_.wake();
  return Status::ok();
}

Status Endpoint::Impl::check_notify(const NotifyMsg& message) {
  if (message.name.size() <= kMaxNotifyNameBytes && message.msg.size() <= kMaxNotifyTextBytes) return Status::ok();
  return Status(Code::kInvalidArgument, "notify",
                concat("a name of ", message.name.size(), " and a text of ", message.msg.size(), " bytes; at most ",
                       kMaxNotifyNameBytes, " and ", kMaxNotifyTextBytes));
}

Status Endpoint::Impl::notify(ConnId conn, const NotifyMsg& message) {
  TCPX_ASSIGN_OR_RETURN(const auto state, find(conn));
  TCPX_RETURN_IF_ERROR(check_notify(message));
  const std::shared_ptr<LinkFace>& face = state->face;
  if (face->ended) return why_ended(conn);
  if (const size_t waiting = face->notifications.load(std::memory_order_relaxed); waiting >= kMaxNotifyWaits)
    return Status(Code::kExhausted, "notify", concat(waiting, " notifications wait for the peer to take some"));
  notifications_.push(*std::make_unique<Notification>(conn, state->link, message, face).release());
  send_notifications(conn);
  return Status::ok();
}

// At once when nobody makes progress just now, which saves waking the thread. The rest is left to the thread.
void Endpoint::Impl::send_notifications(ConnId conn) {
  if (progress_mutex_.try_lock()) {
    const CurrentGpu gpu(*this);
    progress_locks_.fetch_add(1);
    (void)take_submissions();
    const auto found = links_.find(conn);
    if (found != links_.end()) attend(*found->second.link, [&] { (void)found->second.link->progress(false); });
    progress_mutex_.unlock();
  }
  events_.wake();
}

Status Endpoint::Impl::why_ended(ConnId conn) {
  const ProgressLock lock(*this);
  const auto found = links_.find(conn);
  if (found != links_.end() && !found->second.link->status().is_ok()) return found->second.link->status();
  return Status(Code::kPeerGone, "notify", "the connection was closed");
}

std::vector<NotifyMsg> Endpoint::Impl::wait_notifs(Deadline deadline) {
  Backoff backoff(cores_);
  for (;;) {
    const Deadline look = config_.progress_thread ? Deadline::after(kLookAtStop).earlier(deadline) : Deadline(TimePoint{});
    std::vector<NotifyMsg> taken = inbox_.take_all(look);
    if (!taken.empty() || deadline.expired() || stop_) return taken;
    if (config_.progress_thread) continue;
    if (progress()) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
}

}  // namespace tcpx
