#include "base/socket_io.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "base/fork.h"
#include "base/log.h"
#include "base/port_range.h"
#include "base/text.h"

namespace tcpx {
namespace {

bool is_peer_loss(int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:  // getpeername after the other end has reset the connection
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

// True when a resource that the kernel gives to this process or this machine is used up.
bool is_used_up(int error_number) {
  switch (error_number) {
    case EMFILE:  // descriptors of the process
    case ENFILE:  // descriptors of the machine
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:  // watches of epoll
      return true;
    default:
      return false;
  }
}

Code code_of(int error_number) {
  if (is_used_up(error_number)) return Code::kExhausted;
  return is_peer_loss(error_number) ? Code::kPeerGone : Code::kSystem;
}

// Tells why a connect has found no local address: true when no port is free, false when no address leads to the target. IPv6
// reports both alike. Datagrams have ports of their own, so connecting a datagram socket shows whether an address leads there.
bool are_ports_used_up(const SocketAddress& target) {
  const UniqueFd probe(::socket(target.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return probe && ::connect(probe.get(), target.get(), target.length()) == 0;
}

Status set_option(int fd, int level, int option, const char* name, int value = 1) {
  if (::setsockopt(fd, level, option, &value, sizeof value) == 0) return Status::ok();
  return system_error(concat("set ", name), errno);
}

template <class NameCall>
Result<SocketAddress> address_of(int fd, NameCall call, const char* operation) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (call(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return system_error(operation, errno);
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage), length);
}

// One loop for both directions: `step` moves some bytes or returns 0 (end of stream) or -1 with errno.
template <class Step>
Status move_all(int fd, size_t size, short events, Deadline deadline, const std::atomic<bool>* stop, const char* operation,
                Step step) {
  size_t moved = 0;
  while (moved < size) {
    const ssize_t n = step(moved);
    if (n > 0) {
      moved += static_cast<size_t>(n);
    } else if (n == 0) {
      return Status(Code::kPeerGone, operation, concat("connection closed after ", moved, " of ", size, " bytes"));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TCPX_RETURN_IF_ERROR(wait_for(fd, events, deadline, stop));
    } else if (errno != EINTR) {
      return system_error(operation, errno);
    }
  }
  return Status::ok();
}

Result<UniqueFd> listen_at(const SocketAddress& address, int backlog) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("create socket", errno);
  drop_in_child(fd.get());
  TCPX_RETURN_IF_ERROR(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, "SO_REUSEADDR"));
  if (address.family() == AF_INET6) {
    const int zero = 0;
    if (::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) != 0)
      return system_error("clear IPV6_V6ONLY", errno);
  }
  if (::bind(fd.get(), address.get(), address.length()) != 0) {
    const int error = errno;
    const std::string operation = concat("bind ", address.to_string());
    if (error == EADDRINUSE && address.port() == 0)
      return Status(Code::kExhausted, operation, "no local port is free", Domain::kErrno, error);
    return system_error(operation, error);
  }
  if (::listen(fd.get(), backlog) != 0) return system_error(concat("listen on ", address.to_string()), errno);
  return fd;
}

bool is_taken(const Status& status) {
  return status.native() == EADDRINUSE || status.native() == EACCES;
}

// Listens on a free port of the range, starting at a random one. If all processes began at the same port, each would try all
// ports that others have taken. Of two sockets bound to the same port only one can listen; the other call continues with a new
// socket, as after a failed bind.
Result<UniqueFd> listen_within(const ListeningPorts& ports, const SocketAddress& address, int backlog) {
  const uint32_t count = ports.range.count();
  uint32_t start = 0;
  if (::getrandom(&start, sizeof start, 0) != static_cast<ssize_t>(sizeof start)) return system_error("choose a port", errno);
  Status refusal;
  for (uint32_t i = 0; i < count; ++i) {
    const auto port = static_cast<uint16_t>(ports.range.first + (uint64_t{start} + i) % count);
    auto fd = listen_at(address.with_port(port), backlog);
    if (fd.is_ok() || !is_taken(fd.status())) return fd;
    refusal = fd.status();
  }
  return Status(Code::kExhausted, concat("listen on ", address.host()),
                concat("none of the ", count, " ports of ", ports.wish, " is free; the last refusal: ", refusal.detail()),
                refusal.domain(), refusal.native());
}

}  // namespace

Status system_error(std::string operation, int error_number) {
  return Status(code_of(error_number), std::move(operation), std::strerror(error_number), Domain::kErrno, error_number);
}

Status stream_error(std::string operation, int error_number) {
  const Code code = code_of(error_number);
  return Status(code == Code::kExhausted ? Code::kSystem : code, std::move(operation), std::strerror(error_number),
                Domain::kErrno, error_number);
}

bool is_shortage(const Status& status) {
  return status.code() == Code::kExhausted && status.domain() != Domain::kNone;
}

Result<UniqueFd> listen_tcp(const SocketAddress& address, int backlog) {
  TCPX_ASSIGN_OR_RETURN(const auto ports, listening_ports());
  if (address.port() == 0 && ports.has_value()) return listen_within(*ports, address, backlog);
  auto fd = listen_at(address, backlog);
  if (fd.is_ok() && ports.has_value() && !ports->range.contains(address.port()))
    log(LogLevel::kNotice, "listens on ", address.to_string(), " as asked, which is outside ", ports->wish);
  return fd;
}

UniqueFd accept_tcp(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  drop_in_child(fd.get());
  return fd;
}

Result<SocketAddress> local_address(int fd) {
  return address_of(fd, ::getsockname, "getsockname");
}
Result<SocketAddress> peer_address(int fd) {
  return address_of(fd, ::getpeername, "getpeername");
}

