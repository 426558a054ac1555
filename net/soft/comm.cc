#include "net/soft/comm.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

std::atomic<int64_t> registrations{0};

// Reads of a control socket before other sockets of the thread get their turn.
constexpr int kControlReadsPerTurn = 8;

std::string name_of_end(ObjectKind kind, const std::string& peer) {
  return concat(kind == ObjectKind::kSendComm ? "send to " : "receive from ", peer);
}

}  // namespace

int64_t held_registrations() {
  return registrations.load(std::memory_order_relaxed);
}

Status watch_host(const ConnectedSockets& sockets, Duration silence) {
  const KeepAlive keep_alive = keep_alive_for(silence);
  for (const UniqueFd& data : sockets.data) TCPX_RETURN_IF_ERROR(set_keep_alive(data.get(), keep_alive));
  return set_keep_alive(sockets.control.get(), keep_alive);
}

SoftComm::SoftComm(ObjectKind object_kind, MemoryOps& memory, int device, std::shared_ptr<IoPool> io, ConnectedSockets& sockets)
    : Object(object_kind),
      memory_(memory),
      device_(device),
      io_(std::move(io)),
      peer_(std::move(sockets.peer)),
      nic_(std::move(sockets.nic)),
      no_memory_(stream_error(name_of_end(object_kind, peer_), ENOMEM)) {
  if (no_memory_.code() == Code::kExhausted) throw std::bad_alloc();
}

Result<SoftRegion*> SoftComm::register_region(void* data, uint64_t bytes, MemoryType type) {
  constexpr const char* kOperation = "regMr";
  if (data == nullptr) return refused(kOperation, "NULL address");
  SoftRegion region{.data = static_cast<std::byte*>(data), .bytes = bytes, .type = type, .host_readable = true};
  if (type == MemoryType::kCuda) {
    if (reinterpret_cast<uintptr_t>(data) % kPageBytes != 0) {
      return refused(kOperation, concat("CUDA memory at ", Hex{reinterpret_cast<uintptr_t>(data)},
                                        " does not begin at a multiple of ", kPageBytes));
    }
    if (!memory_.is_device_memory(data)) {
      return refused(kOperation,
                     concat(Hex{reinterpret_cast<uintptr_t>(data)}, " is registered as CUDA memory but is not memory of a GPU"));
    }
    region.host_readable = memory_.host_readable(data);
    TCPX_RETURN_IF_ERROR(prepare_region(region));
  }
  return add_region(region);
}

SoftRegion* SoftComm::register_list(std::shared_ptr<const RangeList> list) {
  return add_region({.data = list->begin(), .bytes = list->bytes(), .list = std::move(list)});
}

SoftRegion* SoftComm::add_region(const SoftRegion& region) {
  MutexLock lock(mutex_);
  regions_.push_back(region);
  registrations.fetch_add(1, std::memory_order_relaxed);
  return &regions_.back();
}

Status SoftComm::deregister_region(SoftRegion* region) {
  constexpr const char* kOperation = "deregMr";
  if (region == nullptr) return Status::ok();
  const auto is_it = [&](const SoftRegion& known) { return &known == region; };
  bool broken;
  {
    MutexLock lock(mutex_);
    if (std::none_of(regions_.begin(), regions_.end(), is_it)) return refused(kOperation, "not a registration of this comm");
    // The requests that use it can no longer end. NCCL does this when it aborts a communicator.
    if (region_in_use(region)) set_failure(Status(Code::kSystem, kOperation, "memory of outstanding requests was deregistered"));
    broken = failed();
  }
  if (broken) stop_sockets();  // after this nothing touches the memory any more
  MutexLock lock(mutex_);
  registrations.fetch_sub(static_cast<int64_t>(regions_.remove_if(is_it)), std::memory_order_relaxed);
  return Status::ok();
}

