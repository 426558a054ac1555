#include "tests/support/flipped_wire.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <span>

namespace tcpx::testing {
namespace {

enum class Counts { kNothing, kBytes, kReads };

std::atomic<bool> armed{false}, flipped{false};
std::mutex plan_mutex;
struct {
  Counts counts = Counts::kNothing;
  uint64_t left = 0, random = 0;
} plan;  // guarded by plan_mutex

void arm(Counts counts, uint64_t after, uint64_t random) {
  const std::lock_guard lock(plan_mutex);
  plan = {counts, after, random};
  flipped = false;
  armed = true;
}

bool is_tcp_socket(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
}

void flip(std::span<const iovec> parts, uint64_t at, uint64_t bit) {
  for (const iovec& part : parts) {
    if (at < part.iov_len) {
      static_cast<std::byte*>(part.iov_base)[at] ^= static_cast<std::byte>(1 << bit % 8);
      return;
    }
    at -= part.iov_len;
  }
}

// @param got what a read returned: bytes of `parts`, from the first on
void on_read(int fd, std::span<const iovec> parts, ssize_t got) {
  if (!armed || got <= 0) return;
  const int error = errno;
  if (is_tcp_socket(fd)) {
    const auto bytes = static_cast<uint64_t>(got);
    const std::lock_guard lock(plan_mutex);
    const uint64_t counted = plan.counts == Counts::kBytes ? bytes : 1;
    if (armed && plan.left < counted) {
      flip(parts, plan.counts == Counts::kBytes ? plan.left : plan.random / 8 % bytes, plan.random);
      armed = false;
      flipped = true;
    } else {
      plan.left -= std::min(plan.left, counted);
    }
  }
  errno = error;
}

}  // namespace

void FlippedWire::arm_byte(uint64_t after, uint64_t random) {
  arm(Counts::kBytes, after, random);
}
void FlippedWire::arm_read(uint64_t after, uint64_t random) {
  arm(Counts::kReads, after, random);
}
bool FlippedWire::disarm() {
  const std::lock_guard lock(plan_mutex);
  armed = false;
  return flipped.exchange(false);
}
bool FlippedWire::has_flipped() {
  return flipped;
}

}  // namespace tcpx::testing

extern "C" ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  static const auto real = reinterpret_cast<decltype(&::recv)>(::dlsym(RTLD_NEXT, "recv"));
  const ssize_t got = real(fd, data, bytes, flags);
  const iovec part{data, bytes};
  if ((flags & MSG_PEEK) == 0) tcpx::testing::on_read(fd, {&part, 1}, got);
  return got;
}

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = reinterpret_cast<decltype(&::recvmsg)>(::dlsym(RTLD_NEXT, "recvmsg"));
  const ssize_t got = real(fd, message, flags);
  if ((flags & (MSG_PEEK | MSG_ERRQUEUE)) == 0) tcpx::testing::on_read(fd, {message->msg_iov, message->msg_iovlen}, got);
  return got;
}
