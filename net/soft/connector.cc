#include "net/soft/connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "net/soft/socket_nic.h"
#include "secure/settings.h"

namespace tcpx::soft {
namespace {

constexpr Duration kLongestPatience = std::chrono::seconds(1);

// A listener waits longer than this for a hello (net/soft/listener.cc).
constexpr Duration kLongSilence = std::chrono::seconds(1);

// Messages go to the socket that takes them first. Over a path that has little room one socket's buffer would take megabytes that it
// cannot send before long, and later messages would wait for them, while the others have nothing to send.
constexpr int kUnsentBytes = 512 * 1024;

// An address that no source of ours leads to is tried only where that is so for all. Where a socket must be bound to the NIC, it is tried
// without that as well: the kernel may refuse it, and answers may come back by another NIC, which a bound socket does not hear.
std::vector<ConnectRace::Target> targets_of(const std::vector<SocketAddress>& addresses,
                                            const std::vector<SocketAddress>& sources, const std::string& nic) {
  std::vector<ConnectRace::Target> bound, unbound;
  for (const SocketAddress& address : addresses) {
    const auto source = std::find_if(sources.begin(), sources.end(),
                                     [&](const SocketAddress& each) { return each.family() == address.family(); });
    if (source != sources.end()) {
      const std::string device = nic.empty() ? nic : nic_to_bind(nic, address, *source);
      if (!device.empty()) bound.push_back({address, *source, device});
      bound.push_back({address, *source});
    } else {
      unbound.push_back({address});
    }
  }
  return bound.empty() ? unbound : bound;
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::start(const HandleInfo& listener, const std::vector<SocketAddress>& sources,
                                                    Deadline deadline, const std::vector<SocketAddress>& control_sources,
                                                    const std::string& nic, const Prover* secret, bool encrypts) {
  if (listener.proves != (secret != nullptr)) {
    return Status(Code::kMismatch, "connect",
                  listener.proves ? one_sided("listener", "connector") : one_sided("connector", "listener"));
  }
  if (listener.encrypts != encrypts) return Status(Code::kMismatch, "connect", encrypts_at_one_end(listener.encrypts));
  TCPX_ASSIGN_OR_RETURN(HelloProofs proofs, HelloProofs::create(listener.cookie, secret));
  std::unique_ptr<Connector> connector(new Connector(listener, deadline, std::move(proofs)));
  connector->nic_ = nic;
  Hello hello{.data_sockets = listener.data_sockets, .encrypts = encrypts, .headers_apart = listener.headers_apart};
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&hello.connection, 1))));
  connector->connection_ = hello.connection;
  for (uint32_t i = 0; i <= listener.data_sockets; ++i) {
    Socket& socket = connector->sockets_.emplace_back();
    hello.socket_index = i;
    TCPX_RETURN_IF_ERROR(connector->proofs_.write(hello, socket.hello));
  }
  connector->targets_ = targets_of(listener.addresses, sources, nic);
  connector->found_ = connector->targets_.size() == 1;
  connector->race(connector->sockets_.front(), connector->targets_);
  // The data interface may not reach the network of a control interface: control sockets then leave from ours, or from the address
  // the kernel chooses.
  if (!listener.control_addresses.empty()) {
    connector->control_targets_ = targets_of(listener.control_addresses, control_sources, "");
    connector->race(connector->sockets_.back(), connector->control_targets_);
  }
  for (Socket& socket : connector->sockets_) TCPX_RETURN_IF_ERROR(connector->connect(socket));
  return connector;
}

void Connector::race(Socket& socket, const std::vector<ConnectRace::Target>& targets) {
  socket.race.emplace(targets, WhenRefused::kSoonGivesUp);
  socket.step = Step::kConnects;
}

Status Connector::trouble() const {
  for (const Socket& socket : sockets_) {
    if (socket.step != Step::kConnects) continue;
    TCPX_RETURN_IF_ERROR(socket.race->trouble());
  }
  return Status::ok();
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
      return Status(
          Code::kPeerGone, "connect",
          concat("connection closed after ", socket.moved, " of ", record.size(), " bytes of the answer",
                 proofs_.has_secret() ? concat(": do both ends have the same ", name_of_variables(Credential::kNone), "?") : ""));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      return system_error("connect", errno);
    }
  }
  socket.moved = 0;
  return true;
}

// Who refuses a hello says so, and what is no listener of ours closes soon.
Status Connector::begin_again(Socket& socket, const Status& why) {
  const bool closed_late = Clock::steady().now() - socket.connected_at >= kLongSilence && socket.moved == 0;
  if (why.code() != Code::kPeerGone || !closed_late) return why;
  log(LogLevel::kInfo, "tcpx-soft: ", why.to_string(), ": that socket to ", peer(), " connects again");
  socket.fd.reset();
  race(socket, &socket == &sockets_.back() && !control_targets_.empty() ? control_targets_ : targets_);
  return connect(socket);
}

