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
#include "base/words.h"
#include "net/soft/socket_nic.h"
#include "secure/settings.h"

namespace tcpx::soft {
namespace {

// For the proof of a device socket, from when the control socket was connected.
constexpr Duration kProofPatience = std::chrono::seconds(2);

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
  connector->sources_ = sources;
  connector->control_sources_ = control_sources;
  TCPX_RETURN_IF_ERROR(connector->open(listener.host_addresses.empty() ? 0 : listener.data_sockets));
  return connector;
}

Status Connector::open(uint32_t device_sockets) {
  Hello hello{.data_sockets = listener_.data_sockets + device_sockets,
              .device_sockets = device_sockets,
              .encrypts = listener_.encrypts,
              .headers_apart = listener_.headers_apart};
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&hello.connection, 1))));
  connection_ = hello.connection;
  device_sockets_ = device_sockets;
  proof_patience_ = std::min(kProofPatience, (deadline_.at() - Clock::steady().now()) / 2);
  sockets_.clear();
  for (uint32_t i = 0; i <= hello.data_sockets; ++i) {
    Socket& socket = sockets_.emplace_back();
    hello.socket_index = i;
    TCPX_RETURN_IF_ERROR(proofs_.write(hello, socket.hello));
    if (i >= device_sockets) continue;
    const auto page = proof_page(hello);
    socket.page.assign(page.begin(), page.end());
  }
  host_targets_ = tcpx::soft::targets_of(listener_.host_addresses, sources_, nic_);
  targets_ = device_sockets > 0 || host_targets_.empty() ? tcpx::soft::targets_of(listener_.addresses, sources_, nic_)
                                                         : std::exchange(host_targets_, {});
  found_ = targets_.size() == 1;
  race(sockets_.front());
  // The data interface may not reach the network of a control interface: control sockets then leave from ours, or from the address
  // the kernel chooses.
  if (!listener_.control_addresses.empty()) {
    control_targets_ = tcpx::soft::targets_of(listener_.control_addresses, control_sources_, "");
    race(sockets_.back());
  }
  for (Socket& socket : sockets_) TCPX_RETURN_IF_ERROR(connect(socket));
  return Status::ok();
}

Status Connector::open_to_host(const Status& why) {
  log(LogLevel::kWarning, "tcpx-soft: ", peer(),
      " gets its data in host memory, not by its NIC in device memory: ", why.to_string());
  return open(0);
}

const Connector::Targets& Connector::targets_of(const Socket& socket) const {
  if (&socket == &sockets_.back() && !control_targets_.empty()) return control_targets_;
  return is_device(socket) || host_targets_.empty() ? targets_ : host_targets_;
}

