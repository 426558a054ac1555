// A kernel with device-memory TCP, as far as one socket sees it: what its calls answer is written down before. It knows which
// tokens are out, and keeps the limits of SO_DEVMEM_DONTNEED (torvalds/linux: net/core/sock.c, sock_devmem_dontneed).
#pragma once

#include <gtest/gtest.h>
#include <linux/errqueue.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <set>
#include <vector>

#include "net/devmem/socket_calls.h"
#include "tests/support/cmsg_builder.h"

namespace tcpx::testing {

class FakeSocketCalls final : public devmem::SocketCalls {
 public:
  struct Read {
    ssize_t result = 0;  // of recvmsg; negative: -errno
    std::vector<std::byte> control;
    int flags = 0;
  };
  struct Sent {
    uint64_t off;
    size_t bytes;
    uint32_t dmabuf_id;
    int flags;
  };

  std::deque<Read> reads;  // what lies in the socket; when they are over: EAGAIN
  std::deque<Read> error_queue;
  std::deque<ssize_t> takes;       // by each send: bytes, or -errno
  std::multiset<uint32_t> out;     // tokens that the kernel has not got back
  std::vector<size_t> give_backs;  // tokens of each call
  std::vector<Sent> sent;
  int refuses = 0;    // errno of setsockopt
  int zero_copy = 0;  // SO_ZEROCOPY is set

  /// A read whose records are those of `cmsgs`.
  void arrive(ssize_t bytes, const CmsgBuilder& cmsgs, int flags = 0) { reads.push_back({bytes, cmsgs.bytes(), flags}); }
  /// A record of the error queue (struct sock_extended_err behind IP_RECVERR).
  void complete(uint32_t first, uint32_t last, uint8_t code = 0, uint8_t origin = 5) {
    sock_extended_err error{};
    error.ee_origin = origin;
    error.ee_code = code;
    error.ee_info = first;
    error.ee_data = last;
    CmsgBuilder cmsgs(CmsgDialect::kLinux);
    cmsgs.message(IPPROTO_IP, IP_RECVERR, std::as_bytes(std::span(&error, 1)));
    error_queue.push_back({0, cmsgs.bytes(), MSG_ERRQUEUE});
  }

  ssize_t recvmsg(int, msghdr& message, int flags) override {
    std::deque<Read>& queue = (flags & MSG_ERRQUEUE) != 0 ? error_queue : reads;
    if (queue.empty()) return fail(EAGAIN);
    const Read read = queue.front();
    queue.pop_front();
    if (read.result < 0) return fail(static_cast<int>(-read.result));
    EXPECT_LE(read.control.size(), message.msg_controllen);
    EXPECT_TRUE((flags & MSG_ERRQUEUE) != 0 || flags == (0x2000000 | MSG_DONTWAIT));
    std::copy(read.control.begin(), read.control.end(), static_cast<std::byte*>(message.msg_control));
    message.msg_controllen = read.control.size();
    message.msg_flags = read.flags;
    return read.result;
  }

  ssize_t sendmsg(int, const msghdr& message, int flags) override {
    const auto* head = static_cast<const cmsghdr*>(message.msg_control);
    EXPECT_TRUE(head->cmsg_level == SOL_SOCKET && head->cmsg_type == 79 && head->cmsg_len == 20);
    Sent call{reinterpret_cast<uint64_t>(message.msg_iov->iov_base), message.msg_iov->iov_len, 0, flags};
    std::memcpy(&call.dmabuf_id, head + 1, sizeof call.dmabuf_id);
    sent.push_back(call);
    if (takes.empty()) return static_cast<ssize_t>(call.bytes);
    const ssize_t answer = takes.front();
    takes.pop_front();
    return answer < 0 ? fail(static_cast<int>(-answer)) : answer;
  }

  int setsockopt(int, int level, int name, const void* value, socklen_t bytes) override {
    EXPECT_EQ(level, SOL_SOCKET);
    if (refuses != 0) return fail(refuses);
    if (name == SO_ZEROCOPY) std::memcpy(&zero_copy, value, sizeof zero_copy);
    if (name == SO_ZEROCOPY) return 0;
    EXPECT_EQ(name, 80);
    if (bytes % 8 != 0 || bytes > 128 * 8) return fail(EINVAL);
    int freed = 0;
    for (socklen_t at = 0; at < bytes; at += 8) {
      uint32_t range[2];
      std::memcpy(range, static_cast<const std::byte*>(value) + at, sizeof range);
      for (uint32_t i = 0; i < range[1] && freed < 1024; ++i) {
        const auto found = out.find(range[0] + i);
        if (found != out.end()) out.erase(found), ++freed;
      }
    }
    give_backs.push_back(static_cast<size_t>(freed));
    return freed;
  }

 private:
  static int fail(int error) {
    errno = error;
    return -1;
  }
};

}  // namespace tcpx::testing