Status Connector::connect(Socket& socket) {
  if (socket.step == Step::kFollows && found_) race(socket, targets_);
  if (socket.step != Step::kConnects) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(socket.fd, socket.race->advance());
  if (!socket.fd) return Status::ok();
  socket.race.reset();
  socket.step = Step::kSaysHello;
  socket.connected_at = Clock::steady().now();
  TCPX_RETURN_IF_ERROR(set_no_delay(socket.fd.get()));
  TCPX_RETURN_IF_ERROR(limit_unsent(socket.fd.get(), kUnsentBytes));
  if (found_ || &socket != &sockets_.front()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto peer, peer_address(socket.fd.get()));
  std::erase_if(targets_, [&](const auto& target) { return target.address.to_string() != peer.to_string(); });
  found_ = true;
  const auto is_bound = [](const auto& target) { return !target.device.empty(); };
  if (std::any_of(targets_.begin(), targets_.end(), is_bound) && nic_of_sender(socket.fd.get()) != nic_) {
    log(LogLevel::kWarning, "tcpx-soft: data to ", peer.host(), " cannot be made to leave by ", nic_,
        ", and goes as the kernel routes it: binding to it was refused, or nothing came back that way");
    std::erase_if(targets_, is_bound);
  }
  return Status::ok();
}

std::string Connector::peer() const {
  std::string all;
  for (const ConnectRace::Target& target : targets_) all += concat(all.empty() ? "" : ", ", target.address.to_string());
  return all;
}

Status Connector::advance(Socket& socket) {
  TCPX_RETURN_IF_ERROR(connect(socket));
  if (socket.step == Step::kSaysHello) {
    const auto said = move(socket);
    if (!said.is_ok()) return begin_again(socket, said.status());
    if (!*said) return Status::ok();
    socket.step = Step::kListens;
  }
  if (socket.step == Step::kListens) {
    const auto heard = move(socket);
    if (!heard.is_ok()) return begin_again(socket, heard.status());
    if (!*heard) return Status::ok();
    TCPX_ASSIGN_OR_RETURN(const auto answer, proofs_.read(socket.answer, socket.hello));
    if (!answer.accepted || answer.connection != connection_) {
      return Status(Code::kPeerGone, "connect", concat("refused by the listener at ", peer()));
    }
    if (listener_.encrypts && &socket != &sockets_.back()) {
      TCPX_ASSIGN_OR_RETURN(socket.cipher, proofs_.cipher(RecordCipher::Work::kSeals, socket.hello, socket.answer));
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
    size_t missing = 0;
    for (Socket& socket : sockets_) {
      TCPX_RETURN_IF_ERROR(advance(socket));
      if (socket.step == Step::kDone) continue;
      ++missing;
      if (socket.race) wakes = socket.race->wait_on(waits, wakes);
      if (socket.fd) waits.push_back({socket.fd.get(), static_cast<short>(socket.step == Step::kListens ? POLLIN : POLLOUT), 0});
    }
    if (missing == 0) break;
    if (deadline_.expired()) {
      TCPX_RETURN_IF_ERROR(trouble());
      return Status(Code::kTimeout, "connect", concat(missing, " of ", sockets_.size(), " sockets have no answer from ", peer()));
    }
    if (until.expired()) return std::optional<ConnectedSockets>();
    if (::poll(waits.data(), waits.size(), wakes.poll_ms()) < 0 && errno != EINTR) return system_error("poll", errno);
  }
  ConnectedSockets connected;
  connected.control = std::move(sockets_.back().fd);
  sockets_.pop_back();
  for (Socket& socket : sockets_) {
    connected.data.push_back(std::move(socket.fd));
    connected.ciphers.push_back(std::move(socket.cipher));
  }
  connected.chunk_bytes = listener_.chunk_bytes;
  connected.headers_apart = listener_.headers_apart;
  connected.peer = peer();
  return std::optional<ConnectedSockets>(std::move(connected));
}

Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const std::vector<SocketAddress>& sources,
                                             Deadline deadline, const std::vector<SocketAddress>& control_sources,
                                             const std::string& nic, const Prover* secret, bool encrypts) {
  TCPX_ASSIGN_OR_RETURN(const auto connector,
                        Connector::start(listener, sources, deadline, control_sources, nic, secret, encrypts));
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(auto connected, connector->advance(kLongestPatience));
    if (connected.has_value()) return std::move(*connected);
  }
}

}  // namespace tcpx::soft