void Connector::race(Socket& socket) {
  socket.race.emplace(targets_of(socket), WhenRefused::kSoonGivesUp);
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
  const bool says = socket.step != Step::kListens;
  const std::span<std::byte> record = !says                          ? std::span<std::byte>(socket.answer)
                                      : socket.step == Step::kProves ? std::span<std::byte>(socket.page)
                                                                     : std::span<std::byte>(socket.hello);
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

// The memory must be the NIC's by which the bytes leave.
Status Connector::choose_source(Socket& socket) {
  if (socket.page.empty() || device_sources_ == nullptr) return Status::ok();
  if (nic_of_sender(socket.fd.get()) != device_interface_) {
    device_sources_ = nullptr;
    return Status::ok();
  }
  auto page = device_sources_->page(std::span(socket.page).first<kPageBytes>());
  if (!page.is_ok()) {
    if (page.status().code() != Code::kExhausted) device_sources_ = nullptr;
    return Status::ok();
  }
  TCPX_ASSIGN_OR_RETURN(socket.sender, devmem::DevmemSender::create(device_sources_->calls(), socket.fd.get()));
  socket.from = *std::move(page);
  return Status::ok();
}

Result<bool> Connector::prove(Socket& socket) {
  if (!socket.from) return move(socket);
  while (socket.moved < kPageBytes) {
    TCPX_ASSIGN_OR_RETURN(const size_t sent, socket.sender->try_send(socket.from->dmabuf, socket.from->off + socket.moved,
                                                                     kPageBytes - socket.moved));
    if (sent == 0) return false;
    socket.moved += sent;
  }
  socket.moved = 0;
  return true;
}

// Who refuses a hello says so, and what is no listener of ours closes soon.
Status Connector::begin_again(Socket& socket, const Status& why) {
  const bool closed_late = Clock::steady().now() - socket.connected_at >= kLongSilence && socket.moved == 0;
  if (why.code() != Code::kPeerGone || !closed_late || is_device(socket)) return why;
  log(LogLevel::kInfo, "tcpx-soft: ", why.to_string(), ": that socket to ", peer(), " connects again");
  socket.fd.reset();
  race(socket);
  return connect(socket);
}

Status Connector::connect(Socket& socket) {
  if (socket.step == Step::kFollows && found_) race(socket);
  if (socket.step != Step::kConnects) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(socket.fd, socket.race->advance());
  if (!socket.fd) return Status::ok();
  socket.race.reset();
  socket.step = Step::kSaysHello;
  socket.connected_at = Clock::steady().now();
  TCPX_RETURN_IF_ERROR(send_without_delay(socket.fd.get()));
  TCPX_RETURN_IF_ERROR(limit_unsent(socket.fd.get(), kUnsentBytes));
  if (found_ || &socket != &sockets_.front()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto peer, peer_address(socket.fd.get()));
  std::erase_if(targets_, [&](const auto& target) { return target.address.to_string() != peer.to_string(); });
  const auto is_elsewhere = [&](const auto& target) { return target.address.host() != peer.host(); };
  if (!std::all_of(host_targets_.begin(), host_targets_.end(), is_elsewhere)) std::erase_if(host_targets_, is_elsewhere);
  found_ = true;
  const auto is_bound = [](const auto& target) { return !target.device.empty(); };
  if (std::any_of(targets_.begin(), targets_.end(), is_bound) && nic_of_sender(socket.fd.get()) != nic_) {
    log(LogLevel::kWarning, "tcpx-soft: data to ", peer.host(), " cannot be made to leave by ", nic_,
        ", and goes as the kernel routes it: binding to it was refused, or nothing came back that way");
    std::erase_if(targets_, is_bound);
    std::erase_if(host_targets_, is_bound);
  }
  return Status::ok();
}

std::string Connector::peer() const {
  return joined(targets_, ", ", [](const ConnectRace::Target& target) { return target.address.to_string(); });
}

Status Connector::advance(Socket& socket) {
  TCPX_RETURN_IF_ERROR(connect(socket));
  if (socket.step == Step::kSaysHello) {
    const auto said = move(socket);
    if (!said.is_ok()) return begin_again(socket, said.status());
    if (!*said) return Status::ok();
    TCPX_RETURN_IF_ERROR(choose_source(socket));
    socket.step = Step::kProves;
  }
  if (socket.step == Step::kProves) {
    TCPX_ASSIGN_OR_RETURN(const bool proved, prove(socket));
    if (!proved) return Status::ok();
    socket.step = Step::kListens;
  }
  if (socket.step == Step::kListens) {
    if (socket.sender) TCPX_RETURN_IF_ERROR(socket.sender->read_completions());  // poll(2) would tell of them again
    const auto heard = move(socket);
    if (!heard.is_ok()) return begin_again(socket, heard.status());
    if (!*heard) return Status::ok();
    TCPX_ASSIGN_OR_RETURN(const auto answer, proofs_.read(socket.answer, socket.hello));
    if (!answer.accepted && device_sockets_ > 0)
      return Status(Code::kUnsupported, "connect", "the listener did not see the proof pages as they should be");
    if (!answer.accepted || answer.connection != connection_)
      return Status(Code::kPeerGone, "connect", concat("refused by the listener at ", peer()));
    if (listener_.encrypts && &socket != &sockets_.back()) {
      TCPX_ASSIGN_OR_RETURN(socket.cipher, proofs_.cipher(RecordCipher::Work::kSeals, socket.hello, socket.answer));
    }
    socket.from.reset();  // the listener has it
    socket.step = Step::kDone;
  }
  return Status::ok();
}

Status Connector::advance_all() {
  for (Socket& socket : sockets_) {
    const Status status = advance(socket);
    if (status.is_ok()) continue;
    // A listener that is gone is gone for all. One that has no proof ends the other sockets, too.
    const bool is_there = socket.step > Step::kConnects || (is_device(socket) && sockets_.back().step == Step::kDone);
    return device_sockets_ > 0 && is_there ? open_to_host(status) : status;
  }
  const auto late = proof_deadline();
  if (!late || !late->expired()) return Status::ok();
  return open_to_host(Status(Code::kTimeout, "connect", "nothing was heard of its proof pages"));
}

std::optional<Deadline> Connector::proof_deadline() const {
  const bool waits = std::any_of(sockets_.begin(), sockets_.begin() + device_sockets_,
                                 [](const Socket& socket) { return socket.step != Step::kDone; });
  if (!waits || sockets_.back().step != Step::kDone) return std::nullopt;
  return Deadline(sockets_.back().connected_at + proof_patience_);
}

Result<std::optional<ConnectedSockets>> Connector::advance(Duration patience) {
  const Deadline until = Deadline::after(patience).earlier(deadline_);
  for (;;) {
    std::vector<pollfd> waits;
    Deadline wakes = until;
    size_t missing = 0;
    TCPX_RETURN_IF_ERROR(advance_all());
    if (const auto late = proof_deadline()) wakes = wakes.earlier(*late);
    for (Socket& socket : sockets_) {
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
    connected.senders.push_back(std::move(socket.sender));
  }
  connected.chunk_bytes = listener_.chunk_bytes;
  connected.headers_apart = listener_.headers_apart;
  connected.device_sockets = device_sockets_;
  if (device_sockets_ > 0) connected.device_sources = device_sources_;
  connected.peer = peer();
  return std::optional<ConnectedSockets>(std::move(connected));
}

}  // namespace tcpx::soft