Result<UniqueFd> begin_connect(const SocketAddress& address, const SocketAddress* source, const std::string& device) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("create socket", errno);
  drop_in_child(fd.get());
  if (!device.empty() &&
      ::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device.c_str(), static_cast<socklen_t>(device.size() + 1)) != 0)
    return system_error(concat("bind to ", device), errno);
  if (source != nullptr) {
    // With this option `connect` chooses a port that is free for this peer address. Without it each socket would take a port for
    // itself, and soon none would be left.
    TCPX_RETURN_IF_ERROR(set_option(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, "IP_BIND_ADDRESS_NO_PORT"));
    const SocketAddress local = source->with_port(0);
    if (::bind(fd.get(), local.get(), local.length()) != 0) return system_error(concat("bind ", local.to_string()), errno);
  }
  if (::connect(fd.get(), address.get(), address.length()) != 0) {
    const std::string operation = concat("connect to ", address.to_string());
    const int error = errno;
    if (error == EADDRNOTAVAIL && are_ports_used_up(address))
      return Status(Code::kExhausted, operation, "no local port is free for that address", Domain::kErrno, error);
    if (error != EINPROGRESS && error != EINTR) return system_error(operation, error);
  }
  return fd;
}

Status end_connect(int fd, const SocketAddress& address) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? Status::ok() : system_error(concat("connect to ", address.to_string()), error);
}

Result<UniqueFd> connect_tcp(const SocketAddress& address, Deadline deadline, const SocketAddress* source,
                             const std::atomic<bool>* stop) {
  auto fd = begin_connect(address, source);
  if (!fd.is_ok()) return fd.status();
  if (Status status = wait_for(fd->get(), POLLOUT, deadline, stop); !status.is_ok()) {
    return Status(status.code(), concat("connect to ", address.to_string()), status.detail(), status.domain(), status.native());
  }
  TCPX_RETURN_IF_ERROR(end_connect(fd->get(), address));
  return fd;
}

Status send_all(int fd, std::span<const std::byte> data, Deadline deadline, const std::atomic<bool>* stop) {
  return move_all(fd, data.size(), POLLOUT, deadline, stop, "send",
                  [&](size_t moved) { return ::send(fd, data.data() + moved, data.size() - moved, MSG_NOSIGNAL); });
}

Status recv_all(int fd, std::span<std::byte> data, Deadline deadline) {
  return move_all(fd, data.size(), POLLIN, deadline, nullptr, "receive",
                  [&](size_t moved) { return ::recv(fd, data.data() + moved, data.size() - moved, 0); });
}

Status wait_for(int fd, short events, Deadline deadline, const std::atomic<bool>* stop) {
  for (;;) {
    if (stop != nullptr && stop->load()) return Status(Code::kCancelled, "wait for the peer", "interrupted");
    pollfd entry{fd, events, 0};
    const int rc = ::poll(&entry, 1, (stop != nullptr ? deadline.earlier(Deadline::after(kLookAtStop)) : deadline).poll_ms());
    if (rc > 0) return Status::ok();
    if (rc == 0 && deadline.expired()) return Status(Code::kTimeout, "wait for socket", "deadline passed");
    if (rc < 0 && errno != EINTR) return system_error("poll", errno);
  }
}

Status send_without_delay(int fd, bool few_cores) {
  constexpr std::string_view kPaces = "bbr", kOnHost = "reno";
  TCPX_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_NODELAY, "TCP_NODELAY"));
  if (!few_cores) return Status::ok();
  std::array<char, 16> control{};  // TCP_CA_NAME_MAX
  socklen_t length = control.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control.data(), &length) != 0 ||
      !std::string_view(control.data(), length).starts_with(kPaces))
    return Status::ok();
  const auto peer = peer_address(fd), own = local_address(fd);
  if (!peer.is_ok() || !own.is_ok() || own->host() != peer->host()) return Status::ok();
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kOnHost.data(), kOnHost.size());  // only a wish
  return Status::ok();
}

Status limit_unsent(int fd, int bytes) {
  return set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT", bytes);
}

void acknowledge_now(int fd) {
  (void)set_option(fd, IPPROTO_TCP, TCP_QUICKACK, "TCP_QUICKACK");  // only a wish
}

void reset_connection(UniqueFd fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

Duration round_trip_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return Duration::zero();
  return std::chrono::microseconds(info.tcpi_rtt);
}

uint32_t receive_window(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_rcv_ssthresh : 0;
}

// The kernel makes room for what a reader wants to be woken for (tcp_set_rcvlowat), and keeps it. SO_RCVBUF would set the room for good.
void widen_receive_window(int fd, uint32_t bytes) {
  for (const uint32_t mark : {bytes, 1u}) (void)set_option(fd, SOL_SOCKET, SO_RCVLOWAT, "SO_RCVLOWAT", static_cast<int>(mark));
}

// After the silence, the last of the probes, which are sent once a second, must find the path working again. Its answer takes at
// most a second.
KeepAlive keep_alive_for(Duration silence) {
  using std::chrono::seconds;
  const seconds whole = std::chrono::ceil<seconds>(silence);
  return {.idle = std::clamp(whole / 3, seconds(1), seconds(10)),
          .interval = seconds(1),
          .probes = static_cast<int>(whole.count()) + 1};
}

Status set_keep_alive(int fd, const KeepAlive& keep_alive) {
  TCPX_RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, "SO_KEEPALIVE"));
  TCPX_RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, "TCP_KEEPIDLE", static_cast<int>(keep_alive.idle.count())));
  TCPX_RETURN_IF_ERROR(
      set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, "TCP_KEEPINTVL", static_cast<int>(keep_alive.interval.count())));
  return set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, "TCP_KEEPCNT", keep_alive.probes);
}

}  // namespace tcpx
