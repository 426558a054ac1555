#include "base/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/fork.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr size_t kMaxNameBytes = 100;
// Most descriptors that the kernel passes in one message (SCM_MAX_FD).
constexpr size_t kDescriptorRoom = 253;

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Result<UnixAddress> address_of(std::string_view name) {
  static_assert(kMaxNameBytes < sizeof(sockaddr_un::sun_path));
  if (name.empty() || name.size() > kMaxNameBytes)
    return Status(Code::kInvalidArgument, "name Unix socket",
                  concat("a name of ", name.size(), " bytes, not 1 to ", kMaxNameBytes));
  UnixAddress made;
  made.address.sun_family = AF_UNIX;
  const size_t before = name.front() == '/' ? 0 : 1;  // a zero in front makes it abstract
  name.copy(made.address.sun_path + before, name.size());
  made.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

Result<ForeignFd> make_socket(int type) {
  ForeignFd fd(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("create Unix socket", errno);
  drop_in_child(fd.get());
  return fd;
}

// Takes ownership of all descriptors of the message. @return the descriptor if there is exactly one; the others are closed
ForeignFd only_descriptor(msghdr& message) {
  ForeignFd only;
  size_t count = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t bytes = part->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      drop_in_child(fd);
      ForeignFd taken(fd);
      only = count++ == 0 ? std::move(taken) : ForeignFd();
    }
  }
  return only;
}

}  // namespace

Result<UnixPair> make_unix_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
    return system_error("create Unix sockets", errno);
  for (const int fd : fds) drop_in_child(fd);
  return UnixPair{.a = ForeignFd(fds[0]), .b = ForeignFd(fds[1])};
}

Result<ForeignFd> listen_unix(std::string_view name, int backlog, int type) {
  TCPX_ASSIGN_OR_RETURN(const auto address, address_of(name));
  TCPX_ASSIGN_OR_RETURN(auto fd, make_socket(type));
  if (::bind(fd.get(), address.get(), address.length) != 0) return system_error("bind Unix socket", errno);
  if (::listen(fd.get(), backlog) != 0) return system_error("listen on Unix socket", errno);
  return fd;
}

ForeignFd accept_unix(int listener) {
  ForeignFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  drop_in_child(fd.get());
  return fd;
}

Result<ForeignFd> connect_unix(std::string_view name, int type) {
  TCPX_ASSIGN_OR_RETURN(const auto address, address_of(name));
  TCPX_ASSIGN_OR_RETURN(auto fd, make_socket(type));
  int rc = 0;
  do rc = ::connect(fd.get(), address.get(), address.length);
  while (rc != 0 && errno == EINTR);
  if (rc == 0) return fd;
  if (errno == EAGAIN) return Status(Code::kExhausted, "connect to Unix socket", "the listener's backlog is full");
  if (errno == ENOENT) return Status(Code::kPeerGone, "connect to Unix socket", "no such file");
  return system_error("connect to Unix socket", errno);
}

Result<PeerProcess> peer_process(int socket) {
  ucred facts{};
  socklen_t length = sizeof facts;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &facts, &length) != 0) return system_error("ask who the peer is", errno);
  return PeerProcess{.pid = facts.pid, .uid = facts.uid};
}

Result<UniqueFd> peer_pidfd(int socket) {
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD: Linux, include/uapi/asm-generic/socket.h
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &descriptor, &length) == 0) return UniqueFd(descriptor);
  const Status why = system_error("ask for the peer's pidfd", errno);
  if (is_shortage(why)) return why;
  return Status(Code::kUnsupported, "ask for the peer's pidfd", why.to_string());
}

bool is_unix_socket(int descriptor) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

Status send_descriptor(int socket, std::span<const std::byte> data, int descriptor) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
  iovec bytes{const_cast<std::byte*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  ssize_t n = 0;
  do n = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return Status(Code::kExhausted, "pass descriptor", "the peer does not read");
  if (n < 0) return system_error("pass descriptor", errno);
  if (static_cast<size_t>(n) != data.size())
    return Status(Code::kExhausted, "pass descriptor", "no room for the bytes that go with it");
  return Status::ok();
}

Result<ReceivedBytes> receive_descriptor(int socket, std::span<std::byte> room) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kDescriptorRoom * sizeof(int))];
  iovec bytes{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ReceivedBytes{};
  if (n < 0) return system_error("read Unix socket", errno);
  ForeignFd descriptor = only_descriptor(message);
  if (n == 0) return Status(Code::kPeerGone, "read Unix socket", "connection closed by the peer");
  // There is room for as many descriptors as the kernel passes, so the list is cut only when this process has no free descriptor.
  return ReceivedBytes{
      .bytes = static_cast<size_t>(n), .descriptor = std::move(descriptor), .lost = (message.msg_flags & MSG_CTRUNC) != 0};
}

}  // namespace tcpx
