#include "net/soft/connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "net/soft/socket_nic.h"

namespace tcpx::soft {
namespace {

constexpr Duration kLongestPatience = std::chrono::seconds(1);
constexpr Duration kFirstRest = std::chrono::milliseconds(5), kLongestRest = std::chrono::milliseconds(200);

// A network that is away for a moment, or no free port. That the process is out of descriptors is told at once: those that it has
// are held by those who wait.
bool is_passing(const Status& status) {
  return status.code() == Code::kPeerGone || (is_shortage(status) && status.native() == EADDRNOTAVAIL);
}

bool is_refusal(const Status& status) {
  return status.native() == ECONNREFUSED || status.native() == ECONNRESET;
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::start(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                                    const std::optional<SocketAddress>& control_source, const std::string& nic) {
  std::unique_ptr<Connector> connector(new Connector(listener, deadline));
  connector->nic_ = nic;
  Hello hello{.cookie = listener.cookie, .connection = 0, .socket_index = 0, .data_sockets = listener.data_sockets};
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&hello.connection, 1))));
  connector->connection_ = hello.connection;
  for (uint32_t i = 0; i <= listener.data_sockets; ++i) {
    // The data interface may not reach the network of a control interface: control sockets then leave from ours, or from the
    // address the kernel chooses.
    const bool apart = i == listener.data_sockets && listener.control_address;
    Socket& socket = connector->sockets_.emplace_back();
    socket.target = apart ? *listener.control_address : listener.address;
    socket.source = apart ? control_source : source;
    socket.has_nic = !apart;
    if (socket.source && socket.source->family() != socket.target.family()) socket.source.reset();
    hello.socket_index = i;
    encode_hello(hello, socket.hello);
    TCPX_RETURN_IF_ERROR(connector->connect(socket));
  }
  return connector;
}

Status Connector::connect(Socket& socket) {
  const SocketAddress* source = socket.source ? &*socket.source : nullptr;
  const std::string nic = socket.has_nic && source != nullptr && !nic_.empty() ? nic_to_bind(nic_, socket.target, *source) : "";
  auto fd = begin_connect(socket.target, source, nic);
  socket.bound_until.reset();
  if (!nic.empty() && fd.is_ok()) socket.bound_until = Clock::steady().now() + kBoundPatience;
  if (!nic.empty() && !fd.is_ok() && !is_shortage(fd.status())) {
    let_go_of_nic(socket, fd.status());
    fd = begin_connect(socket.target, source);
  }
  if (!fd.is_ok()) return put_off(socket, fd.status());
  socket.fd = std::move(*fd);
  socket.step = Step::kConnects;
  return Status::ok();
}

void Connector::let_go_of_nic(const Socket& socket, const Status& why) {
  static std::atomic<bool> refused{false};
  const bool known = why.native() == EPERM && refused.exchange(true);  // on this machine it is so for all
  if (!nic_.empty() && !known)
    log(LogLevel::kWarning, "tcpx-soft: data to ", socket.target.host(), " cannot be made to leave by ", nic_,
        ", and goes as the kernel routes it: ", why.to_string());
  nic_.clear();
}

// Only for connects: what ends a connection that was there is final.
Status Connector::put_off(Socket& socket, const Status& why) {
  if (!is_passing(why)) return why;
  const TimePoint now = Clock::steady().now();
  if (is_refusal(why)) {
    if (!refused_since_) refused_since_ = now;
    if (now - *refused_since_ >= kRefusalPatience) return why;
  }
  socket.fd.reset();
  socket.step = Step::kRests;
  socket.trouble = why;
  socket.next_rest = std::clamp(2 * socket.next_rest, kFirstRest, kLongestRest);
  socket.rests_until = now + socket.next_rest;
  return Status::ok();
}

Status Connector::trouble() const {
  const auto troubled =
      std::find_if(sockets_.begin(), sockets_.end(), [](const Socket& socket) { return !socket.trouble.is_ok(); });
  return troubled != sockets_.end() ? troubled->trouble : Status::ok();
}

