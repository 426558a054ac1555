// Unix sockets over abstract names: who may come, who it is, and descriptors that are passed.
#include "base/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/text.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

std::string a_name() {
  static int number = 0;
  return concat("tcpx-test-", ::getpid(), "-", ++number);
}

std::span<const std::byte> of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

constexpr int kNoNamespaces = 100, kNoPidfds = 101;

struct Ends {
  ForeignFd a, b;
  Ends() {
    const std::string name = a_name();
    const ForeignFd listener = listen_unix(name, 1).value();
    a = connect_unix(name).value();
    b = accept_unix(listener.get());
  }
};

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

int count_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += is_open(fd) ? 1 : 0;
  return count;
}

TEST(UnixSocket, WhatIsSentIsThereWithoutAWait) {
  const Ends ends;
  ASSERT_TRUE(ends.b);
  ASSERT_EQ(::send(ends.a.get(), "hello", 5, 0), 5);
  std::array<std::byte, 16> room{};
  const auto received = receive_descriptor(ends.b.get(), room);
  ASSERT_TRUE(received.is_ok()) << received.status().to_string();
  EXPECT_EQ(received->bytes, 5u);
  EXPECT_FALSE(received->descriptor);
  EXPECT_EQ(receive_descriptor(ends.b.get(), room)->bytes, 0u) << "nothing more";
}

TEST(UnixSocket, NobodyListensWhereNobodyListens) {
  EXPECT_EQ(connect_unix(a_name()).status().code(), Code::kPeerGone);
  const std::string name = a_name();
  const ForeignFd listener = listen_unix(name, 1).value();
  EXPECT_EQ(listen_unix(name, 1).status().native(), EADDRINUSE);
  EXPECT_FALSE(accept_unix(listener.get())) << "nobody has come";
}

