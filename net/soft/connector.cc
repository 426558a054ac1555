#include "net/soft/connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

constexpr Duration kLongestPatience = std::chrono::seconds(1);

/// Binds to `source` when that is possible.
Result<UniqueFd> connect_from(const std::optional<SocketAddress>& source, const SocketAddress& target) {
  return begin_connect(target, source && source->family() == target.family() ? &*source : nullptr);
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::start(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                                    const std::optional<SocketAddress>& control_source) {
  std::unique_ptr<Connector> connector(new Connector(listener, deadline));
  Hello hello{.cookie = listener.cookie, .connection = 0, .socket_index = 0, .data_sockets = listener.data_sockets};
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&hello.connection, 1))));
  connector->connection_ = hello.connection;
  for (uint32_t i = 0; i <= listener.data_sockets; ++i) {
    // The data interface may not reach the network of a control interface: control sockets then leave from ours, or from the
    // address the kernel chooses.
    const bool apart = i == listener.data_sockets && listener.control_address;
    Socket& socket = connector->sockets_.emplace_back();
    socket.target = apart ? *listener.control_address : listener.address;
    TCPX_ASSIGN_OR_RETURN(socket.fd, apart ? connect_from(control_source, socket.target) : connect_from(source, socket.target));
    hello.socket_index = i;
    encode_hello(hello, socket.hello);
  }
  return connector;
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
  if (socket.step == Step::kConnects) {
    if (!wait_for(socket.fd.get(), POLLOUT, Deadline(TimePoint{})).is_ok()) return Status::ok();
    TCPX_RETURN_IF_ERROR(end_connect(socket.fd.get(), socket.target));
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
    for (Socket& socket : sockets_) {
      TCPX_RETURN_IF_ERROR(advance(socket));
      if (socket.step == Step::kDone) continue;
      waits.push_back({socket.fd.get(), static_cast<short>(socket.step == Step::kListens ? POLLIN : POLLOUT), 0});
    }
    if (waits.empty()) break;
    if (deadline_.expired()) {
      return Status(
          Code::kTimeout, "connect",
          concat(waits.size(), " of ", sockets_.size(), " sockets have no answer from ", listener_.address.to_string()));
    }
    if (until.expired()) return std::optional<ConnectedSockets>();
    if (::poll(waits.data(), waits.size(), until.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
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
                                             const std::optional<SocketAddress>& control_source) {
  TCPX_ASSIGN_OR_RETURN(const auto connector, Connector::start(listener, source, deadline, control_source));
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(auto connected, connector->advance(kLongestPatience));
    if (connected.has_value()) return std::move(*connected);
  }
}

}  // namespace tcpx::soft
