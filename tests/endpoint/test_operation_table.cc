#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "endpoint/operation.h"
#include "tests/support/count_allocations.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using namespace std::chrono_literals;
using testing::kTestDeadline;
using testing::wait_until;

constexpr uint64_t kGenerationStep = uint64_t{1} << 20;

Deadline far() {
  return Deadline::after(kTestDeadline);
}

Status failure() {
  return Status(Code::kPeerGone, "test", "the peer is gone");
}

Operation& acquired(OperationTable& table) {
  Result<Operation*> operation = table.acquire();
  EXPECT_TRUE(operation.is_ok()) << operation.status().to_string();
  return **operation;
}

OperationState state_of(OperationTable& table, OperationId id) {
  return table.poll(id).state;
}

/// History of a FakeSignal, which outlives it.
struct SignalLife {
  int fired = 0;
  bool alive = false;
};

class FakeSignal final : public GpuSignal {
 public:
  FakeSignal(SignalLife& life, void* event) : life_(life), event_(event) { life_.alive = true; }
  ~FakeSignal() override { life_.alive = false; }
  void* event() const override { return event_; }
  void fire() override { ++life_.fired; }

 private:
  SignalLife& life_;
  void* event_;
};

class FakeMark final : public GpuMark {
 public:
  explicit FakeMark(int& alive) : alive_(alive) { ++alive_; }
  ~FakeMark() override { --alive_; }
  Result<bool> reached() override { return true; }

 private:
  int& alive_;
};

// One operation
// ------------------------------------------------------------------------------------------------------------------

TEST(OperationTable, AnEndIsSaidOnce) {
  OperationTable table(4);
  for (const bool good : {true, false}) {
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    EXPECT_NE(id, OperationId{});
    EXPECT_EQ(table.outstanding(), 1u);
    EXPECT_EQ(state_of(table, id), OperationState::kPending);
    EXPECT_EQ(state_of(table, id), OperationState::kPending);
    EXPECT_FALSE(table.is_unknown(id));
    table.finish(operation, good ? Status::ok() : failure());
    EXPECT_FALSE(table.is_unknown(id));
    EXPECT_EQ(table.outstanding(), 1u) << "not polled yet";
    const OperationAnswer answer = table.poll(id);
    EXPECT_EQ(answer.state, good ? OperationState::kDone : OperationState::kFailed);
    EXPECT_EQ(answer.status.to_string(), good ? "TCPX_OK" : failure().to_string());
    EXPECT_EQ(state_of(table, id), OperationState::kUnknown);
    EXPECT_TRUE(table.is_unknown(id));
    EXPECT_EQ(table.outstanding(), 0u);
  }
}

TEST(OperationTable, IdsThatNeverWereAreUnknown) {
  OperationTable table(300);
  Operation& operation = acquired(table);
  const auto real = static_cast<uint64_t>(operation.id);
  const std::array<uint64_t, 10> ids = {0,        1,    255, 256, 299, 300, real + kGenerationStep, real - kGenerationStep,
                                        real + 1, ~0ull};
  for (const uint64_t value : ids) {
    const OperationId id{value};
    EXPECT_TRUE(table.is_unknown(id)) << value;
    EXPECT_EQ(state_of(table, id), OperationState::kUnknown) << value;
    EXPECT_TRUE(table.wait(id, far(), 0ns)) << value;
    EXPECT_FALSE(table.request_cancel(id)) << value;
    EXPECT_EQ(table.event_of(id).status().code(), Code::kNotFound) << value;
  }
  EXPECT_FALSE(table.take_cancel_requests());
  EXPECT_EQ(state_of(table, operation.id), OperationState::kPending) << "and touch nobody";
  table.abandon(operation);
}

TEST(OperationTable, AnOldIdDoesNotTouchTheNextOperationOfItsSlot) {
  OperationTable table(1);
  std::vector<OperationId> old;
  for (int i = 0; i < 100; ++i) {
    Operation& operation = acquired(table);
    EXPECT_EQ(std::count(old.begin(), old.end(), operation.id), 0);
    for (const OperationId id : old) {
      EXPECT_TRUE(table.is_unknown(id));
      EXPECT_FALSE(table.request_cancel(id));
      EXPECT_EQ(state_of(table, id), OperationState::kUnknown);
    }
    EXPECT_FALSE(operation.cancel_requested());
    table.finish(operation, Status::ok());
    for (const OperationId id : old) EXPECT_EQ(state_of(table, id), OperationState::kUnknown);
    old.push_back(operation.id);
    EXPECT_EQ(state_of(table, operation.id), OperationState::kDone);
  }
}

