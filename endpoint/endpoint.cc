#include "tcpx/endpoint.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "endpoint/endpoint_impl.h"

namespace tcpx {
namespace {

Deadline deadline_of(const Endpoint::Impl& impl, std::optional<Endpoint::Milliseconds> timeout) {
  return Deadline::after(timeout.value_or(impl.timeout()));
}

// Turns exceptions (only bad_alloc is expected) into a Status, and refuses every call in a forked child.
template <class Body>
auto guarded(const char* operation, const Endpoint::Impl& impl, Body body) -> decltype(body()) {
  TCPX_RETURN_IF_ERROR(impl.check_process());
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::kExhausted, operation, "out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kInternal, operation, error.what());
  }
}

// As `guarded`, for calls that may wait: the destructor first gets other threads out of them.
template <class Body>
auto guarded_wait(const char* operation, Endpoint::Impl& impl, Body body) -> decltype(body()) {
  const Endpoint::Impl::Call call(impl);
  return guarded(operation, impl, body);
}

// Moves a slot, by memory that is registered only for this transfer.
template <class Transfer>
Status move_slot(Endpoint& endpoint, RemoteSlot& slot, Transfer transfer) {
  auto memory = std::make_unique<RemoteSlot>(slot);
  TCPX_ASSIGN_OR_RETURN(const auto id, endpoint.register_memory(memory.get(), sizeof *memory, MemoryType::kHost));
  Status status = transfer(LocalRange{id, memory.get(), sizeof *memory});
  if (status.is_ok()) slot = *memory;
  if (!endpoint.deregister(id).is_ok()) (void)memory.release();  // leaked: an operation that does not end may still write there
  return status;
}

// As `guarded`, for calls that return no status.
template <class Answer, class Body>
Answer guarded_or(Answer otherwise, const Endpoint::Impl& impl, Body body) {
  if (!impl.check_process().is_ok()) return otherwise;
  try {
    return body();
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace

std::chrono::microseconds LatencyHistogram::quantile(double q) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(q * static_cast<double>(count)));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets.size() && count > 0; ++i) {
    seen += buckets[i];
    if (seen >= wanted && seen > 0) return std::chrono::microseconds(int64_t{2} << i);
  }
  return std::chrono::microseconds(0);
}