TEST(UnixSocket, NamesAreBounded) {
  EXPECT_EQ(connect_unix("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(listen_unix(std::string(101, 'x'), 1).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(listen_unix(concat(a_name(), std::string(60, 'x')), 1).is_ok());
}

TEST(UnixSocket, ALongLineTurnsTheNextOneAway) {
  const std::string name = a_name();
  const ForeignFd listener = listen_unix(name, 0).value();
  std::vector<ForeignFd> in_line;
  Status status;
  while (in_line.size() < 64 && status.is_ok()) {
    auto one = connect_unix(name);
    status = one.status();
    if (one.is_ok()) in_line.push_back(std::move(*one));
  }
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
}

TEST(UnixSocket, EachEndLearnsWhoTheOtherIs) {
  const Ends ends;
  for (const int end : {ends.a.get(), ends.b.get()}) {
    const auto peer = peer_process(end);
    ASSERT_TRUE(peer.is_ok()) << peer.status().to_string();
    EXPECT_EQ(peer->pid, ::getpid());
    EXPECT_EQ(peer->uid, ::geteuid());
  }
}

/// 0, or the number of the step that failed, in a process that cannot see its peer's number.
int watch_unseen_peer(const std::string& name, int peer_ends) {
  auto socket = connect_unix(name);
  if (!socket.is_ok()) return 1;
  const auto peer = peer_process(socket->get());
  if (!peer.is_ok() || peer->pid != 0) return 2;
  const auto process = peer_pidfd(socket->get());
  if (!process.is_ok()) return process.status().code() == Code::kUnsupported ? kNoPidfds : 3;
  pollfd ended{process->get(), POLLIN, 0};
  if (::poll(&ended, 1, 50) != 0) return 4;
  ::close(peer_ends);
  return ::poll(&ended, 1, 10'000) == 1 ? 0 : 5;
}

TEST(UnixSocket, APeerOfAnotherPidNamespaceIsSeenToEnd) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread checker lets no fork of a fork of a process with threads run";
#endif
  const std::string name = a_name();
  int peer_ends[2];
  ASSERT_EQ(::pipe(peer_ends), 0);
  const pid_t peer = ::fork();
  ASSERT_GE(peer, 0);
  if (peer == 0) {
    const ForeignFd listener = listen_unix(name, 2).value();  // the kernel notes who listens
    ::close(peer_ends[1]);
    char none = 0;
    ::_exit(::read(peer_ends[0], &none, 1) == 0 ? 0 : 1);
  }
  ::close(peer_ends[0]);
  ASSERT_TRUE(wait_until([&] { return connect_unix(name).is_ok(); }));
  const pid_t maker = ::fork();
  ASSERT_GE(maker, 0);
  if (maker == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNoNamespaces);
    const pid_t watcher = ::fork();  // of the new namespace
    if (watcher == 0) ::_exit(watch_unseen_peer(name, peer_ends[1]));
    ::close(peer_ends[1]);
    int result = 0;
    const bool watched = watcher > 0 && ::waitpid(watcher, &result, 0) == watcher && WIFEXITED(result);
    ::_exit(watched ? WEXITSTATUS(result) : 6);
  }
  ::close(peer_ends[1]);
  int result = 0;
  ASSERT_EQ(::waitpid(maker, &result, 0), maker);
  EXPECT_EQ(::waitpid(peer, nullptr, 0), peer);
  ASSERT_TRUE(WIFEXITED(result)) << result;
  if (WEXITSTATUS(result) == kNoNamespaces) GTEST_SKIP() << "unshare makes no pid namespaces here";
  if (WEXITSTATUS(result) == kNoPidfds) GTEST_SKIP() << "the kernel tells no pidfd of a peer: it takes Linux 6.5";
  EXPECT_EQ(WEXITSTATUS(result), 0);
}

TEST(UnixSocket, ADescriptorIsPassed) {
  const Ends ends;
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const UniqueFd reads(pipes[0]), writes(pipes[1]);
  ASSERT_TRUE(send_descriptor(ends.a.get(), of("pipe"), writes.get()).is_ok());
  std::array<std::byte, 16> room{};
  const auto received = receive_descriptor(ends.b.get(), room);
  ASSERT_TRUE(received.is_ok());
  EXPECT_EQ(received->bytes, 4u);
  ASSERT_TRUE(received->descriptor);
  EXPECT_NE(received->descriptor.get(), writes.get());
  EXPECT_TRUE(::fcntl(received->descriptor.get(), F_GETFD) & FD_CLOEXEC);
  ASSERT_EQ(::write(received->descriptor.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reads.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

// @return true when they have left
bool send_many(int socket, int descriptor, int count) {
  alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))] = {};
  char byte = 'x';
  iovec bytes{&byte, 1};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(static_cast<size_t>(count) * sizeof(int));
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(static_cast<size_t>(count) * sizeof(int));
  for (int i = 0; i < count; ++i) std::memcpy(CMSG_DATA(part) + i * sizeof(int), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message, 0) == 1;
}

TEST(UnixSocket, SurplusDescriptorsAreClosed) {
  const Ends ends;
  const int before = count_descriptors();
  for (const int count : {2, 64, 253}) {
    ASSERT_TRUE(send_many(ends.a.get(), ends.a.get(), count));
    std::array<std::byte, 16> room{};
    const auto received = receive_descriptor(ends.b.get(), room);
    ASSERT_TRUE(received.is_ok());
    EXPECT_EQ(received->bytes, 1u);
    EXPECT_FALSE(received->descriptor) << count;
    EXPECT_TRUE(wait_until([&] { return count_descriptors() <= before; })) << count;
  }
}

TEST(UnixSocket, TheEndIsThePeersEnd) {
  Ends ends;
  ASSERT_EQ(::send(ends.a.get(), "last", 4, 0), 4);
  ends.a.reset();
  std::array<std::byte, 16> room{};
  EXPECT_EQ(receive_descriptor(ends.b.get(), room)->bytes, 4u) << "what it said before";
  EXPECT_TRUE(wait_until([&] { return receive_descriptor(ends.b.get(), room).status().code() == Code::kPeerGone; }));
  EXPECT_EQ(send_descriptor(ends.b.get(), of("x"), 0).code(), Code::kPeerGone);
}

TEST(UnixSocket, APeerThatDoesNotReadStopsNobody) {
  const Ends ends;
  const std::string much(60'000, 'x');
  Status status;
  for (int i = 0; i < 1000 && status.is_ok(); ++i) status = send_descriptor(ends.a.get(), of(much), 0);
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
}

}  // namespace
}  // namespace tcpx::testing
