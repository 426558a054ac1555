// Descriptors that another process has a hand in: whatever their close waits for, nobody here does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <future>

#include "base/unix_socket.h"
#include "tests/support/lingering_socket.h"

namespace tcpx::testing {
namespace {

constexpr std::byte kMark{1};

template <class Body>
void expect_return(const char* what, LingeringSocket& socket, Body body) {
  auto done = std::async(std::launch::async, body);
  if (done.wait_for(kTestDeadline) == std::future_status::ready) return;
  ADD_FAILURE() << what << " hangs";
  socket.let_go();
}

TEST(ForeignFd, ADescriptorWhoseCloseHangsHoldsNobodyUp) {
  UnixPair ends = make_unix_pair().value();
  LingeringSocket socket;
  socket.pass(ends.a.get(), std::span(&kMark, 1));
  expect_return("the close of what was received", socket, [&] {
    std::byte mark{};
    const auto received = receive_descriptor(ends.b.get(), std::span(&mark, 1));
    EXPECT_TRUE(received.is_ok() && received->descriptor);
  });
}

TEST(ForeignFd, SoDoesOneThatWaitsUnread) {
  UnixPair ends = make_unix_pair().value();
  LingeringSocket socket;
  socket.pass(ends.a.get(), std::span(&kMark, 1));
  expect_return("the close of the socket", socket, [&] { ends.b.reset(); });
}

// As many as there are threads for, and one more, which waits behind them.
TEST(ForeignFd, ManyThatHangAreTold) {
  EXPECT_FALSE(foreign_closes_hang());
  std::deque<LingeringSocket> sockets;
  while (sockets.size() < 33) {
    UnixPair ends = make_unix_pair().value();
    sockets.emplace_back().pass(ends.a.get(), std::span(&kMark, 1));
    ends.a.reset();
    ends.b.reset();
  }
  EXPECT_TRUE(wait_until(foreign_closes_hang));
  for (LingeringSocket& socket : sockets) socket.let_go();
  EXPECT_TRUE(wait_until([] { return !foreign_closes_hang(); }));
}

// It has none of the threads, and would wait for a lock that one of them had.
TEST(ForeignFd, AForkedChildHasThreadsOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread checker ends a forked child that starts a thread";
#endif
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reads(ends[0]);
  ForeignFd writes(ends[1]);
  // Now this process has threads. One has closed something: clang's address checker holds a lock while a thread begins.
  int first[2];
  ASSERT_EQ(::pipe2(first, O_CLOEXEC), 0);
  const UniqueFd first_reads(first[0]);
  ForeignFd(first[1]).reset();
  char none = 0;
  ASSERT_EQ(::read(first_reads.get(), &none, 1), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    writes.reset();
    char byte = 0;
    ::_exit(static_cast<int>(::read(reads.get(), &byte, 1)));  // returns once nobody can write
  }
  writes.reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tcpx::testing