TEST(OperationTable, TheEndReleasesWhatTheOperationHeld) {
  OperationTable table(1);
  MemoryRegistry registry(1);
  std::array<std::byte, 64> memory{};
  const MemoryId id = *registry.add(memory.data(), memory.size(), MemoryType::kHost);
  const Deadline passed = Deadline::after(-1s);
  int marks = 0;
  for (const bool abandoned : {false, true}) {
    Operation& operation = acquired(table);
    operation.kind = OperationKind::kWrite;
    operation.conn = ConnId{5};
    operation.link = operation.sequence = operation.bytes = 64;
    operation.ranges.push_back({*registry.use(id, memory.data(), 64), memory.data(), 64});
    operation.remote.push_back({.slot = 1, .offset = 0, .bytes = 64});
    operation.notify = std::make_unique<NotifyMsg>(NotifyMsg{.name = "n", .msg = "m"});
    operation.after.push_back(std::make_unique<FakeMark>(marks));
    EXPECT_EQ(registry.remove(id, passed).status().code(), Code::kTimeout);
    if (abandoned) {
      table.abandon(operation);
    } else {
      table.finish(operation, failure());
    }
    EXPECT_EQ(marks, 0);
    EXPECT_EQ(*registry.add(memory.data(), memory.size(), MemoryType::kHost), id);
    EXPECT_TRUE(registry.remove(id, passed).is_ok());
    EXPECT_EQ(table.is_unknown(operation.id), abandoned);
    EXPECT_EQ(state_of(table, operation.id), abandoned ? OperationState::kUnknown : OperationState::kFailed);
    Operation& next = acquired(table);
    EXPECT_EQ(&next, &operation);
    EXPECT_EQ(next.kind, OperationKind::kSend);
    EXPECT_EQ(next.conn, ConnId{});
    EXPECT_EQ(next.link + next.sequence + next.bytes, 0u);
    EXPECT_TRUE(next.ranges.empty() && next.remote.empty() && next.after.empty() && next.notify == nullptr);
    table.abandon(next);
    EXPECT_EQ(table.outstanding(), 0u);
  }
  const Result<std::optional<Region>> removed = registry.remove(id, passed);
  EXPECT_TRUE(removed.is_ok() && removed->has_value());
}

TEST(OperationTable, ASignalFiresAtTheEndAndStaysUntilThatIsPolled) {
  OperationTable table(2);
  Operation& operation = acquired(table);
  const OperationId id = operation.id;
  ASSERT_TRUE(table.event_of(id).is_ok());
  EXPECT_EQ(*table.event_of(id), nullptr);
  SignalLife life;
  int event = 0;
  operation.set_signal(std::make_unique<FakeSignal>(life, &event));
  EXPECT_EQ(*table.event_of(id), &event);
  EXPECT_EQ(life.fired, 0);
  table.finish(operation, failure());
  EXPECT_EQ(life.fired, 1);
  EXPECT_TRUE(life.alive);
  EXPECT_EQ(*table.event_of(id), &event);
  EXPECT_EQ(state_of(table, id), OperationState::kFailed);
  EXPECT_FALSE(life.alive);
  EXPECT_EQ(table.event_of(id).status().code(), Code::kNotFound);

  Operation& abandoned = acquired(table);
  abandoned.set_signal(std::make_unique<FakeSignal>(life, &event));
  table.abandon(abandoned);
  EXPECT_FALSE(life.alive);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*table.event_of(acquired(table).id), nullptr) << "a new operation has none";
}

