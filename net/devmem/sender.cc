#include "net/devmem/sender.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/socket_io.h"
#include "net/devmem/socket_abi.h"

namespace tcpx::devmem {
namespace {

constexpr char kSend[] = "send from device memory";

Status send_error(int error) {
  const auto told = [&](Code code, const char* words) { return Status(code, kSend, words, Domain::kErrno, error); };
  switch (error) {
    case EINVAL:
      return told(Code::kSystem, "the dma-buf is bound no longer: the netlink socket that bound it is closed");
    case ENODEV:
      return told(Code::kSystem, "the connection does not leave by the NIC that the dma-buf is bound to");
    default:
      return stream_error(kSend, error);
  }
}

}  // namespace

Result<DevmemSender> DevmemSender::create(SocketCalls& calls, int fd) {
  const int on = 1;
  if (calls.setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0)
    return Status(Code::kUnsupported, kSend, "this socket cannot send without a copy", Domain::kErrno, errno);
  return DevmemSender(calls, fd);
}

Result<size_t> DevmemSender::try_send(const BoundDmabuf& dmabuf, uint64_t off, size_t bytes) {
  if (off > dmabuf.bytes || bytes > dmabuf.bytes - off)
    return Status(Code::kInvalidArgument, kSend, concat(bytes, " bytes at ", off, " of a dma-buf of ", dmabuf.bytes));
  iovec place{reinterpret_cast<void*>(off), bytes};  // where other sends have an address, this one has an offset
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof dmabuf.id)> control{};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr& head = *CMSG_FIRSTHDR(&message);
  head.cmsg_level = SOL_SOCKET;
  head.cmsg_type = kScmDevmemDmabuf;
  head.cmsg_len = CMSG_LEN(sizeof dmabuf.id);
  std::memcpy(CMSG_DATA(&head), &dmabuf.id, sizeof dmabuf.id);
  ssize_t sent;
  do sent = calls_->sendmsg(fd_, message, MSG_ZEROCOPY | MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent > 0) {
    sends_ = zero_copy_.sent() + 1;
    return static_cast<size_t>(sent);
  }
  if (sent == 0) return size_t{0};
  const int error = errno;
  // Too many completions are unread: there is room again when some have come and have been read.
  if (error == ENOBUFS && !zero_copy_.all_over()) {
    TCPX_RETURN_IF_ERROR(read_completions());
    return size_t{0};
  }
  if (error == EAGAIN || error == EWOULDBLOCK) return size_t{0};
  return send_error(error);
}

Status DevmemSender::read_completions() {
  const bool copied_before = copied() != 0;
  for (;;) {
    alignas(cmsghdr) std::array<std::byte, 256> room;
    msghdr message{};
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    if (calls_->recvmsg(fd_, message, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
      take_notification(message, zero_copy_);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return stream_error("read the error queue", errno);
    break;
  }
  if (!copied_before && copied() != 0) log(LogLevel::kWarning, "net/devmem: the kernel copies what is sent from device memory");
  return Status::ok();
}

}  // namespace tcpx::devmem
