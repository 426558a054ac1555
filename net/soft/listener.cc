#include "net/soft/listener.h"

#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "net/devmem/receiver.h"

namespace tcpx::soft {
namespace {

// A connector sends its hello at once, so this is long even for a slow network.
constexpr Duration kHelloTimeout = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kTick{250};
constexpr size_t kMaxStrangers = 256;
// Connections taken before the hellos of those accepted are read and other handlers of the thread get their turn. Below
// kMaxStrangers, so that a burst of good clients does not evict its own.
constexpr int kStrangersPerTurn = 64;
constexpr int kBacklog = 4096;
constexpr Duration kFirstPause = std::chrono::milliseconds(5), kLongestPause = std::chrono::milliseconds(100);

void log_dropped(const std::string& peer, const std::string& why) {
  log(LogLevel::kWarning, "tcpx-soft: connection from ", peer, " dropped during the handshake: ", why);
}

// All ports are taken, which is not what other shortages are: each listener has one only until its connection is made.
bool is_for_ports(const Status& status) {
  return is_shortage(status) && (status.native() == EADDRINUSE || status.native() == EACCES);
}

/// Listens at `address` and writes the port back. Waits for a port for as long as `patience`.
Result<UniqueFd> listen_at_one(SocketAddress& address, Duration patience) {
  const Deadline until = Deadline::after(patience);
  auto fd = listen_tcp(address.with_port(0), kBacklog);
  for (Duration pause = kFirstPause; !fd.is_ok() && is_for_ports(fd.status()) && !until.expired();) {
    std::this_thread::sleep_until(Deadline::after(pause).earlier(until).at());
    pause = std::min(2 * pause, kLongestPause);
    fd = listen_tcp(address.with_port(0), kBacklog);
  }
  if (!fd.is_ok()) return fd;
  TCPX_ASSIGN_OR_RETURN(address, local_address(fd->get()));
  return fd;
}

// An address that was there when the devices were found.
bool has_gone(const Status& status) {
  return status.native() == EADDRNOTAVAIL || status.native() == EAFNOSUPPORT;
}

}  // namespace

SoftListener::SoftListener(const HandleInfo& info, HelloProofs proofs, std::shared_ptr<IoPool> io, const ListenerLimits& limits,
                           UniqueFd timer)
    : Object(ObjectKind::kListener),
      info_(info),
      proofs_(std::move(proofs)),
      io_(std::move(io)),
      thread_(io_->any()),
      limits_(limits),
      timer_(std::move(timer)) {}

// Leaves the addresses that are there, with their ports.
Status SoftListener::listen_at(std::vector<SocketAddress>& addresses, std::list<Port>& ports, Duration patience) {
  std::vector<SocketAddress> there;
  Status gone;
  for (SocketAddress& address : addresses) {
    auto fd = listen_at_one(address, patience);
    if (fd.is_ok()) {
      there.push_back(address);
      ports.emplace_back().fd = std::move(*fd);
    } else if (has_gone(fd.status())) {
      log(LogLevel::kDebug, "tcpx-soft: ", fd.status().to_string());
      gone = fd.status();
    } else {
      return fd.status();
    }
  }
  if (there.empty()) return gone;
  addresses = std::move(there);
  return Status::ok();
}

Result<std::unique_ptr<SoftListener>> SoftListener::create(HandleInfo info, std::shared_ptr<IoPool> io,
                                                           const ListenerLimits& limits, const Prover* secret) {
  std::list<Port> ports;
  TCPX_RETURN_IF_ERROR(listen_at(info.addresses, ports, limits.shortage));
  TCPX_RETURN_IF_ERROR(listen_at(info.control_addresses, ports, limits.shortage));
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(info.cookie.words))));
  info.proves = secret != nullptr;
  TCPX_ASSIGN_OR_RETURN(HelloProofs proofs, HelloProofs::create(info.cookie, secret));
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) return system_error("create timer", errno);
  std::unique_ptr<SoftListener> listener(new SoftListener(info, std::move(proofs), std::move(io), limits, std::move(timer)));
  listener->ports_.swap(ports);
  TCPX_RETURN_IF_ERROR(listener->thread_.add(listener->timer_.get(), *listener, listener->ticking_));
  for (Port& port : listener->ports_) TCPX_RETURN_IF_ERROR(listener->thread_.add(port.fd.get(), *listener, port.registration));
  return listener;
}

SoftListener::~SoftListener() {
  // Destroying a stranger's registration waits for a running handler, which takes mutex_: move them out first.
  std::list<Stranger> strangers;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    strangers.swap(strangers_);
  }
  strangers.clear();
  for (Port& port : ports_) port.registration.remove();
  ticking_.remove();
}

