// Copies of memory that is not there, beside the handlers that an application has for the same signals.
#include "base/guarded_copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/own_thread.h"
#include "tests/support/passing_memory.h"

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

int read_all(const std::byte* there, size_t bytes, uint64_t& sum) {
  return guarded_read(
      {there, bytes},
      [](void* context, std::span<const std::byte> memory) {
        for (const std::byte byte : memory) *static_cast<uint64_t*>(context) += std::to_integer<uint64_t>(byte);
      },
      &sum);
}

/// Tries both directions, and reading in place. @return what all say
int copy_both_ways(std::byte* there, size_t bytes) {
  Bytes here(bytes);
  const int out = guarded_copy(here.data(), there, bytes), in = guarded_copy(there, here.data(), bytes);
  EXPECT_EQ(out, in);
  uint64_t sum = 0;
  EXPECT_EQ(read_all(there, bytes, sum), out);
  return out;
}

TEST(GuardedCopies, WhatIsThereIsCopied) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, size_t{513}, size_t{4097}, size_t{3} << 20}) {
    const Bytes from(bytes, std::byte{7});
    Bytes to(bytes);
    EXPECT_EQ(guarded_copy(to.data(), from.data(), bytes), 0);
    EXPECT_EQ(to, from);
  }
}

TEST(GuardedCopies, WhatAliasesIsCopiedAndNoMore) {
  assume_that_pages_alias();
  constexpr size_t kPage = 4096, kMost = 70'000;
  Bytes from(kMost);
  for (size_t i = 0; i < kMost; ++i) from[i] = static_cast<std::byte>(i % 251);
  for (const size_t distance : {size_t{0}, size_t{1}, size_t{16}, size_t{31}, size_t{32}, kPage - 1}) {
    for (const size_t bytes : {size_t{512}, size_t{1023}, size_t{1024}, size_t{5000}, kMost}) {
      Bytes to(kMost + 2 * kPage, std::byte{255});
      const size_t skew = (reinterpret_cast<uintptr_t>(from.data()) - reinterpret_cast<uintptr_t>(to.data())) % kPage;
      std::byte* const at = to.data() + (skew + distance) % kPage;
      EXPECT_EQ(aliases(at, from.data()), distance >= 1 && distance <= 31);
      Bytes wanted = to;
      std::copy_n(from.begin(), bytes, wanted.begin() + (at - to.data()));
      EXPECT_EQ(guarded_copy(at, from.data(), bytes), 0);
      EXPECT_EQ(to, wanted) << distance << ' ' << bytes;
    }
  }
}

TEST(GuardedCopies, MemoryThatHasGoneIsAnError) {
  for (const MemoryEnd end : kMemoryEnds) {
    PassingMemory memory(size_t{1} << 20);
    EXPECT_EQ(copy_both_ways(memory.data(), memory.bytes()), 0);
    memory.go(end);
    for (const size_t bytes : {size_t{1}, size_t{512}, size_t{513}, memory.bytes()})
      EXPECT_EQ(copy_both_ways(memory.data(), bytes), EFAULT) << name_of(end);
    Bytes to(10);
    EXPECT_EQ(guarded_copy(to.data(), Bytes(10, std::byte{3}).data(), 10), 0) << "the thread goes on";
    EXPECT_EQ(to, Bytes(10, std::byte{3}));
  }
}

TEST(GuardedCopies, AThreadOfTheLibraryLivesOn) {
  PassingMemory memory(4096);
  memory.go(MemoryEnd::kUnmapped);
  int error = 0;
  auto thread = start_thread("test", [&] { error = copy_both_ways(memory.data(), 100); });
  ASSERT_TRUE(thread.is_ok());
  thread->join();
  EXPECT_EQ(error, EFAULT);
}

TEST(GuardedCopies, ThreadsFailBesideThoseThatDoNot) {
  PassingMemory gone(4096);
  gone.go(MemoryEnd::kForbidden);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&gone, fails = i % 2 == 0] {
      Bytes room(4096);
      for (int round = 0; round < 500; ++round)
        EXPECT_EQ(guarded_copy(room.data(), fails ? gone.data() : Bytes(4096).data(), 4096), fails ? EFAULT : 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

[[noreturn]] void fault_outside(std::byte* there) {
  *static_cast<volatile std::byte*>(there) = std::byte{1};
  std::_Exit(3);
}

TEST(GuardedCopiesDeathTest, AnotherFaultEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PassingMemory memory(4096);
  (void)copy_both_ways(memory.data(), 100);  // the handler is there
  memory.go(MemoryEnd::kUnmapped);
  EXPECT_DEATH(fault_outside(memory.data()), "");
}

void leave_with_4(int) {
  std::_Exit(4);
}

TEST(GuardedCopiesDeathTest, AnotherFaultGoesToTheHandlerThatWasThereBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, leave_with_4);
        PassingMemory memory(4096);
        memory.go(MemoryEnd::kUnmapped);
        if (copy_both_ways(memory.data(), 100) != EFAULT) std::_Exit(5);
        fault_outside(memory.data());
      },
      ::testing::ExitedWithCode(4), "");
}

struct sigaction before_later {};

// As Python's faulthandler does.
void restore_and_raise(int signal) {
  (void)::sigaction(signal, &before_later, nullptr);
  (void)::raise(signal);
}

TEST(GuardedCopiesDeathTest, AHandlerThatWasInstalledLaterMayRaiseTheSignalAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        PassingMemory memory(4096);
        (void)copy_both_ways(memory.data(), 100);
        struct sigaction later {};
        later.sa_handler = restore_and_raise;
        later.sa_flags = SA_NODEFER | SA_ONSTACK;
        (void)::sigaction(SIGSEGV, &later, &before_later);
        memory.go(MemoryEnd::kUnmapped);
        Bytes room(4096);
        std::_Exit(guarded_copy(room.data(), memory.data(), room.size()) == EFAULT ? 6 : 7);
      },
      ::testing::ExitedWithCode(6), "");
}

TEST(GuardedCopiesDeathTest, ASignalThatSomebodySendsDoesWhatItDidBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, leave_with_4);
        Bytes room(10);
        (void)copy_both_ways(room.data(), 10);
        (void)::raise(SIGBUS);
        std::_Exit(8);
      },
      ::testing::ExitedWithCode(4), "");
}

}  // namespace
}  // namespace tcpx::testing
