#include "net/soft/listener.h"

#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <new>
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
  for (Port& port : ports) port.is_led = true;
  TCPX_RETURN_IF_ERROR(listen_at(info.control_addresses, ports, limits.shortage));
  TCPX_RETURN_IF_ERROR(listen_at(info.host_addresses, ports, limits.shortage));
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
    if (port.is_led) listeners.push_back(port.fd.get());
  return listeners;
}

void SoftListener::receive_into(std::shared_ptr<const DevicePool> pool) {
  MutexLock lock(mutex_);
  device_pool_ = std::move(pool);
}

std::shared_ptr<const DevicePool> SoftListener::device_pool() {
  MutexLock lock(mutex_);
  return ready_.empty() ? nullptr : ready_.front().device_pool;
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
    const Backlog backlog = take_strangers(port);
    more |= backlog == Backlog::kMore;
    stuck |= backlog == Backlog::kStuck;
  }
  if (!stuck) stuck_ = Status::ok();
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    bool is_finished = true;
    try {
      is_finished = advance(*it);
    } catch (const std::bad_alloc&) {
      // Its group may be half made, or lack this socket alone, which the connector may take for accepted.
      if (it->said) std::erase_if(groups_, [&](const Group& known) { return known.connection == it->said->connection; });
    }
    it = is_finished ? strangers_.erase(it) : std::next(it);
  }
  drop_overdue(Clock::steady().now());
  // Only while there is a stranger to time out, or one waiting in a backlog that no new event will announce.
  arm_timer(!strangers_.empty() || !groups_.empty() || !stuck_.is_ok());
  // Not kAgain: this call may have come through the registration of a stranger that is gone by now.
  if (more) ticking_.kick();
  return Next::kWait;
}

// No event may come for those who wait in a backlog: they are looked at in the next tick.
void SoftListener::on_out_of_memory() noexcept {
  arm_timer(true);
}

void SoftListener::log_dropped(const std::string& peer, const std::string& why) {
  crowd_log_.warn(Clock::steady().now(), "tcpx-soft: connection from ", peer, " dropped during the handshake: ", why);
}

SoftListener::Backlog SoftListener::take_strangers(const Port& port) {
  for (int taken = 0; taken < kStrangersPerTurn; ++taken) {
    UniqueFd fd = accept_tcp(port.fd.get());
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
    std::list<Stranger> taken_one(1);
    Stranger& stranger = taken_one.front();
    stranger.peer = peer;
    stranger.give_up_at = Clock::steady().now() + kHelloTimeout;
    stranger.fd = std::move(fd);
    stranger.pool = port.is_led ? device_pool_.get() : nullptr;
    if (Status status = thread_.add(stranger.fd.get(), *this, stranger.registration); !status.is_ok()) {
      log_dropped(peer, status.to_string());
      continue;
    }
    strangers_.splice(strangers_.end(), taken_one);
  }
  return Backlog::kMore;
}

ssize_t SoftListener::read(const Stranger& stranger, std::span<std::byte> into, size_t& in_pool) {
  if (stranger.pool == nullptr) return ::recv(stranger.fd.get(), into.data(), into.size(), MSG_DONTWAIT);
  const DevicePool& pool = *stranger.pool;
  devmem::DevmemReceiver receiver(pool.calls, stranger.fd.get(), pool.bound);
  std::array<std::byte, kPageBytes> room;
  const auto come = receiver.receive(std::span(room).first(std::min(into.size(), room.size())), 0);
  if (!come.is_ok() || !come->has_value()) {
    errno = come.is_ok() ? EAGAIN : EPROTO;
    return -1;
  }
  for (const Fragment& fragment : (*come)->linear)
    std::copy_n(room.begin() + fragment.src_off, fragment.len, into.begin() + static_cast<ptrdiff_t>(fragment.dst_off));
  for (const Fragment& fragment : (*come)->fragments) {
    const std::byte* const from = pool.pages->device_base() + fragment.src_off;
    if (!pool.copies->copy(into.data() + fragment.dst_off, from, fragment.len).is_ok()) {
      errno = EPROTO;
      return -1;
    }
    in_pool += fragment.len;
  }
  return static_cast<ssize_t>((*come)->bytes);
}

Result<bool> SoftListener::fill(const Stranger& stranger, std::span<std::byte> into, size_t& filled, size_t& in_pool) {
  while (filled < into.size()) {
    const ssize_t n = read(stranger, into.subspan(filled), in_pool);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status(Code::kPeerGone, "read", "closed");
    filled += static_cast<size_t>(n);
  }
  return true;
}

bool SoftListener::advance(Stranger& stranger) {
  const auto drop = [&](const std::string& why) TCPX_REQUIRES(mutex_) {
    log_dropped(stranger.peer, why);
    return true;
  };
  if (!stranger.said) {
    size_t in_pool = 0;
    const auto come = fill(stranger, stranger.hello, stranger.read, in_pool);
    if (!come.is_ok()) return drop(concat("closed after ", stranger.read, " of ", kHelloBytes, " bytes of the hello"));
    if (!*come) return false;
    auto hello = proofs_.read(stranger.hello);
    const Status status = hello.is_ok() ? check_hello(stranger, *hello) : hello.status();
    if (!status.is_ok()) return drop(status.to_string());
    stranger.said = *std::move(hello);
    if (stranger.said->socket_index < stranger.said->device_sockets) stranger.page.resize(kPageBytes);
  }
  const auto proved = fill(stranger, stranger.page, stranger.page_read, stranger.page_in_pool);
  if (!proved.is_ok()) return drop(concat("closed after ", stranger.page_read, " bytes of the proof page"));
  if (!*proved) return false;
  if (const Status status = admit(stranger, *stranger.said); !status.is_ok()) return drop(status.to_string());
  return true;
}

