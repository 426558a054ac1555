// Another process with GPU memory: makes, fills, shares and frees it on demand. The program is gpu_memory_peer.cc.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/memory_ops.h"
#include "measure/child.h"

namespace tcpx::testing {

/// A question to the other process, in one packet; it answers each with one.
struct PeerRequest {
  enum Verb : uint32_t {
    kMake,  ///< `bytes` of memory of `device`, filled with the pattern of `seed`: by cudaMalloc, or as `chunks` chunks of that many
    kShare,  ///< the memory `offset` bytes into `id`
    kRemap,  ///< chunk number `chunks` of `id` by another one at the same address, filled with the pattern of `seed`
    kFree,   ///< `id`
  };
  Verb verb{};
  int32_t device = 0;
  uint32_t chunks = 0;
  uint32_t id = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint64_t seed = 0;
};

struct PeerAnswer {
  uint32_t id = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;  ///< of each chunk
  double share_us = 0;
  MemoryShare share;
  char error[256] = {};  ///< empty: done
};

/// One packet, with a descriptor beside it if there is one.
template <class Packet>
bool send_packet(int socket, const Packet& packet, int fd = -1) {
  iovec part{const_cast<Packet*>(&packet), sizeof packet};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof packet);
}

/// False at the end, and after the socket's time limit.
template <class Packet>
bool receive_packet(int socket, Packet* packet, UniqueFd* fd = nullptr) {
  iovec part{packet, sizeof *packet};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *packet)) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return true;
  int received = -1;
  std::memcpy(&received, CMSG_DATA(header), sizeof received);
  UniqueFd owner(received);
  if (fd != nullptr) *fd = std::move(owner);
  return true;
}

/// The test's end. The process ends with this.
class GpuMemoryPeer {
 public:
  explicit GpuMemoryPeer(const std::string& program) {
    auto started = Child::start_connected({program, ""}, {}, SOCK_SEQPACKET, socket_);
    EXPECT_TRUE(started.is_ok()) << started.status().to_string();
    if (started.is_ok()) child_ = std::move(*started);
    const timeval limit{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  /// @param fd gets the descriptor that comes with a share
  PeerAnswer ask(const PeerRequest& request, UniqueFd* fd = nullptr) {
    PeerAnswer answer;
    if (!send_packet(socket_.get(), request) || !receive_packet(socket_.get(), &answer, fd)) {
      ADD_FAILURE() << "the other process does not answer";
    }
    EXPECT_STREQ(answer.error, "") << "verb " << request.verb;
    return answer;
  }
  PeerAnswer make(int device, uint64_t bytes, uint64_t seed, uint32_t chunks = 0) {
    return ask({.verb = PeerRequest::kMake, .device = device, .chunks = chunks, .bytes = bytes, .seed = seed});
  }
  PeerAnswer share(uint32_t id, uint64_t offset, UniqueFd* fd) {
    return ask({.verb = PeerRequest::kShare, .id = id, .offset = offset}, fd);
  }
  PeerAnswer remap(uint32_t id, uint32_t chunk, uint64_t seed) {
    return ask({.verb = PeerRequest::kRemap, .chunks = chunk, .id = id, .seed = seed});
  }
  void free(uint32_t id) { ask({.verb = PeerRequest::kFree, .id = id}); }
  /// SIGKILL; returns when its end has been waited for.
  void kill() { child_ = Child(); }

 private:
  UniqueFd socket_;
  Child child_;
};

}  // namespace tcpx::testing
