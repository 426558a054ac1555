// Unix sockets over abstract names: who may come, who it is, and descriptors that are passed.
#include "base/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
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
