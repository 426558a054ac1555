// A table of operations under threads: one begins and ends operations, others wait for them, poll, cancel and ask at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tests/support/count_allocations.h"
#include "tests/support/operations.h"
#include "tests/support/threads.h"

namespace tcpx::testing {
namespace {

using namespace std::chrono_literals;

/// A table of one slot, and the id of the operation that other threads are to look at.
class OneSlotTable : public ::testing::Test {
 protected:
  OperationId current() const { return OperationId{current_.load()}; }
  void set_current(OperationId id) { current_ = static_cast<uint64_t>(id); }
  /// Ends it, and takes the end.
  void finish(Operation& operation) {
    const OperationId id = operation.id;
    table_.finish(operation, Status::ok());
    EXPECT_EQ(state_of(table_, id), OperationState::kDone);
  }

  OperationTable table_{1};
  std::atomic<uint64_t> current_{0};
};

TEST_F(OneSlotTable, AbandoningWakesWhoGuessedTheId) {
  Operation& operation = acquired(table_);
  std::atomic<bool> waiting{false};
  std::thread waiter([&, id = operation.id] {
    waiting = true;
    EXPECT_TRUE(table_.wait(id, far(), 0ns));
  });
  ASSERT_TRUE(wait_until([&] { return waiting.load(); }));
  table_.abandon(operation);
  waiter.join();
}

/// Every end meets waits that are about to begin, spinning, about to sleep or asleep. A wake-up that is lost makes its wait last
/// until the deadline.
TEST_F(OneSlotTable, NoWakeUpIsLost) {
  constexpr size_t kWaiters = 6;
  constexpr int kRounds = 3000;
  std::array<std::atomic<uint64_t>, kWaiters> seen{};
  std::atomic<size_t> waiters{0};
  const TimePoint start = std::chrono::steady_clock::now();
  const Deadline enough = long_enough();
  {
    Repeating waiting(kWaiters, [&, me = ~size_t{0}]() mutable {
      if (me == ~size_t{0}) me = waiters++;
      const OperationId id = current();
      if (static_cast<uint64_t>(id) == seen[me]) return;
      EXPECT_TRUE(table_.wait(id, far(), me % 2 == 0 ? Duration(0) : Duration(20us)));
      seen[me] = static_cast<uint64_t>(id);
    });
    for (int i = 0; i < kRounds && !enough.expired(); ++i) {
      Operation& operation = acquired(table_);
      const OperationId id = operation.id;
      set_current(id);
      for (int y = 0; y < i % 7; ++y) ::sched_yield();
      table_.finish(operation, Status::ok());
      if (i % 4 == 0) {  // with everybody; else the slot goes on while some still come from their wait
        const bool all = wait_until([&] {
          return std::all_of(seen.begin(), seen.end(), [&](const auto& last) { return last == static_cast<uint64_t>(id); });
        });
        EXPECT_TRUE(all) << i;
        if (!all) break;
      }
      EXPECT_EQ(state_of(table_, id), OperationState::kDone);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTestDeadline);
}

/// Operations follow each other while others ask to cancel every second one: no mark reaches a neighbour.
TEST_F(OneSlotTable, ACancelMeetsOnlyItsOperation) {
  constexpr uint64_t kRounds = 2000;  // each lets the cancelling threads run, which takes its time on few cores
  std::atomic<uint64_t> accepted{0};
  Repeating cancelling(3, [&] { accepted += table_.request_cancel(current()) ? 1 : 0; });
  uint64_t marked = 0, round = 0;
  const Deadline enough = long_enough();
  EXPECT_TRUE(wait_until([&] {
    const bool wanted = ++round % 2 == 0;
    Operation& operation = acquired(table_);
    if (wanted) set_current(operation.id);
    if (round % 64 == 0) ::sched_yield();
    const bool cancelled = operation.cancel_requested();
    EXPECT_TRUE(wanted || !cancelled);
    marked += cancelled ? 1 : 0;
    finish(operation);
    return (round >= kRounds || enough.expired()) && marked > 0;
  }));
  cancelling.stop();
  EXPECT_GE(accepted, marked);
  EXPECT_TRUE(table_.take_cancel_requests());
}

/// Readers that come too late get kNotFound, never another operation's event.
TEST_F(OneSlotTable, AnEventIsThatOfItsOperation) {
  std::atomic<uint64_t> found{0}, foreign{0};
  Repeating reading(3, [&] {
    const OperationId id = current();
    const Result<void*> event = table_.event_of(id);
    if (event.is_ok()) ++(reinterpret_cast<uint64_t>(*event) == static_cast<uint64_t>(id) ? found : foreign);
  });
  SignalLife life;
  int rounds = 0;
  const Deadline enough = long_enough();
  EXPECT_TRUE(wait_until([&] {
    Operation& operation = acquired(table_);
    if (rounds % 3 != 0) {
      operation.set_signal(std::make_unique<FakeSignal>(life, reinterpret_cast<void*>(static_cast<uint64_t>(operation.id))));
      set_current(operation.id);
      if (rounds % 64 == 1) ::sched_yield();
    }
    finish(operation);
    return (++rounds >= 20000 || enough.expired()) && found > 0;
  }));
  reading.stop();
  EXPECT_EQ(foreign, 0u);
}

TEST(OperationTable, OneOfSeveralPollersGetsTheEnd) {
  constexpr int kRounds = 2000;
  OperationTable table(3);
  std::atomic<uint64_t> current{0};
  std::atomic<int> ends{0}, wrong{0};
  Repeating polling(4, [&] {
    const OperationAnswer answer = table.poll(OperationId{current.load()});
    const bool failed = answer.state == OperationState::kFailed;
    ends += failed ? 1 : 0;
    if (answer.state == OperationState::kDone || (failed && answer.status.to_string() != failure().to_string())) ++wrong;
  });
  const Deadline enough = long_enough();
  int rounds = 0;
  while (rounds < kRounds && !enough.expired()) {
    Operation& operation = acquired(table);
    current = static_cast<uint64_t>(operation.id);
    table.finish(operation, failure());
    const bool taken = wait_until([&] { return ends > rounds; });
    EXPECT_TRUE(taken);
    if (!taken) break;
    ++rounds;
  }
  polling.stop();
  EXPECT_EQ(ends, rounds);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(table.outstanding(), 0u);
}

/// The last slots come into being while others look for one: nobody is refused before all are taken.
TEST(OperationTable, GrowsUnderThreads) {
  constexpr uint32_t kThreads = 4, kEach = 150;
  for (int round = 0; round < 100; ++round) {
    OperationTable table(kThreads * kEach);
    std::atomic<uint32_t> ready{0}, refused{0};
    run_together(kThreads, [&](size_t) {
      ++ready;
      while (ready < kThreads) ::sched_yield();
      for (uint32_t i = 0; i < kEach; ++i) refused += table.acquire().is_ok() ? 0 : 1;
    });
    EXPECT_EQ(refused, 0u);
    EXPECT_EQ(table.outstanding(), kThreads * kEach);
    EXPECT_EQ(table.acquire().status().code(), Code::kExhausted);
  }
}

/// As in an endpoint: threads start operations and poll them, one thread ends them.
TEST(OperationTable, ManyThreadsStartOneEnds) {
  constexpr int kThreads = 4, kEach = 5000, kWindow = 16;
  OperationTable table(kThreads * kWindow - 8);  // fewer than are wanted
  Mutex mutex;
  std::vector<Operation*> submitted;
  std::atomic<int> running{kThreads};
  std::atomic<uint64_t> exhausted{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::pair<OperationId, bool>> mine;
      int started = 0;
      while (started < kEach || !mine.empty()) {
        if (started < kEach && mine.size() < kWindow) {
          if (Result<Operation*> operation = table.acquire(); operation.is_ok()) {
            const bool good = started % 3 != 0;
            (*operation)->sequence = static_cast<uint64_t>(started++);
            (*operation)->bytes = good ? 1 : 0;
            mine.emplace_back((*operation)->id, good);
            const MutexLock lock(mutex);
            submitted.push_back(*operation);
            continue;
          }
          ++exhausted;
        }
        if (t % 2 == 0 && !table.wait(mine.empty() ? OperationId{} : mine.front().first, far(), 0ns)) ++wrong;
        std::erase_if(mine, [&](const auto& one) {
          const OperationAnswer answer = table.poll(one.first);
          if (answer.state == OperationState::kPending) return false;
          if (answer.state != (one.second ? OperationState::kDone : OperationState::kFailed)) ++wrong;
          return true;
        });
        ::sched_yield();
      }
      --running;
    });
  }
  std::vector<Operation*> taken;
  EXPECT_TRUE(wait_until(
      [&] {
        {
          const MutexLock lock(mutex);
          taken.swap(submitted);
        }
        for (Operation* operation : taken) table.finish(*operation, operation->bytes == 1 ? Status::ok() : failure());
        taken.clear();
        return running == 0;
      },
      2 * kTestDeadline));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(table.outstanding(), 0u);
}

/// Ids come and go on different threads, so the free list passes slots between them without taking memory.
TEST(OperationTable, PassesSlotsBetweenThreadsWithoutTheHeap) {
  constexpr int kWarm = 500, kRounds = 1000;
  OperationTable table(64);
  std::atomic<uint64_t> handed{0};
  std::atomic<uint64_t> poller_allocations{0};
  std::thread poller([&] {
    uint64_t before = 0;
    for (int i = 0; i < kWarm + kRounds; ++i) {
      if (i == kWarm) before = allocation_count();
      uint64_t id = 0;
      while ((id = handed.exchange(0)) == 0) ::sched_yield();
      if (table.poll(OperationId{id}).state != OperationState::kDone) ADD_FAILURE() << id;
    }
    poller_allocations = allocation_count() - before;
  });
  uint64_t before = 0;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    if (i == kWarm) before = allocation_count();
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    table.finish(operation, Status::ok());
    handed = static_cast<uint64_t>(id);
    while (handed != 0) ::sched_yield();
  }
  const uint64_t allocations = allocation_count() - before;
  poller.join();
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(poller_allocations, 0u);
}

}  // namespace
}  // namespace tcpx::testing