std::vector<int> SoftListener::data_listeners() const {
  std::vector<int> listeners;
  for (const Port& port : ports_)
    if (listeners.size() < info_.addresses.size()) listeners.push_back(port.fd.get());  // these come first
  return listeners;
}

void SoftListener::receive_into(std::shared_ptr<const DevicePool> pool) {
  MutexLock lock(mutex_);
  device_pool_ = std::move(pool);
}

std::shared_ptr<const DevicePool> SoftListener::device_pool() {
  MutexLock lock(mutex_);
  return device_pool_;
}

bool SoftListener::has_peer() {
  MutexLock lock(mutex_);
  return !ready_.empty();
}

Status SoftListener::shortage() {
  MutexLock lock(mutex_);
  const bool lasts = is_shortage(stuck_) && Clock::steady().now() - stuck_since_ >= limits_.shortage;
  return lasts ? stuck_ : Status::ok();
}

std::optional<ConnectedSockets> SoftListener::try_accept() {
  MutexLock lock(mutex_);
  if (ready_.empty()) return std::nullopt;
  ConnectedSockets sockets = std::move(ready_.front());
  ready_.pop_front();
  return sockets;
}

// One handler for everything this listener owns: there are few descriptors, and the order of events does not matter.
IoHandler::Next SoftListener::on_ready() {
  MutexLock lock(mutex_);
  if (closing_) return Next::kWait;
  uint64_t ticks;
  [[maybe_unused]] const ssize_t n = ::read(timer_.get(), &ticks, sizeof ticks);
  bool more = false, stuck = false;
  for (const Port& port : ports_) {
    const Backlog backlog = take_strangers(port.fd.get());
    more |= backlog == Backlog::kMore;
    stuck |= backlog == Backlog::kStuck;
  }
  if (!stuck) stuck_ = Status::ok();
  for (auto it = strangers_.begin(); it != strangers_.end();) it = advance(*it) ? strangers_.erase(it) : std::next(it);
  drop_overdue(Clock::steady().now());
  arm_timer();
  // Not kAgain: this call may have come through the registration of a stranger that is gone by now.
  if (more) ticking_.kick();
  return Next::kWait;
}

SoftListener::Backlog SoftListener::take_strangers(int fd_with_backlog) {
  for (int taken = 0; taken < kStrangersPerTurn; ++taken) {
    UniqueFd fd = accept_tcp(fd_with_backlog);
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Backlog::kEmpty;
      if (stuck_.is_ok()) {
        stuck_ = system_error("accept", errno);
        stuck_since_ = Clock::steady().now();
        log(LogLevel::kWarning, "tcpx-soft: ", stuck_.to_string());
      }
      return Backlog::kStuck;
    }
    auto address = peer_address(fd.get());
    const std::string peer = address.is_ok() ? address->to_string() : "(already gone)";
    if (strangers_.size() >= kMaxStrangers) {
      log_dropped(strangers_.front().peer, concat("more than ", kMaxStrangers, " unfinished connections"));
      strangers_.pop_front();
    }
    Stranger& stranger = strangers_.emplace_back();
    stranger.peer = peer;
    stranger.give_up_at = Clock::steady().now() + kHelloTimeout;
    stranger.fd = std::move(fd);
    if (Status status = thread_.add(stranger.fd.get(), *this, stranger.registration); !status.is_ok()) {
      log_dropped(peer, status.to_string());
      strangers_.pop_back();
    }
  }
  return Backlog::kMore;
}

ssize_t SoftListener::read(int fd, std::span<std::byte> into) const {
  if (device_pool_ == nullptr) return ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
  devmem::DevmemReceiver receiver(device_pool_->calls, fd, device_pool_->bound);
  std::array<std::byte, kHelloBytes> room;
  const auto come = receiver.receive(std::span(room).first(into.size()), 0);
  if (!come.is_ok() || !come->has_value()) {
    errno = come.is_ok() ? EAGAIN : EPROTO;
    return -1;
  }
  for (const Fragment& fragment : (*come)->linear)
    std::copy_n(room.begin() + fragment.src_off, fragment.len, into.begin() + static_cast<ptrdiff_t>(fragment.dst_off));
  for (const Fragment& fragment : (*come)->fragments) {
    const std::byte* const from = device_pool_->pages->device_base() + fragment.src_off;
    if (!device_pool_->copies->copy(into.data() + fragment.dst_off, from, fragment.len).is_ok()) {
      errno = EPROTO;
      return -1;
    }
  }
  return static_cast<ssize_t>((*come)->bytes);
}