TEST(OperationTable, CancellingMarksPendingOperations) {
  OperationTable table(2);
  EXPECT_FALSE(table.take_cancel_requests());
  Operation& first = acquired(table);
  Operation& second = acquired(table);
  EXPECT_TRUE(table.request_cancel(first.id));
  EXPECT_TRUE(table.request_cancel(first.id)) << "still pending";
  EXPECT_TRUE(first.cancel_requested());
  EXPECT_FALSE(second.cancel_requested());
  EXPECT_TRUE(table.take_cancel_requests());
  EXPECT_FALSE(table.take_cancel_requests());
  EXPECT_EQ(state_of(table, first.id), OperationState::kPending);
  table.finish(first, Status(Code::kCancelled, "test", "cancelled"));
  EXPECT_FALSE(table.request_cancel(first.id)) << "ended";
  EXPECT_FALSE(table.take_cancel_requests());
  EXPECT_EQ(table.poll(first.id).status.code(), Code::kCancelled);
  EXPECT_FALSE(table.request_cancel(first.id)) << "unknown";
  EXPECT_FALSE(acquired(table).cancel_requested());
}

TEST(OperationTable, NamesItsKinds) {
  EXPECT_EQ(name_of(OperationKind::kSend), "send");
  EXPECT_EQ(name_of(OperationKind::kRecv), "recv");
  EXPECT_EQ(name_of(OperationKind::kWrite), "write");
  EXPECT_EQ(name_of(OperationKind::kRead), "read");
}

// Many operations
// ------------------------------------------------------------------------------------------------------------------

TEST(OperationTable, IsExhaustedAtItsCapacity) {
  for (const uint32_t capacity : {1u, 255u, 256u, 257u, 1000u, 1u << 20}) {
    OperationTable table(capacity);
    std::vector<OperationId> ids;
    for (uint32_t i = 0; i < capacity; ++i) ids.push_back(acquired(table).id);
    EXPECT_EQ(table.outstanding(), capacity);
    EXPECT_EQ(table.acquire().status().code(), Code::kExhausted);
    std::vector<OperationId> sorted = ids;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());

    for (const OperationId id : {ids.front(), ids[capacity / 2], ids.back()}) {
      EXPECT_EQ(state_of(table, id), OperationState::kPending);
    }
  }
}

TEST(OperationTable, APolledEndMakesRoom) {
  OperationTable table(257);
  std::vector<Operation*> operations;
  for (int i = 0; i < 257; ++i) operations.push_back(&acquired(table));
  for (Operation* operation : operations) {
    const OperationId id = operation->id;
    table.finish(*operation, Status::ok());
    EXPECT_EQ(table.acquire().status().code(), Code::kExhausted) << "ended, not polled";
    EXPECT_EQ(state_of(table, id), OperationState::kDone);
    Operation& next = acquired(table);
    EXPECT_EQ(&next, operation);
    EXPECT_EQ(static_cast<uint64_t>(next.id), static_cast<uint64_t>(id) + kGenerationStep);
    EXPECT_EQ(table.acquire().status().code(), Code::kExhausted);
  }
}

TEST(OperationTable, TakesNothingFromTheHeapInSteadyState) {
  OperationTable table(1000);
  MemoryRegistry registry(1);
  std::array<std::byte, 64> memory{};
  const MemoryId memory_id = *registry.add(memory.data(), memory.size(), MemoryType::kHost);
  int bad = 0;
  const auto cycle = [&] {
    std::array<Operation*, 64> operations;
    std::array<OperationId, 64> ids;
    for (size_t i = 0; i < operations.size(); ++i) {
      operations[i] = *table.acquire();
      ids[i] = operations[i]->id;
      for (int r = 0; r < 4; ++r) {
        operations[i]->ranges.push_back({*registry.use(memory_id, memory.data(), 16), memory.data(), 16});
        operations[i]->remote.push_back({.slot = 1, .offset = 0, .bytes = 16});
      }
    }
    for (Operation* operation : operations) table.finish(*operation, Status::ok());
    for (const OperationId id : ids) bad += table.wait(id, far(), 0ns) && state_of(table, id) == OperationState::kDone ? 0 : 1;
  };
  for (int i = 0; i < 20; ++i) cycle();
  const uint64_t before = testing::allocation_count();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(bad, 0);
}

TEST(OperationTable, KeepsNoLongVectors) {
  OperationTable table(1);
  for (const size_t count : {size_t{4}, size_t{64}, size_t{4096}}) {
    Operation& operation = acquired(table);
    operation.ranges.resize(count);
    operation.remote.resize(count);
    table.finish(operation, Status::ok());
    EXPECT_EQ(state_of(table, operation.id), OperationState::kDone);
    Operation& next = acquired(table);
    EXPECT_EQ(next.ranges.capacity() >= count, count <= 64) << count;
    EXPECT_EQ(next.remote.capacity() >= count, count <= 64) << count;
    table.abandon(next);
  }
}

