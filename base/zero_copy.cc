#include "base/zero_copy.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <linux/errqueue.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace tcpx {

void ZeroCopySends::over(uint32_t first, uint32_t last, bool copied) {
  // Fewer than 2^32 are under way, so the oldest of them tells which round a number belongs to.
  const uint64_t begin = oldest_ + static_cast<uint32_t>(first - static_cast<uint32_t>(oldest_));
  const uint64_t end = begin + static_cast<uint32_t>(last - first) + 1;
  if (end > next_) return;  // not one of ours
  copied_ = copied ? copied_ + 1 : 0;
  if (copied) ++all_copied_;
  if (begin != oldest_) {
    early_.emplace(begin, end);
    return;
  }
  oldest_ = end;
  for (auto next = early_.begin(); next != early_.end() && next->first == oldest_; next = early_.erase(next))
    oldest_ = next->second;
}

bool allow_zero_copy(int fd) {
  const int on = 1;
  return ::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0;
}

void take_notification(msghdr& message, ZeroCopySends& sends) {
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    const bool is_error = (head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_RECVERR) ||
                          (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_RECVERR);
    sock_extended_err error;
    if (!is_error || head->cmsg_len < CMSG_LEN(sizeof error)) continue;
    std::memcpy(&error, CMSG_DATA(head), sizeof error);
    if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno != 0) continue;
    sends.over(error.ee_info, error.ee_data, (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0);
  }
}

void read_notifications(int fd, ZeroCopySends& sends) {
  for (;;) {
    alignas(cmsghdr) std::array<std::byte, 256> room;
    msghdr message{};
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    if (::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    take_notification(message, sends);
  }
}

bool is_refusal(int error) {
  return error == ENOBUFS || error == EFAULT || error == EOPNOTSUPP;
}

}  // namespace tcpx
