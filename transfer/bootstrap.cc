#include "transfer/bootstrap.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "transfer/bootstrap_message.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 64;
constexpr Duration kLookAtStop = milliseconds(50);
constexpr Duration kFirstRetryPause = milliseconds(10);
constexpr Duration kLongestRetryPause = milliseconds(200);
// One address of several may lead nowhere without an answer; the others get their turn after this.
constexpr Duration kConnectAttempt = std::chrono::seconds(3);

// Errors of accept(2) that concern the connection being taken, not the listener.
bool is_lost_connection(int error_number) {
  switch (error_number) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EPERM:
      return true;
    default:
      return false;
  }
}

// On a port of the ephemeral range a connect to this machine can meet itself, with nobody listening.
bool is_self_connection(int fd) {
  const auto local = local_address(fd), remote = peer_address(fd);
  return local.is_ok() && remote.is_ok() && local->to_string() == remote->to_string();
}

// Nobody listens there yet, or the network is slow: the same address may answer later.
bool may_answer_later(const Status& status) {
  return status.code() == Code::kPeerGone || status.code() == Code::kTimeout;
}

Result<UniqueFd> connect_once(const std::vector<SocketAddress>& addresses, Deadline deadline) {
  std::optional<Status> reason;
  for (const SocketAddress& address : addresses) {
    auto socket = connect_tcp(address, Deadline::after(kConnectAttempt).earlier(deadline));
    if (socket.is_ok() && !is_self_connection(socket->get())) return socket;
    Status status =
        socket.is_ok() ? Status(Code::kPeerGone, concat("connect to ", address.to_string()), "nobody listens") : socket.status();
    // An address of a family that this machine lacks says nothing about the others.
    if (!reason || may_answer_later(status)) reason = std::move(status);
  }
  return reason.value_or(Status(Code::kInternal, "connect", "no address"));
}

Result<UniqueFd> connect_until(const std::vector<SocketAddress>& addresses, Deadline deadline, const std::atomic<bool>* stop) {
  Duration pause = kFirstRetryPause;
  for (;;) {
    auto socket = connect_once(addresses, deadline);
    if (socket.is_ok()) return socket;
    const Status& status = socket.status();
    if (stop != nullptr && stop->load()) return Status(Code::kCancelled, status.operation(), "interrupted");
    if (!may_answer_later(status)) return socket;
    const Deadline retry = Deadline::after(pause).earlier(deadline);
    std::this_thread::sleep_until(retry.at());
    if (deadline.expired()) {
      return Status(Code::kTimeout, status.operation(), concat("no answer until the deadline, last: ", status.detail()),
                    status.domain(), status.native());
    }
    pause = std::min(pause * 2, kLongestRetryPause);
  }
}

Result<Frame> receive_one(int fd, Deadline deadline, const std::atomic<bool>* stop) {
  FrameAssembler assembler;
  for (;;) {
    const Result<bool> whole = read_frame_part(fd, assembler);
    if (!whole.is_ok()) return whole.status();
    if (*whole) return assembler.take();
    TCPX_RETURN_IF_ERROR(wait_readable(fd, deadline, stop));
  }
}

}  // namespace

Result<BootstrapChannel> bootstrap_connect(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop) {
  const auto addresses = resolve(host, port);
  if (!addresses.is_ok()) return addresses.status();
  auto socket = connect_until(*addresses, deadline, stop);
  if (!socket.is_ok()) return socket.status();
  const auto peer = peer_address(socket->get());
  if (!peer.is_ok()) return peer.status();
  TCPX_RETURN_IF_ERROR(set_no_delay(socket->get()));
  TCPX_RETURN_IF_ERROR(send_all(socket->get(), encode_frame(encode_hello(TCPX_VERSION)), deadline));
  const auto named = [&](const Status& status) {
    return Status(status.code(), concat("bootstrap with ", peer->to_string()), status.detail(), status.domain(), status.native());
  };
  const auto answer = receive_one(socket->get(), deadline, stop);
  if (!answer.is_ok()) return named(answer.status());
  if (answer->type == FrameType::kFinish) {
    Status reported;
    if (const Status status = decode_finish(*answer, reported); !status.is_ok()) return named(status);
    if (!reported.is_ok()) return reported;
  }
  auto build = decode_hello(*answer);
  if (!build.is_ok()) return named(build.status());
  return BootstrapChannel(std::move(*socket), *peer, std::move(*build), stop);
}