// Waiting
// ------------------------------------------------------------------------------------------------------------------

TEST(OperationTable, AWaitEndsAtItsDeadlineAndTakesNothing) {
  OperationTable table(1);
  Operation& operation = acquired(table);
  const OperationId id = operation.id;
  for (const Duration spin : {Duration(0), Duration(1ms), Duration(1h)}) {
    const TimePoint start = std::chrono::steady_clock::now();
    EXPECT_FALSE(table.wait(id, Deadline(start + 5ms), spin));
    EXPECT_GE(std::chrono::steady_clock::now(), start + 5ms);
    EXPECT_FALSE(table.wait(id, Deadline(start - 1h), spin));
    EXPECT_FALSE(table.wait(id, Deadline(TimePoint::min()), spin));
  }
  table.finish(operation, Status::ok());
  EXPECT_TRUE(table.wait(id, Deadline(TimePoint::min()), 0ns));
  EXPECT_TRUE(table.wait(id, far(), 1h));
  EXPECT_EQ(state_of(table, id), OperationState::kDone);
  EXPECT_TRUE(table.wait(id, far(), 1h)) << "unknown";
}

TEST(OperationTable, AbandoningWakesWhoGuessedTheId) {
  OperationTable table(1);
  Operation& operation = acquired(table);
  std::atomic<bool> waiting{false};
  std::thread waiter([&, id = operation.id] {
    waiting = true;
    EXPECT_TRUE(table.wait(id, far(), 0ns));
  });
  ASSERT_TRUE(wait_until([&] { return waiting.load(); }));
  table.abandon(operation);
  waiter.join();
}

/// Every end meets waits that are about to begin, spinning, about to sleep or asleep. A wake-up that is lost makes its wait last
/// until the deadline.
TEST(OperationTable, NoWakeUpIsLost) {
  constexpr int kWaiters = 6, kRounds = 3000;
  OperationTable table(1);
  std::atomic<uint64_t> current{0};
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, kWaiters> seen{};
  std::vector<std::thread> waiters;
  for (int t = 0; t < kWaiters; ++t) {
    waiters.emplace_back([&, t] {
      uint64_t last = 0;
      while (!stop) {
        const uint64_t id = current;
        if (id == last) {
          ::sched_yield();
          continue;
        }
        const Duration spin = t % 2 == 0 ? Duration(0) : Duration(20us);
        EXPECT_TRUE(table.wait(OperationId{id}, far(), spin));
        seen[t] = last = id;
      }
    });
  }
  const TimePoint start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    current = static_cast<uint64_t>(id);
    for (int y = 0; y < i % 7; ++y) ::sched_yield();
    table.finish(operation, Status::ok());
    if (i % 4 == 0) {  // with everybody; else the slot goes on while some still come from their wait
      const bool all = wait_until([&] {
        return std::all_of(seen.begin(), seen.end(), [&](const auto& last) { return last == static_cast<uint64_t>(id); });
      });
      EXPECT_TRUE(all) << i;
      if (!all) break;
    }
    EXPECT_EQ(state_of(table, id), OperationState::kDone);
  }
  stop = true;
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTestDeadline);
}

// Threads
// ------------------------------------------------------------------------------------------------------------------