Result<std::unique_ptr<Endpoint>> EndpointMaker::make(EndpointParts parts, const EndpointConfig& config) {
  TCPX_ASSIGN_OR_RETURN(auto impl, Endpoint::Impl::create(std::move(parts), config));
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Endpoint::~Endpoint() {
  // In a forked child: the threads, and everything that they work on, belong to the parent.
  if (!impl_->check_process().is_ok()) (void)impl_.release();
}

Result<ConnId> Endpoint::connect(const std::string& ip, int remote_gpu_idx, int remote_port,
                                 std::optional<Milliseconds> timeout) {
  return guarded_wait("connect", *impl_, [&] {
    return impl_->connections().connect(ip, remote_gpu_idx, remote_port, deadline_of(*impl_, timeout));
  });
}

Result<Endpoint::Accepted> Endpoint::accept(std::optional<Milliseconds> timeout) {
  return guarded_wait("accept", *impl_, [&] { return impl_->connections().accept(deadline_of(*impl_, timeout)); });
}

std::vector<uint8_t> Endpoint::get_metadata() const {
  return impl_->connections().metadata();
}

Result<Endpoint::PeerAddress> Endpoint::read_metadata(std::span<const uint8_t> metadata) {
  TCPX_ASSIGN_OR_RETURN(auto decoded, decode_metadata(metadata));
  return PeerAddress{.ip = std::move(decoded.host), .port = decoded.port, .gpu_idx = decoded.gpu_idx};
}

Result<ConnId> Endpoint::add_remote_endpoint(std::span<const uint8_t> metadata, std::optional<Milliseconds> timeout) {
  return guarded_wait("add remote endpoint", *impl_, [&]() -> Result<ConnId> {
    TCPX_ASSIGN_OR_RETURN(const auto decoded, decode_metadata(metadata));
    return impl_->connections().add_remote(decoded, deadline_of(*impl_, timeout));
  });
}

Status Endpoint::remove_connection(ConnId conn) {
  return guarded_wait("remove connection", *impl_, [&] { return impl_->connections().remove(conn); });
}

Status Endpoint::start_accepting() {
  return guarded("start accepting", *impl_, [&] { return impl_->connections().start_accepting(); });
}

Result<MemoryId> Endpoint::register_memory(const void* data, size_t bytes, std::optional<MemoryType> type) {
  return guarded("register memory", *impl_, [&] { return impl_->register_memory(data, bytes, type); });
}

Status Endpoint::deregister(MemoryId memory, std::optional<Milliseconds> timeout) {
  return guarded_wait("deregister memory", *impl_, [&] { return impl_->deregister(memory, deadline_of(*impl_, timeout)); });
}

Result<RemoteSlot> Endpoint::advertise(const LocalRange& range, const AdvertiseOptions& options) {
  return guarded("advertise", *impl_, [&] { return impl_->advertise({}, range, options); });
}

Result<RemoteSlot> Endpoint::advertise(ConnId conn, const LocalRange& range, const AdvertiseOptions& options) {
  return guarded("advertise", *impl_, [&] { return impl_->advertise(conn, range, options); });
}

Status Endpoint::withdraw(const RemoteSlot& slot) {
  return guarded("withdraw", *impl_, [&] { return impl_->withdraw(slot); });
}

bool Endpoint::is_advertised(const RemoteSlot& slot) const {
  return guarded_or(false, *impl_, [&] { return impl_->is_advertised(slot); });
}

Result<OperationId> Endpoint::start(int kind, ConnId conn, std::span<const LocalRange> ranges,
                                    std::span<const RemoteRange> remote, const SubmitOptions& options) {
  return guarded("start operation", *impl_,
                 [&] { return impl_->submit(static_cast<OperationKind>(kind), conn, ranges, remote, options); });
}

Result<TransferPlan> Endpoint::prepare(std::span<const LocalRange> ranges, std::span<const RemoteRange> remote) const {
  return guarded("prepare transfer", *impl_, [&]() -> Result<TransferPlan> {
    TCPX_ASSIGN_OR_RETURN(auto plan, impl_->prepare(ranges, remote));
    return TransferPlan(std::move(plan), ranges.size());
  });
}

Result<TransferPlan> Endpoint::prepare_blocks(const LocalRange& local, const RemoteRange& remote, size_t block_bytes) const {
  return guarded("prepare blocks", *impl_, [&]() -> Result<TransferPlan> {
    TCPX_ASSIGN_OR_RETURN(auto plan, impl_->prepare(local, remote, block_bytes));
    const size_t blocks = plan->blocks;
    return TransferPlan(std::move(plan), blocks);
  });
}

Result<OperationId> Endpoint::start(int kind, ConnId conn, const TransferPlan& plan,
                                    std::optional<std::span<const uint32_t>> indices, std::span<const uint32_t> remote_indices,
                                    const SubmitOptions& options) {
  std::optional<PlannedRounds::Chosen> chosen;
  if (indices) chosen = {*indices, remote_indices};
  return guarded("start operation", *impl_,
                 [&] { return impl_->submit(static_cast<OperationKind>(kind), conn, plan.ranges_, chosen, options); });
}

Status Endpoint::perform(int kind, ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                         const SubmitOptions& options) {
  const Impl::Call call(*impl_);
  TCPX_ASSIGN_OR_RETURN(const auto id, start(kind, conn, ranges, remote, options));
  constexpr Milliseconds kMost = Milliseconds::max() - Impl::kWaitBeyondDeadline;
  return wait(id, options.timeout ? std::optional(std::min(*options.timeout, kMost) + Impl::kWaitBeyondDeadline) : std::nullopt);
}

Status Endpoint::send_slot(ConnId conn, const RemoteSlot& slot, std::optional<Milliseconds> timeout) {
  TCPX_RETURN_IF_ERROR(check_slot(slot));
  RemoteSlot copy = slot;
  return move_slot(*this, copy, [&](const LocalRange& range) { return send(conn, range, {.timeout = timeout}); });
}

Result<RemoteSlot> Endpoint::recv_slot(ConnId conn, std::optional<Milliseconds> timeout) {
  RemoteSlot slot{};
  TCPX_RETURN_IF_ERROR(move_slot(*this, slot, [&](const LocalRange& range) { return recv(conn, range, {.timeout = timeout}); }));
  const Status status = check_slot(slot);
  if (!status.is_ok()) return Status(Code::kProtocol, "receive slot", status.detail());
  return slot;
}

namespace {
constexpr int kSend = static_cast<int>(OperationKind::kSend), kRecv = static_cast<int>(OperationKind::kRecv);
constexpr int kWrite = static_cast<int>(OperationKind::kWrite), kRead = static_cast<int>(OperationKind::kRead);
}  // namespace

Result<OperationId> Endpoint::send_async(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options) {
  return start(kSend, conn, ranges, {}, options);
}
Result<OperationId> Endpoint::recv_async(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options) {
  return start(kRecv, conn, ranges, {}, options);
}
Result<OperationId> Endpoint::write_async(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                                          const SubmitOptions& options) {
  return start(kWrite, conn, ranges, remote, options);
}
Result<OperationId> Endpoint::read_async(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                                         const SubmitOptions& options) {
  return start(kRead, conn, ranges, remote, options);
}
Result<OperationId> Endpoint::write_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> indices,
                                          const SubmitOptions& options) {
  return start(kWrite, conn, plan, indices, {}, options);
}
Result<OperationId> Endpoint::read_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> indices,
                                         const SubmitOptions& options) {
  return start(kRead, conn, plan, indices, {}, options);
}
Result<OperationId> Endpoint::write_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> local_blocks,
                                          std::span<const uint32_t> remote_blocks, const SubmitOptions& options) {
  return start(kWrite, conn, plan, local_blocks, remote_blocks, options);
}
Result<OperationId> Endpoint::read_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> local_blocks,
                                         std::span<const uint32_t> remote_blocks, const SubmitOptions& options) {
  return start(kRead, conn, plan, local_blocks, remote_blocks, options);
}
Result<OperationId> Endpoint::write_async(ConnId conn, const TransferPlan& plan, const SubmitOptions& options) {
  return start(kWrite, conn, plan, std::nullopt, {}, options);
}
Result<OperationId> Endpoint::read_async(ConnId conn, const TransferPlan& plan, const SubmitOptions& options) {
  return start(kRead, conn, plan, std::nullopt, {}, options);
}
Status Endpoint::send(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options) {
  return perform(kSend, conn, ranges, {}, options);
}
Status Endpoint::recv(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options) {
  return perform(kRecv, conn, ranges, {}, options);
}
Status Endpoint::write(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                       const SubmitOptions& options) {
  return perform(kWrite, conn, ranges, remote, options);
}
Status Endpoint::read(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                      const SubmitOptions& options) {
  return perform(kRead, conn, ranges, remote, options);
}