// Moves bytes of the record of this step. @return true when all are moved
Result<bool> Connector::move(Socket& socket) {
  const bool says = socket.step == Step::kSaysHello;
  const std::span<std::byte> record = says ? std::span<std::byte>(socket.hello) : std::span<std::byte>(socket.answer);
  while (socket.moved < record.size()) {
    const auto rest = record.subspan(socket.moved);
    const ssize_t n = says ? ::send(socket.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
                           : ::recv(socket.fd.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (n > 0) {
      socket.moved += static_cast<size_t>(n);
    } else if (n == 0) {
      return Status(Code::kPeerGone, "connect",
                    concat("connection closed after ", socket.moved, " of ", record.size(), " bytes of the answer"));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      return system_error("connect", errno);
    }
  }
  socket.moved = 0;
  return true;
}

Status Connector::advance(Socket& socket) {
  if (socket.step == Step::kRests) {
    if (Clock::steady().now() < socket.rests_until) return Status::ok();
    TCPX_RETURN_IF_ERROR(connect(socket));
  }
  if (socket.step == Step::kConnects) {
    const bool answered = wait_for(socket.fd.get(), POLLOUT, Deadline(TimePoint{})).is_ok();
    const bool late = !answered && socket.bound_until && Clock::steady().now() >= *socket.bound_until;
    if (!answered && !late) return Status::ok();
    const Status status = late ? Status(Code::kTimeout, concat("connect to ", socket.target.to_string()), "no answer")
                               : end_connect(socket.fd.get(), socket.target);
    // A refusal at least has come back by this NIC.
    if (!status.is_ok() && socket.bound_until && !is_refusal(status)) {
      let_go_of_nic(socket, status);
      return connect(socket);
    }
    if (!status.is_ok()) return put_off(socket, status);
    socket.trouble = Status::ok();
    TCPX_RETURN_IF_ERROR(set_no_delay(socket.fd.get()));
    TCPX_RETURN_IF_ERROR(set_keep_alive(socket.fd.get()));
    socket.step = Step::kSaysHello;
  }
  if (socket.step == Step::kSaysHello) {
    const auto said = move(socket);
    if (!said.is_ok() || !*said) return said.status();
    socket.step = Step::kListens;
  }
  if (socket.step == Step::kListens) {
    const auto heard = move(socket);
    if (!heard.is_ok() || !*heard) return heard.status();
    TCPX_ASSIGN_OR_RETURN(const auto answer, decode_hello_answer(socket.answer));
    if (!answer.accepted || answer.connection != connection_) {
      return Status(Code::kPeerGone, "connect", concat("refused by the listener at ", listener_.address.to_string()));
    }
    socket.step = Step::kDone;
  }
  return Status::ok();
}

Result<std::optional<ConnectedSockets>> Connector::advance(Duration patience) {
  const Deadline until = Deadline::after(patience).earlier(deadline_);
  for (;;) {
    std::vector<pollfd> waits;
    Deadline wakes = until;
    for (Socket& socket : sockets_) {
      TCPX_RETURN_IF_ERROR(advance(socket));
      if (socket.step == Step::kDone) continue;
      if (socket.step == Step::kRests) wakes = wakes.earlier(Deadline(socket.rests_until));
      if (socket.step == Step::kConnects && socket.bound_until) wakes = wakes.earlier(Deadline(*socket.bound_until));
      // poll(2) passes over the -1 of a socket that rests.
      waits.push_back({socket.fd.get(), static_cast<short>(socket.step == Step::kListens ? POLLIN : POLLOUT), 0});
    }
    if (waits.empty()) break;
    if (deadline_.expired()) {
      TCPX_RETURN_IF_ERROR(trouble());
      return Status(
          Code::kTimeout, "connect",
          concat(waits.size(), " of ", sockets_.size(), " sockets have no answer from ", listener_.address.to_string()));
    }
    if (until.expired()) return std::optional<ConnectedSockets>();
    if (::poll(waits.data(), waits.size(), wakes.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
  }
  ConnectedSockets connected;
  connected.control = std::move(sockets_.back().fd);
  sockets_.pop_back();
  for (Socket& socket : sockets_) connected.data.push_back(std::move(socket.fd));
  connected.chunk_bytes = listener_.chunk_bytes;
  connected.peer = listener_.address.to_string();
  return std::optional<ConnectedSockets>(std::move(connected));
}

Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                             const std::optional<SocketAddress>& control_source, const std::string& nic) {
  TCPX_ASSIGN_OR_RETURN(const auto connector, Connector::start(listener, source, deadline, control_source, nic));
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(auto connected, connector->advance(kLongestPatience));
    if (connected.has_value()) return std::move(*connected);
  }
}

}  // namespace tcpx::soft
