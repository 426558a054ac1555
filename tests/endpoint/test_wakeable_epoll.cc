// Sockets that become readable, and a sleep that ends when somebody wakes it.
#include "endpoint/wakeable_epoll.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/stream_pair.h"

namespace tcpx::testing {
namespace {

class WakeableEpollTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(events_.open().is_ok()); }
  std::vector<uint64_t> readable() {
    WakeableEpoll::Tags room;
    const auto tags = events_.readable(room);
    return {tags.begin(), tags.end()};
  }

  using Until = WakeableEpoll::Until;

  WakeableEpoll events_;
};

TEST_F(WakeableEpollTest, TellsWhichSocketsAreReadable) {
  Sockets first = unix_pair(), second = unix_pair();
  events_.watch(first.a.get(), 1, true);
  events_.watch(second.a.get(), 2, true);
  EXPECT_TRUE(readable().empty());
  write_raw(second.b.get(), pattern(1, 1));
  EXPECT_EQ(readable(), std::vector<uint64_t>{2});
  events_.watch(second.a.get(), 2, false);
  EXPECT_TRUE(readable().empty());
}

TEST_F(WakeableEpollTest, DoesNotSleepWhenThereIsWork) {
  events_.sleep(Until::kReadable, std::nullopt, [] { return true; });
}

TEST_F(WakeableEpollTest, ASocketEndsTheSleep) {
  Sockets sockets = unix_pair();
  events_.watch(sockets.a.get(), 1, true);
  write_raw(sockets.b.get(), pattern(1, 1));
  events_.sleep(Until::kReadable, std::nullopt, [] { return false; });
  EXPECT_EQ(readable(), std::vector<uint64_t>{1});
}

TEST_F(WakeableEpollTest, ASocketDoesNotEndASleepThatOnlyAWakeEnds) {
  Sockets sockets = unix_pair();
  events_.watch(sockets.a.get(), 1, true);
  write_raw(sockets.b.get(), pattern(1, 1));
  std::atomic<bool> slept{false};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(slept);
    while (!slept) events_.wake();
  });
  events_.sleep(Until::kWoken, std::nullopt, [] { return false; });
  slept = true;
  other.join();
  EXPECT_EQ(readable(), std::vector<uint64_t>{1});
}

TEST_F(WakeableEpollTest, SleepsNoLongerThanItIsTold) {
  events_.sleep(Until::kReadable, std::chrono::milliseconds(1), [] { return false; });
}

// Nobody is missed, however the two meet.
TEST_F(WakeableEpollTest, WhoeverWakesItIsHeard) {
  constexpr int kRounds = 200;
  std::atomic<int> asked{0};
  std::thread other([&] {
    for (int i = 1; i <= kRounds; ++i) {
      asked.store(i);
      events_.wake();
      while (asked.load() == i) std::this_thread::yield();
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    while (asked.load() != i) events_.sleep(Until::kReadable, std::nullopt, [&] { return asked.load() == i; });
    asked.store(-i);
  }
  other.join();
  EXPECT_TRUE(readable().empty()) << "a wake is not taken for a socket";
}

}  // namespace
}  // namespace tcpx::testing