OperationAnswer Endpoint::poll(OperationId id) {
  return guarded_or(OperationAnswer{}, *impl_, [&] { return impl_->poll(id); });
}

Status Endpoint::wait(OperationId id, std::optional<Milliseconds> timeout) {
  return guarded_wait("wait", *impl_, [&] { return impl_->wait(id, timeout); });
}

Status Endpoint::cancel(OperationId id) {
  return guarded("cancel", *impl_, [&] { return impl_->cancel(id); });
}

Result<void*> Endpoint::completion_event(OperationId id) {
  return guarded("get completion event", *impl_, [&]() -> Result<void*> {
    auto event = impl_->operations().event_of(id);
    if (event.is_ok() && *event == nullptr)
      return Status(Code::kInvalidArgument, "get completion event", "the operation was started without one");
    return event;
  });
}

Status Endpoint::notify(ConnId conn, const NotifyMsg& message) {
  return guarded("notify", *impl_, [&] { return impl_->notify(conn, message); });
}

std::vector<NotifyMsg> Endpoint::get_notifs() {
  return guarded_or(std::vector<NotifyMsg>(), *impl_, [&] { return impl_->take_notifs(); });
}

std::vector<NotifyMsg> Endpoint::wait_notifs(std::optional<Milliseconds> timeout) {
  const Impl::Call call(*impl_);
  return guarded_or(std::vector<NotifyMsg>(), *impl_, [&] { return impl_->wait_notifs(deadline_of(*impl_, timeout)); });
}

Result<int> Endpoint::event_fd() {
  return guarded("get event descriptor", *impl_, [&] { return impl_->event_fd(); });
}

void Endpoint::stop_waiting() {
  if (impl_->check_process().is_ok()) impl_->stop_waiting();
}

bool Endpoint::progress() {
  return guarded_or(false, *impl_, [&] { return impl_->progress(); });
}

EndpointStats Endpoint::stats() const {
  return guarded_or(EndpointStats{}, *impl_, [&] { return impl_->stats(); });
}

std::string Endpoint::metrics_text() const {
  return guarded_or(std::string(), *impl_, [&] { return impl_->metrics_text(); });
}

std::string Endpoint::flight_record() const {
  return guarded_or(impl_->check_process().to_string(), *impl_, [&] { return impl_->flight_record(); });
}

}  // namespace tcpx
