#include "tcpx/endpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "endpoint/endpoint_impl.h"

namespace tcpx {
namespace {

Deadline deadline_of(const Endpoint::Impl& impl, std::optional<Endpoint::Milliseconds> timeout) {
  return Deadline::after(timeout.value_or(impl.timeout()));
}

// Nothing is thrown on purpose; what is thrown all the same (no memory) ends here.
template <class Body>
auto guarded(const char* operation, Endpoint::Impl& impl, Body body) -> decltype(body()) {
  const Endpoint::Impl::Call call(impl);
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::kExhausted, operation, "out of memory");
  } catch (const std::exception& error) {
    return Status(Code::kInternal, operation, error.what());
  }
}

// Registers memory of its own for as long as the transfer of a slot takes.
template <class Transfer>
Status move_slot(Endpoint& endpoint, RemoteSlot& slot, Transfer transfer) {
  auto memory = std::make_unique<RemoteSlot>(slot);
  const auto id = endpoint.register_memory(memory.get(), sizeof *memory, MemoryType::kHost);
  if (!id.is_ok()) return id.status();
  Status status = transfer(LocalRange{*id, memory.get(), sizeof *memory});
  if (status.is_ok()) slot = *memory;
  if (!endpoint.deregister(*id).is_ok()) (void)memory.release();  // an operation that does not end may still write there
  return status;
}

// The same for calls that have no status.
template <class Answer, class Body>
Answer guarded_or(Answer otherwise, Body body) {
  try {
    return body();
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace

void serialize_fifo_item(const FifoItem& item, char* buffer) {
  std::memcpy(buffer, &item, sizeof item);
}

void deserialize_fifo_item(const char* buffer, FifoItem* item) {
  std::memcpy(item, buffer, sizeof *item);
}

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
  auto impl = Endpoint::Impl::create(std::move(parts), config);
  if (!impl.is_ok()) return impl.status();
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

Endpoint::Endpoint(Result<std::unique_ptr<Impl>> impl) : failed_(impl.status()) {
  if (impl.is_ok()) impl_ = std::move(*impl);
}

Endpoint::~Endpoint() {
  // The threads are the parent's, and so is everything that they work on.
  if (impl_ != nullptr && !impl_->check_process().is_ok()) (void)impl_.release();
}

Result<Endpoint::Impl*> Endpoint::impl() const {
  if (impl_ == nullptr) return failed_;
  TCPX_RETURN_IF_ERROR(impl_->check_process());
  return impl_.get();
}

Status Endpoint::status() const {
  return impl().status();
}

Result<ConnId> Endpoint::connect(const std::string& ip, int remote_gpu_idx, int remote_port,
                                 std::optional<Milliseconds> timeout) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("connect", **impl,
                 [&] { return (*impl)->connect(ip, remote_gpu_idx, remote_port, deadline_of(**impl, timeout)); });
}

Result<Endpoint::Accepted> Endpoint::accept(std::optional<Milliseconds> timeout) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("accept", **impl, [&] { return (*impl)->accept(deadline_of(**impl, timeout)); });
}

std::vector<uint8_t> Endpoint::get_metadata() const {
  return impl_ == nullptr ? std::vector<uint8_t>() : impl_->metadata();
}

Result<Endpoint::PeerAddress> Endpoint::read_metadata(std::span<const uint8_t> metadata) {
  auto decoded = decode_metadata(metadata);
  if (!decoded.is_ok()) return decoded.status();
  return PeerAddress{.ip = std::move(decoded->host), .port = decoded->port, .gpu_idx = decoded->gpu_idx};
}

Result<ConnId> Endpoint::add_remote_endpoint(std::span<const uint8_t> metadata, std::optional<Milliseconds> timeout) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("add remote endpoint", **impl, [&]() -> Result<ConnId> {
    const auto decoded = decode_metadata(metadata);
    if (!decoded.is_ok()) return decoded.status();
    return (*impl)->add_remote(*decoded, deadline_of(**impl, timeout));
  });
}

Status Endpoint::remove_connection(ConnId conn) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("remove connection", **impl, [&] { return (*impl)->remove(conn); });
}

Status Endpoint::start_accepting() {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("start accepting", **impl, [&] { return (*impl)->start_accepting(); });
}

Result<MemoryId> Endpoint::register_memory(const void* data, size_t bytes, std::optional<MemoryType> type) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("register memory", **impl, [&] { return (*impl)->register_memory(data, bytes, type); });
}

Status Endpoint::deregister(MemoryId memory) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("deregister memory", **impl, [&] { return (*impl)->deregister(memory); });
}

Result<RemoteSlot> Endpoint::advertise(ConnId conn, const LocalRange& range) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("advertise", **impl, [&] { return (*impl)->advertise(conn, range); });
}

Result<OperationId> Endpoint::start(int kind, ConnId conn, std::span<const LocalRange> ranges,
                                    std::span<const RemoteRange> remote, const SubmitOptions& options) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("start operation", **impl,
                 [&] { return (*impl)->submit(static_cast<OperationKind>(kind), conn, ranges, remote, options); });
}

Status Endpoint::perform(int kind, ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                         const SubmitOptions& options) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  const Impl::Call call(**impl);
  const auto id = start(kind, conn, ranges, remote, options);
  if (!id.is_ok()) return id.status();
  constexpr Milliseconds kMost = Milliseconds::max() - Impl::kWaitBeyondDeadline;
  return wait(*id, options.timeout ? std::optional(std::min(*options.timeout, kMost) + Impl::kWaitBeyondDeadline) : std::nullopt);
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
  const auto impl = this->impl();
  if (!impl.is_ok()) return {};
  return (*impl)->operations().poll(id);
}

Status Endpoint::wait(OperationId id, std::optional<Milliseconds> timeout) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("wait", **impl, [&] { return (*impl)->wait(id, timeout); });
}

Status Endpoint::cancel(OperationId id) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("cancel", **impl, [&] { return (*impl)->cancel(id); });
}

Result<void*> Endpoint::completion_event(OperationId id) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  auto event = (*impl)->operations().event_of(id);
  if (event.is_ok() && *event == nullptr)
    return Status(Code::kInvalidArgument, "get completion event", "the operation was started without one");
  return event;
}

Status Endpoint::notify(ConnId conn, const NotifyMsg& message) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status();
  return guarded("notify", **impl, [&] { return (*impl)->notify(conn, message); });
}

std::vector<NotifyMsg> Endpoint::get_notifs() {
  const auto impl = this->impl();
  if (!impl.is_ok()) return {};
  return (*impl)->inbox().take_all();
}

std::vector<NotifyMsg> Endpoint::wait_notifs(std::optional<Milliseconds> timeout) {
  const auto impl = this->impl();
  if (!impl.is_ok()) return {};
  const Impl::Call call(**impl);
  return guarded_or(std::vector<NotifyMsg>(), [&] { return (*impl)->wait_notifs(deadline_of(**impl, timeout)); });
}

bool Endpoint::progress() {
  const auto impl = this->impl();
  return impl.is_ok() && guarded_or(false, [&] { return (*impl)->progress(); });
}

EndpointStats Endpoint::stats() const {
  const auto impl = this->impl();
  return impl.is_ok() ? guarded_or(EndpointStats{}, [&] { return (*impl)->stats(); }) : EndpointStats{};
}

std::string Endpoint::flight_record() const {
  const auto impl = this->impl();
  if (!impl.is_ok()) return impl.status().to_string();
  return guarded_or(std::string(), [&] { return (*impl)->flight_record(); });
}

}  // namespace tcpx
