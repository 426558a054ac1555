#include "base/fair_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tests/support/count_allocations.h"
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

// In a process of its own, where nobody has asked for the number of cores. What is thrown ends it.
TEST(Mutex, TakesNoMemoryForOneThatIsHeld) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lock_held = []() noexcept {
    Mutex mutex;
    std::atomic<bool> held{false};
    std::thread holder([&] {
      const std::lock_guard lock(mutex);
      held = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    while (!held) std::this_thread::yield();
    {
      const testing::NoMemory none;
      const std::lock_guard lock(mutex);
    }
    holder.join();
    std::_Exit(0);
  };
  EXPECT_EXIT(lock_held(), ::testing::ExitedWithCode(0), "");
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
