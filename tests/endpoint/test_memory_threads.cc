// Memory that some threads register and let go while others use it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/memory_registry.h"
#include "tests/support/threads.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr ConnId kConn{3};

class MemoryThreads : public ::testing::Test {
 protected:
  MemoryId add() { return registry_.add(memory_.data(), memory_.size(), MemoryType::kHost).value(); }
  Result<RegionUse> use(MemoryId id) { return registry_.use(id, memory_.data(), 1); }
  /// Waits until nobody uses it. @return true when the last count has gone
  bool remove(MemoryId id) {
    const Result<std::optional<Region>> removed = registry_.remove(id, Deadline::after(kTestDeadline));
    EXPECT_TRUE(removed.is_ok()) << removed.status().to_string();
    return removed.is_ok() && removed->has_value();
  }
  /// True once a removal of the last count has begun.
  bool is_closed(MemoryId id) { return use(id).status().code() == Code::kNotFound; }

  MemoryRegistry registry_{0x1234};
  std::array<std::byte, 4096> memory_{};
  std::atomic<uint64_t> current_{0};  ///< region that other threads are to use
};

TEST_F(MemoryThreads, ARemovalWaitsForUsesOfAnotherThread) {
  const MemoryId id = add();
  RegionUse first = use(id).value(), second = registry_.use(id, memory_.data(), 0).value();
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    EXPECT_TRUE(remove(id));
    removed = true;
  });
  ASSERT_TRUE(wait_until([&] { return is_closed(id); }));
  const Deadline far = Deadline::after(kTestDeadline);
  EXPECT_EQ(registry_.remove(id, far).status().code(), Code::kNotFound) << "no count is left for a second one";
  EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kNotFound);
  EXPECT_EQ(registry_.advertise(kConn, id, memory_.data(), 1).status().code(), Code::kNotFound);
  first = RegionUse();
  EXPECT_FALSE(removed);
  second = RegionUse();
  remover.join();
  EXPECT_EQ(registry_.regions(), 0u);
}

TEST_F(MemoryThreads, AddingWhatIsBeingRemovedKeepsIt) {
  const MemoryId id = add();
  RegionUse held = use(id).value();
  std::thread remover([&] { EXPECT_FALSE(remove(id)) << "one of two counts"; });
  ASSERT_TRUE(wait_until([&] { return is_closed(id); }));
  EXPECT_EQ(add(), id);
  remover.join();
  EXPECT_TRUE(use(id).is_ok());
  held = RegionUse();
  EXPECT_TRUE(remove(id));
}

/// Each round a removal meets the release of the last use. A wake-up that is lost makes it last until the deadline.
TEST_F(MemoryThreads, NoWakeUpIsLost) {
  const auto start = std::chrono::steady_clock::now();
  const Deadline enough = long_enough();
  for (int i = 0; i < 2000 && !enough.expired(); ++i) {
    const MemoryId id = add();
    std::atomic<bool> go{false};
    std::thread holder([&, held = use(id).value()]() mutable {
      while (!go) ::sched_yield();
      held = RegionUse();
    });
    go = true;
    EXPECT_TRUE(remove(id));
    holder.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTestDeadline);
}

/// The memory of a removed region is written by the remover, as an application does that frees it.
TEST_F(MemoryThreads, NobodyTouchesMemoryAfterItsRemoval) {
  constexpr uint64_t kRounds = 500;
  std::atomic<uint64_t> high{0}, low{0}, touched{0}, looked_up{0};
  uint64_t value = 0;  // plain on purpose: the thread checker sees who is not ordered
  Repeating using_it(2, [&] {
    const Result<RegionUse> held = registry_.use(MemoryId{current_.load()}, &value, sizeof(value));
    if (held.is_ok() && value == static_cast<uint64_t>(held->region().id)) ++touched;
  });
  Repeating looking_it_up(2, [&] {
    const Result<std::optional<HeldRange>> range = registry_.look_up(kConn, {high.load(), low.load()}, true);
    if (range.is_ok() && value == static_cast<uint64_t>((*range)->region().id)) ++looked_up;
  });
  uint64_t rounds = 0;
  const Deadline enough = long_enough();
  EXPECT_TRUE(wait_until([&] {
    const uint64_t next = ++value;  // nobody holds it
    const MemoryId id = registry_.add(&value, sizeof(value), MemoryType::kHost).value();
    EXPECT_EQ(static_cast<uint64_t>(id), next);
    const SlotId slot = registry_.advertise(kConn, id, &value, sizeof(value)).value().id;
    high = slot.high;
    low = slot.low;
    current_ = next;
    ::sched_yield();
    EXPECT_TRUE(remove(id));
    return (++rounds >= kRounds || enough.expired()) && touched > 0 && looked_up > 0;
  }));
  using_it.stop();
  looking_it_up.stop();
  EXPECT_EQ(registry_.regions(), 0u);
  EXPECT_EQ(registry_.advertised(), 0u);
}

/// Everybody adds and removes the same range while others use it: the counts must come out even, after any race with a removal.
TEST_F(MemoryThreads, CountsStayEven) {
  Repeating users(2, [&] {
    const Result<RegionUse> held = use(MemoryId{current_.load()});
    ::sched_yield();
  });
  const Deadline enough = long_enough();
  run_together(3, [&](size_t) {
    for (int i = 0; i < 2000 && !enough.expired(); ++i) {
      const MemoryId id = add();
      current_ = static_cast<uint64_t>(id);
      EXPECT_TRUE(use(id).is_ok()) << "this thread's count keeps it open";
      (void)remove(id);
    }
  });
  users.stop();
  EXPECT_EQ(registry_.regions(), 0u);
}

TEST_F(MemoryThreads, OneOfManyUsesASlotThatServesOnce) {
  const MemoryId id = add();
  for (int round = 0; round < 200; ++round) {
    const SlotId slot = registry_.advertise(kConn, id, memory_.data(), 1, {}, nullptr, nullptr, {.uses = 1}).value().id;
    std::atomic<int> served{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (!go) ::sched_yield();
        if (registry_.look_up(kConn, slot, true).is_ok() && registry_.spend({&slot, 1}).is_ok()) ++served;
      });
    }
    go = true;
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(served, 1);
  }
  EXPECT_EQ(registry_.advertised(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