bool SoftListener::advance(Stranger& stranger) {
  while (stranger.read < kHelloBytes) {
    const ssize_t n = read(stranger.fd.get(), std::span(stranger.hello).subspan(stranger.read));
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      log_dropped(stranger.peer, concat("closed after ", stranger.read, " of ", kHelloBytes, " bytes of the hello"));
      return true;
    }
    stranger.read += static_cast<size_t>(n);
  }
  const auto hello = proofs_.read(stranger.hello);
  const Status status = hello.is_ok() ? admit(stranger, *hello) : hello.status();
  if (!status.is_ok()) log_dropped(stranger.peer, status.to_string());
  return true;
}

Status SoftListener::admit(Stranger& stranger, const Hello& hello) {
  const auto refuse = [](std::string why) { return Status(Code::kProtocol, "hello", std::move(why)); };
  if (hello.data_sockets != info_.data_sockets)
    return refuse(concat(hello.data_sockets, " data sockets instead of ", info_.data_sockets));
  if (hello.encrypts != info_.encrypts) return refuse(encrypts_at_one_end(info_.encrypts));
  if (hello.headers_apart != info_.headers_apart) return refuse("headers on another socket than the handle says");
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& known) { return known.connection == hello.connection; });
  if (group == groups_.end()) {
    if (groups_.size() >= limits_.groups) return refuse(concat("more than ", limits_.groups, " unfinished connections"));
    if (proofs_.has_secret()) TCPX_RETURN_IF_ERROR(remember(hello.connection));
    group = groups_.emplace(groups_.end());
    group->connection = hello.connection;
    group->give_up_at = Clock::steady().now() + limits_.group_timeout;
    group->sockets.data.resize(info_.data_sockets);
    if (info_.encrypts) group->sockets.ciphers.resize(info_.data_sockets);
    group->sockets.chunk_bytes = info_.chunk_bytes;
    group->sockets.headers_apart = info_.headers_apart;
    group->sockets.device_pool = device_pool_;
    group->sockets.peer = stranger.peer;
  }
  UniqueFd& place = hello.socket_index == info_.data_sockets ? group->sockets.control : group->sockets.data[hello.socket_index];
  if (place) return refuse(concat("socket ", hello.socket_index, " twice"));

  std::array<std::byte, kHelloAnswerBytes> answer;
  TCPX_RETURN_IF_ERROR(proofs_.write({.connection = hello.connection, .accepted = true}, stranger.hello, answer));
  if (info_.encrypts && hello.socket_index < info_.data_sockets) {
    TCPX_ASSIGN_OR_RETURN(group->sockets.ciphers[hello.socket_index],
                          proofs_.cipher(RecordCipher::Work::kOpens, stranger.hello, answer));
  }
  // The first bytes on a fresh socket always fit its buffer.
  if (::send(stranger.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(answer.size())) {
    return system_error("answer the hello", errno);
  }
  stranger.registration.remove();  // the comm registers it again
  place = std::move(stranger.fd);
  if (++group->present == info_.data_sockets + 1) {
    ready_.push_back(std::move(group->sockets));
    groups_.erase(group);
  }
  return Status::ok();
}

// Who hears a hello of a connection that has ended, or is complete, could say it again.
Status SoftListener::remember(uint64_t connection) {
  const auto refuse = [](std::string why) { return Status(Code::kProtocol, "hello", std::move(why)); };
  if (remembered_.contains(connection)) return refuse("of a connection that was there before: a repetition");
  if (remembered_.size() >= limits_.remembered)
    return refuse(concat("more than ", limits_.remembered, " connections with a secret: listen again"));
  remembered_.insert(connection);
  return Status::ok();
}

void SoftListener::drop_overdue(TimePoint now) {
  while (!strangers_.empty() && strangers_.front().give_up_at <= now) {
    log_dropped(strangers_.front().peer,
                concat("only ", strangers_.front().read, " of ", kHelloBytes, " bytes of the hello came in time"));
    strangers_.pop_front();
  }
  while (!groups_.empty() && groups_.front().give_up_at <= now) {
    log_dropped(groups_.front().sockets.peer,
                concat(groups_.front().present, " of ", info_.data_sockets + 1, " sockets came in time"));
    groups_.pop_front();
  }
}

// Ticks only while there is a stranger to time out, or one waiting in a backlog that no new event will announce.
void SoftListener::arm_timer() {
  itimerspec spec{};
  if (!strangers_.empty() || !groups_.empty() || !stuck_.is_ok()) {
    spec.it_value.tv_nsec = std::chrono::nanoseconds(kTick).count();
    spec.it_interval = spec.it_value;
  }
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

}  // namespace tcpx::soft
