#include "base/fair_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

template <class Type>
class MutexTest : public ::testing::Test {};
using Mutexes = ::testing::Types<Mutex, FairMutex>;
TYPED_TEST_SUITE(MutexTest, Mutexes);

TYPED_TEST(MutexTest, LetsOneInAtATime) {
  TypeParam mutex;
  int inside = 0, entered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(++inside, 1);
        ++entered;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(entered, 16000);
}

TYPED_TEST(MutexTest, WhoComesToAHeldOneWaits) {
  TypeParam mutex;
  std::atomic<bool> comes{false}, entered{false};
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock());
  std::thread other([&] {
    comes = true;
    const std::lock_guard lock(mutex);
    entered = true;
  });
  EXPECT_TRUE(testing::wait_until([&] { return comes.load(); }));
  EXPECT_FALSE(testing::wait_until([&] { return entered.load(); }, std::chrono::milliseconds(20)));
  mutex.unlock();
  EXPECT_TRUE(testing::wait_until([&] { return entered.load(); }));
  other.join();
}

TEST(FairMutex, ThreadsThatComeBackAtOnceKeepNobodyOut) {
  constexpr int kOthers = 8;
  FairMutex mutex;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> entered{0};
  std::vector<std::thread> others;
  for (int t = 0; t < kOthers; ++t) {
    others.emplace_back([&] {
      while (!stop) {
        const FairLock lock(mutex);
        entered.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  EXPECT_TRUE(testing::wait_until([&] { return entered > 1000; }));
  for (int i = 0; i < 100; ++i) {
    const FairLock lock(mutex);
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace tcpx