Result<std::unique_ptr<BootstrapServer>> BootstrapServer::create(const BootstrapServerOptions& options) {
  SocketAddress wanted = SocketAddress::any(AF_INET6, options.port);
  if (!options.host.empty()) {
    const auto addresses = resolve(options.host, options.port);
    if (!addresses.is_ok()) return addresses.status();
    wanted = addresses->front();
  }
  auto listener = listen_tcp(wanted, kBacklog);
  const bool no_ipv6 =
      !listener.is_ok() && (listener.status().native() == EAFNOSUPPORT || listener.status().native() == EADDRNOTAVAIL);
  if (no_ipv6 && options.host.empty()) listener = listen_tcp(SocketAddress::any(AF_INET, options.port), kBacklog);
  if (!listener.is_ok()) return listener.status();
  const auto address = local_address(listener->get());
  if (!address.is_ok()) return address.status();
  return std::unique_ptr<BootstrapServer>(new BootstrapServer(std::move(*listener), *address, options));
}

BootstrapServer::BootstrapServer(UniqueFd listener, const SocketAddress& address, const BootstrapServerOptions& options)
    : listener_(std::move(listener)), address_(address), options_(options) {}

Result<BootstrapChannel> BootstrapServer::accept(Deadline deadline) {
  for (;;) {
    TCPX_RETURN_IF_ERROR(take_connections());
    for (size_t i = 0; i < waiting_.size();) {
      // Read before looking at the clock: a client that spoke in time is served even if this end came late to listen.
      const Result<bool> whole = read_frame_part(waiting_[i].socket.get(), waiting_[i].hello);
      if (whole.is_ok() && !*whole && !waiting_[i].deadline.expired()) {
        ++i;
        continue;
      }
      Waiting client = std::move(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      const Status status = !whole.is_ok() ? whole.status()
                            : *whole       ? Status::ok()
                                           : Status(Code::kTimeout, "bootstrap hello", "none until the deadline");
      auto channel = status.is_ok() ? greet(client) : Result<BootstrapChannel>(status);
      if (channel.is_ok()) return channel;
      drop(client, channel.status());
    }
    if (options_.stop != nullptr && options_.stop->load()) return Status(Code::kCancelled, "bootstrap accept", "interrupted");
    if (deadline.expired())
      return Status(Code::kTimeout, "bootstrap accept", concat("no client on port ", port(), " until the deadline"));
    TCPX_RETURN_IF_ERROR(wait_for_event(deadline));
  }
}

Status BootstrapServer::take_connections() {
  for (;;) {
    UniqueFd socket = accept_tcp(listener_.get());
    if (!socket) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Status::ok();
      if (errno == EINTR || is_lost_connection(errno)) continue;
      return system_error("bootstrap accept", errno);
    }
    const auto peer = peer_address(socket.get());
    if (!peer.is_ok()) continue;  // reset already
    if (waiting_.size() >= options_.max_waiting) {
      drop(waiting_.front(),
           Status(Code::kExhausted, "bootstrap hello", concat("more than ", options_.max_waiting, " connections wait")));
      waiting_.erase(waiting_.begin());
    }
    waiting_.push_back({std::move(socket), *peer, Deadline::after(options_.hello_time), FrameAssembler()});
  }
}

Status BootstrapServer::wait_for_event(Deadline deadline) {
  if (options_.stop != nullptr) deadline = deadline.earlier(Deadline::after(kLookAtStop));
  std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
  for (const Waiting& client : waiting_) {
    entries.push_back({client.socket.get(), POLLIN, 0});
    deadline = deadline.earlier(client.deadline);
  }
  if (::poll(entries.data(), entries.size(), deadline.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
  return Status::ok();
}

Result<BootstrapChannel> BootstrapServer::greet(Waiting& client) {
  auto build = decode_hello(client.hello.take());
  if (!build.is_ok()) return build.status();
  TCPX_RETURN_IF_ERROR(set_no_delay(client.socket.get()));
  TCPX_RETURN_IF_ERROR(
      send_all(client.socket.get(), encode_frame(encode_hello(TCPX_VERSION)), Deadline::after(options_.hello_time)));
  log(LogLevel::kInfo, "bootstrap: serving ", client.peer.to_string(), ", build ", *build);
  return BootstrapChannel(std::move(client.socket), client.peer, std::move(*build), options_.stop);
}

void BootstrapServer::drop(const Waiting& client, const Status& why) {
  // A connection that never said anything is a port scan or a health check and no cause for alarm.
  const bool spoke = client.hello.size() > 0;
  log(spoke ? LogLevel::kWarning : LogLevel::kInfo, "bootstrap: dropped ", client.peer.to_string(), ": ", why.to_string());
  if (why.code() != Code::kUnsupported) return;
  // A client of another version is one of ours: tell it why. Its socket is empty, so this does not wait.
  const auto answer = encode_frame(encode_finish(why));
  (void)::send(client.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace tcpx