Status SoftListener::check_hello(const Stranger& stranger, const Hello& hello) const {
  const auto refuse = [](std::string why) { return Status(Code::kProtocol, "hello", std::move(why)); };
  if (hello.device_sockets != 0 && (info_.host_addresses.empty() || hello.device_sockets != info_.data_sockets))
    return refuse(concat(hello.device_sockets, " device sockets"));
  if (hello.data_sockets != info_.data_sockets + hello.device_sockets)
    return refuse(concat(hello.data_sockets, " data sockets instead of ", info_.data_sockets + hello.device_sockets));
  if (hello.encrypts != info_.encrypts) return refuse(encrypts_at_one_end(info_.encrypts));
  if (hello.headers_apart != info_.headers_apart) return refuse("headers on another socket than the handle says");
  if ((hello.socket_index < hello.device_sockets) != (stranger.pool != nullptr))
    return refuse(
        concat("socket ", hello.socket_index, " at a port for ", stranger.pool != nullptr ? "device" : "host", " memory"));
  return Status::ok();
}

Status SoftListener::answer(const Stranger& stranger, const HelloAnswer& answer,
                            std::span<std::byte, kHelloAnswerBytes> record) const {
  TCPX_RETURN_IF_ERROR(proofs_.write(answer, stranger.hello, record));
  // The first bytes on a fresh socket always fit its buffer.
  if (::send(stranger.fd.get(), record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(record.size()))
    return system_error("answer the hello", errno);
  return Status::ok();
}

Status SoftListener::admit(Stranger& stranger, const Hello& hello) {
  const auto refuse = [](std::string why) { return Status(Code::kProtocol, "hello", std::move(why)); };
  std::array<std::byte, kHelloAnswerBytes> record;
  bool is_unproven = std::find(unproven_.begin(), unproven_.end(), hello.connection) != unproven_.end();
  if (const std::string wrong = what_is_unproven(hello, stranger.page, stranger.page_in_pool); !wrong.empty() && !is_unproven) {
    crowd_log_.warn(Clock::steady().now(), "tcpx-soft: ", stranger.peer, " is asked to send to host memory: ", wrong);
    std::erase_if(groups_, [&](const Group& known) { return known.connection == hello.connection; });
    unproven_.push_back(hello.connection);
    if (unproven_.size() > limits_.groups) unproven_.pop_front();
    is_unproven = true;
  }
  if (is_unproven) return answer(stranger, {.connection = hello.connection, .accepted = false}, record);
  auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& known) { return known.connection == hello.connection; });
  if (group == groups_.end()) {
    if (groups_.size() >= limits_.groups) return refuse(concat("more than ", limits_.groups, " unfinished connections"));
    if (proofs_.has_secret()) TCPX_RETURN_IF_ERROR(remember(hello.connection));
    group = groups_.emplace(groups_.end());
    group->connection = hello.connection;
    group->give_up_at = Clock::steady().now() + limits_.group_timeout;
    group->sockets.data.resize(hello.data_sockets);
    if (info_.encrypts) group->sockets.ciphers.resize(hello.data_sockets);
    group->sockets.chunk_bytes = info_.chunk_bytes;
    group->sockets.headers_apart = info_.headers_apart;
    group->sockets.device_sockets = hello.device_sockets;
    if (hello.device_sockets > 0) group->sockets.device_pool = device_pool_;
    group->sockets.peer = stranger.peer;
  }
  if (hello.data_sockets != group->sockets.data.size()) return refuse(concat("now ", hello.data_sockets, " data sockets"));
  UniqueFd& place = hello.socket_index == hello.data_sockets ? group->sockets.control : group->sockets.data[hello.socket_index];
  if (place) return refuse(concat("socket ", hello.socket_index, " twice"));

  TCPX_RETURN_IF_ERROR(answer(stranger, {.connection = hello.connection, .accepted = true}, record));
  if (info_.encrypts && hello.socket_index < hello.data_sockets) {
    TCPX_ASSIGN_OR_RETURN(group->sockets.ciphers[hello.socket_index],
                          proofs_.cipher(RecordCipher::Work::kOpens, stranger.hello, record));
  }
  stranger.registration.remove();  // the comm registers it again
  place = std::move(stranger.fd);
  if (++group->present == hello.data_sockets + 1) {
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
    const Group& late = groups_.front();
    log_dropped(late.sockets.peer, concat(late.present, " of ", late.sockets.data.size() + 1, " sockets came in time"));
    groups_.pop_front();
  }
}

void SoftListener::arm_timer(bool ticks) const noexcept {
  itimerspec spec{};
  if (ticks) {
    spec.it_value.tv_nsec = std::chrono::nanoseconds(kTick).count();
    spec.it_interval = spec.it_value;
  }
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

}  // namespace tcpx::soft
