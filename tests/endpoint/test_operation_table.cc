// A table of operations on one thread: ends and ids, memory they hold, cancels and waits that run out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/operations.h"

namespace tcpx::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kGenerationStep = uint64_t{1} << 20;

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

class OperationParts : public ::testing::Test {
 protected:
  OperationParts() {
    table_.submit_last_parts_to(submitted_);
    whole_ = must(of_whole_.first(OperationKind::kWrite));
    id_ = whole_->id;
  }
  /// @return the parts, without the last one
  std::span<Operation* const> join(size_t count, bool with_last) {
    EXPECT_TRUE(of_whole_.add(count + (with_last ? 1 : 0)));
    const auto parts = of_whole_.all().subspan(1, count);
    last_ = with_last ? of_whole_.all().back() : nullptr;
    table_.join(*whole_, parts, last_);
    of_whole_.let_go();
    return parts;
  }
  Operation* must(const Result<Operation*>& made) {
    EXPECT_TRUE(made.is_ok());
    return made.is_ok() ? *made : nullptr;
  }

  OperationTable table_{8};
  SubmissionQueue<Operation> submitted_;
  NewOperations of_whole_{table_};
  Operation *whole_ = nullptr, *last_ = nullptr;
  OperationId id_{};
};

TEST_F(OperationParts, EndTogether) {
  const auto parts = join(3, false);
  for (const size_t i : {1, 0}) {
    table_.finish(*parts[i], Status::ok());
    EXPECT_EQ(state_of(table_, id_), OperationState::kPending) << "a part is under way";
    EXPECT_EQ(parts[2]->ends_whole(), i == 0);
  }
  EXPECT_EQ(table_.outstanding(), 2u) << "nobody polls a part";
  table_.finish(*parts[2], Status::ok());
  EXPECT_EQ(state_of(table_, id_), OperationState::kDone);
  EXPECT_EQ(table_.outstanding(), 0u);
}

TEST_F(OperationParts, TheFirstErrorIsTheWholes) {
  const auto parts = join(3, true);
  EXPECT_TRUE(parts[1]->fails_whole());
  table_.finish(*parts[1], failure());
  EXPECT_FALSE(parts[0]->fails_whole());
  table_.finish(*parts[0], Status(Code::kCancelled, "test", "later"));
  EXPECT_FALSE(parts[2]->ends_whole());
  EXPECT_EQ(state_of(table_, id_), OperationState::kPending);
  table_.finish(*parts[2], Status::ok());
  EXPECT_TRUE(submitted_.empty()) << "no last part after an error";
  EXPECT_EQ(table_.poll(id_).status.to_string(), failure().to_string());
  EXPECT_EQ(table_.outstanding(), 0u);
}

TEST_F(OperationParts, TheLastBeginsWhenAllOthersHaveEnded) {
  const auto parts = join(2, true);
  table_.finish(*parts[0], Status::ok());
  EXPECT_TRUE(submitted_.empty());
  EXPECT_FALSE(parts[1]->ends_whole());
  table_.finish(*parts[1], Status::ok());
  ASSERT_EQ(submitted_.pop(), last_);
  EXPECT_TRUE(last_->ends_whole());
  EXPECT_EQ(state_of(table_, id_), OperationState::kPending);
  table_.finish(*last_, failure());
  EXPECT_EQ(state_of(table_, id_), OperationState::kFailed);
  EXPECT_EQ(table_.outstanding(), 0u);
}

TEST_F(OperationParts, AreCancelledTogether) {
  const auto parts = join(2, true);
  EXPECT_FALSE(parts[1]->cancel_requested());
  EXPECT_TRUE(table_.request_cancel(id_));
  for (const Operation* const part : {parts[0], parts[1], last_}) EXPECT_TRUE(part->cancel_requested());
  for (Operation* const part : parts) table_.finish(*part, Status(Code::kCancelled, "test", ""));
  EXPECT_EQ(table_.poll(id_).status.code(), Code::kCancelled);
  EXPECT_FALSE(acquired(table_).cancel_requested()) << "the next operation of the slot";
}

TEST_F(OperationParts, AreAllOrNone) {
  EXPECT_FALSE(of_whole_.add(8)) << "seven are left";
  EXPECT_EQ(of_whole_.all().size(), 1u);
  EXPECT_EQ(table_.outstanding(), 1u);
  EXPECT_TRUE(of_whole_.add(7));
  EXPECT_EQ(table_.outstanding(), 8u);
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
    operation.remote.push_back({.slot = {0, 1}, .offset = 0, .bytes = 64});
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
        operations[i]->remote.push_back({.slot = {0, 1}, .offset = 0, .bytes = 16});
      }
    }
    for (Operation* operation : operations) table.finish(*operation, Status::ok());
    for (const OperationId id : ids) bad += table.wait(id, far(), 0ns) && state_of(table, id) == OperationState::kDone ? 0 : 1;
  };
  for (int i = 0; i < 20; ++i) cycle();
  const uint64_t before = allocation_count();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(bad, 0);
}

TEST(OperationTable, KeepsListsOfRangesUpToFourMebibytes) {
  constexpr size_t kTooMuch = 4 * 1024 * 1024 / (sizeof(HeldRange) + sizeof(WireRange)) + 1;
  OperationTable table(2);
  // One after the other in the same slot.
  for (const auto& [count, is_kept] : {std::pair{size_t{4}, true},
                                       {4096, true},
                                       {8192, true},
                                       {16384, true},
                                       {24576, true},
                                       {kTooMuch, false},
                                       {kTooMuch / 2, true},
                                       {64, true}}) {
    Operation& operation = acquired(table);
    operation.ranges.reserve(count);
    operation.remote.reserve(count);
    table.finish(operation, Status::ok());
    EXPECT_EQ(state_of(table, operation.id), OperationState::kDone);
    Operation& next = acquired(table);
    EXPECT_EQ(next.ranges.capacity() >= count, is_kept) << count;
    EXPECT_EQ(next.remote.capacity() >= count, is_kept) << count;
    EXPECT_TRUE(next.ranges.empty() && next.remote.empty());
    table.abandon(next);
  }
  // Half of it is kept in one slot, so another one may keep less than the other half.
  Operation& first = acquired(table);
  Operation& second = acquired(table);
  ASSERT_GE(first.ranges.capacity(), kTooMuch / 2);
  second.ranges.reserve(kTooMuch);
  table.abandon(second);
  EXPECT_EQ(acquired(table).ranges.capacity(), 0u);
  table.abandon(first);
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

}  // namespace
}  // namespace tcpx::testing