TEST(OperationTable, OneOfSeveralPollersGetsTheEnd) {
  constexpr int kPollers = 4, kRounds = 2000;
  OperationTable table(3);
  std::atomic<uint64_t> current{0};
  std::atomic<bool> stop{false};
  std::atomic<int> ends{0}, wrong{0};
  std::vector<std::thread> pollers;
  for (int t = 0; t < kPollers; ++t) {
    pollers.emplace_back([&] {
      while (!stop) {
        const OperationAnswer answer = table.poll(OperationId{current.load()});
        ::sched_yield();
        if (answer.state == OperationState::kFailed) ++ends;
        if (answer.state == OperationState::kDone) ++wrong;
        if (answer.state == OperationState::kFailed && answer.status.to_string() != failure().to_string()) ++wrong;
      }
    });
  }
  for (int i = 1; i <= kRounds; ++i) {
    Operation& operation = acquired(table);
    current = static_cast<uint64_t>(operation.id);
    table.finish(operation, failure());
    const bool taken = wait_until([&] { return ends >= i; });
    EXPECT_TRUE(taken);
    if (!taken) break;
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(ends, kRounds);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(table.outstanding(), 0u);
}

/// One slot, whose operations follow each other while others ask to cancel every second one: no mark reaches a neighbour.
TEST(OperationTable, ACancelMeetsOnlyItsOperation) {
  constexpr uint64_t kRounds = 2000;  // each lets the cancelling threads run, which takes its time on few cores
  OperationTable table(1);
  std::atomic<uint64_t> target{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> cancellers;
  for (int t = 0; t < 3; ++t) {
    cancellers.emplace_back([&] {
      while (!stop) {
        if (table.request_cancel(OperationId{target.load()})) ++accepted;
        ::sched_yield();
      }
    });
  }
  uint64_t marked = 0;
  uint64_t round = 0;
  EXPECT_TRUE(wait_until([&] {
    const bool wanted = ++round % 2 == 0;
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    if (wanted) target = static_cast<uint64_t>(id);
    if (round % 64 == 0) ::sched_yield();
    const bool cancelled = operation.cancel_requested();
    EXPECT_TRUE(wanted || !cancelled);
    marked += cancelled ? 1 : 0;
    table.finish(operation, Status::ok());
    EXPECT_EQ(state_of(table, id), OperationState::kDone);
    return round >= kRounds && marked > 0;
  }));
  stop = true;
  for (std::thread& canceller : cancellers) canceller.join();
  EXPECT_GE(accepted, marked);
  EXPECT_TRUE(table.take_cancel_requests());
}

/// Readers that come too late get kNotFound, never another operation's event.
TEST(OperationTable, AnEventIsThatOfItsOperation) {
  OperationTable table(1);
  std::atomic<uint64_t> current{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0}, foreign{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!stop) {
        const uint64_t id = current;
        const Result<void*> event = table.event_of(OperationId{id});
        if (event.is_ok()) ++(reinterpret_cast<uint64_t>(*event) == id ? found : foreign);
        ::sched_yield();
      }
    });
  }
  SignalLife life;
  int rounds = 0;
  EXPECT_TRUE(wait_until([&] {
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    if (rounds % 3 != 0) {
      operation.set_signal(std::make_unique<FakeSignal>(life, reinterpret_cast<void*>(static_cast<uint64_t>(id))));
      current = static_cast<uint64_t>(id);
      if (rounds % 64 == 1) ::sched_yield();
    }
    table.finish(operation, Status::ok());
    EXPECT_EQ(state_of(table, id), OperationState::kDone);
    return ++rounds >= 20000 && found > 0;
  }));
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(foreign, 0u);
}

/// The last slots come into being while others look for one: nobody is refused before all are taken.
TEST(OperationTable, GrowsUnderThreads) {
  constexpr uint32_t kThreads = 4, kEach = 150;
  for (int round = 0; round < 100; ++round) {
    OperationTable table(kThreads * kEach);
    std::atomic<uint32_t> ready{0}, refused{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        ++ready;
        while (ready < kThreads) ::sched_yield();
        for (uint32_t i = 0; i < kEach; ++i) refused += table.acquire().is_ok() ? 0 : 1;
      });
    }
    for (std::thread& thread : threads) thread.join();
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
  constexpr int kWarm = 5000, kRounds = 10000;
  OperationTable table(64);
  std::atomic<uint64_t> handed{0};
  std::atomic<uint64_t> poller_allocations{0};
  std::thread poller([&] {
    uint64_t before = 0;
    for (int i = 0; i < kWarm + kRounds; ++i) {
      if (i == kWarm) before = testing::allocation_count();
      uint64_t id = 0;
      while ((id = handed.exchange(0)) == 0) ::sched_yield();
      if (table.poll(OperationId{id}).state != OperationState::kDone) ADD_FAILURE() << id;
    }
    poller_allocations = testing::allocation_count() - before;
  });
  uint64_t before = 0;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    if (i == kWarm) before = testing::allocation_count();
    Operation& operation = acquired(table);
    const OperationId id = operation.id;
    table.finish(operation, Status::ok());
    handed = static_cast<uint64_t>(id);
    while (handed != 0) ::sched_yield();
  }
  const uint64_t allocations = testing::allocation_count() - before;
  poller.join();
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(poller_allocations, 0u);
}

}  // namespace
}  // namespace tcpx