Result<const SoftRegion*> SoftComm::check_region(const SoftRegion* handle, const void* data, uint64_t bytes,
                                                 const char* operation) const {
  const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const SoftRegion& known) { return &known == handle; });
  if (found == regions_.end()) return refused(operation, "mhandle is NULL or not a registration of this comm");
  if (bytes != 0 && !found->contains(data, bytes)) {
    return refused(operation,
                   concat(bytes, " bytes at ", Hex{reinterpret_cast<uintptr_t>(data)}, " do not lie in the registered ",
                          found->bytes, " bytes at ", Hex{reinterpret_cast<uintptr_t>(found->data)}));
  }
  return &*found;
}

Status SoftComm::check_oldest(const abi::TcpxRequest* request) const {
  constexpr const char* kOperation = "test";
  const char* noun = kind == ObjectKind::kSendComm ? "request" : "receive";
  if (reported_ == posted_) {
    return refused(kOperation, concat("no ", noun, " of this comm is outstanding: a finished one is reported once"));
  }
  if (slot_of(request) != reported_ % kRequests) {
    return refused(kOperation, concat("not the oldest outstanding ", noun, " of its comm: test in post order"));
  }
  return Status::ok();
}

void SoftComm::set_failure(const Status& why) noexcept {
  if (failed()) return;
  failure_ = no_memory_;
  try {
    // Consumers take result code 3 for "busy" or "misused" and try again. A broken stream is over, whichever end broke it, and so is one
    // for which there is no memory: code 2.
    const Code code = why.code() == Code::kProtocol    ? Code::kPeerGone
                      : why.code() == Code::kExhausted ? Code::kSystem
                                                       : why.code();
    Status told(code, name_of_end(kind, peer_), why.to_string(), why.domain(), why.native());
    if (told.code() == code) failure_ = std::move(told);
  } catch (const std::bad_alloc&) {
  }
  has_failed_.store(true);
  tell();
  try {
    log(LogLevel::kDebug, "tcpx-soft: ", failure_.to_string());
  } catch (const std::bad_alloc&) {
  }
}

Status SoftComm::report_failure() {
  stop_sockets();
  MutexLock lock(mutex_);
  // Logged only now: a peer that leaves while no call waits for it has merely finished its work.
  if (!failure_logged_) log(LogLevel::kWarning, "tcpx-soft: ", failure_.to_string());
  failure_logged_ = true;
  return failure_;
}

void SoftComm::stop_sockets() {
  stop_data_sockets();
  control_->stop();
}

void SoftComm::end() {
  stop_sockets();
  MutexLock lock(mutex_);
  if (has_requests()) registrations.fetch_sub(static_cast<int64_t>(regions_.size()), std::memory_order_relaxed);
}

IoHandler::Next ControlSocket::on_ready() {
  owner_.on_control_ready();
  std::array<std::byte, 256> bytes;
  for (int i = 0; i < kControlReadsPerTurn; ++i) {
    const size_t n = read(bytes);
    if (n == 0) return Next::kWait;
    const Status status = owner_.on_control_bytes(std::span(bytes).first(n));
    if (status.is_ok()) continue;
    closed_ = true;
    owner_.on_control_closed(status);
    return Next::kWait;
  }
  return Next::kAgain;
}

void ControlSocket::on_out_of_memory() noexcept {
  closed_ = true;
  owner_.fail_without_memory();
}

Status ControlSocket::Owner::on_control_bytes(std::span<const std::byte>) {
  return Status(Code::kProtocol, "control socket", "bytes where none belong");
}

Result<size_t> ControlSocket::try_send(std::span<const std::byte> bytes) const {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      return stream_error("control socket", errno);
    }
  }
  return sent;
}

size_t ControlSocket::read(std::span<std::byte> into) {
  if (closed_) return 0;
  ssize_t n;
  do n = ::recv(fd(), into.data(), into.size(), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<size_t>(n);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  closed_ = true;
  owner_.on_control_closed(n == 0 ? Status(Code::kPeerGone, "control socket", "closed by the peer")
                                  : stream_error("control socket", errno));
  return 0;
}

}  // namespace tcpx::soft
