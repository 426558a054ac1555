// Slots that a peer of the same host reads and writes without asking: what is read is what the slot has, and nothing is written into
// memory that its owner has taken back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/endpoint_fixture.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

class EndpointLeases : public EndpointPairTest {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  void prepare() override {
    make_pair();
    near_ = range(a_, mine_.span());
    far_ = range(b_, theirs_.span());
  }
  void fill(uint64_t value) { fill_words(theirs_.span(), value); }
  uint64_t read_value(size_t bytes) { return only_word(mine_.span().first(bytes)); }
  /// Waits, however slow the machine is, until an operation with the newest slot has begun, or in every other round has ended.
  static void wait_for_some(const std::atomic<uint64_t>& ended, uint64_t round) {
    const uint64_t until = ended + 1 + round % 2;
    EXPECT_TRUE(wait_until([&] { return ended >= until; }));
  }
  static ConnectionStats stats_of(const Side& side) { return side->stats().connections.at(0); }

  GuardedBuffer mine_{kBytes}, theirs_{kBytes};
  LocalRange near_, far_;
};
TCPX_OVER_SETUPS(EndpointLeases, few_setups());

TEST_P(EndpointLeases, EachReadHasWhatTheMemoryHasThen) {
  const RemoteSlot slot = b_->advertise(b_.conn, far_).value();
  const uint64_t sent = stats_of(b_).bytes_sent;
  uint64_t bytes_read = 0;
  for (uint64_t value = 1; value <= 50; ++value) {
    fill(value);
    const size_t bytes = value % 3 == 0 ? 64 : kBytes / value / 8 * 8;
    ASSERT_TRUE(a_->read(a_.conn, {near_.memory, near_.data, bytes}, {slot}).is_ok());
    ASSERT_EQ(read_value(bytes), value);
    bytes_read += bytes;
  }
  EXPECT_TRUE(mine_.guards_intact());
  EXPECT_TRUE(wait_until([&] { return stats_of(b_).bytes_sent - sent == bytes_read; })) << stats_of(b_).bytes_sent - sent;
}

// The owner takes its memory back at any time. What a read brings is of one time, or the read fails.
TEST_P(EndpointLeases, NothingIsReadThatWasWrittenAfterTheMemoryWasDeregistered) {
  constexpr uint64_t kRounds = 300;
  std::atomic<uint64_t> round{0};
  std::vector<RemoteSlot> slots(kRounds + 1);
  fill(1);
  slots[1] = b_->advertise(b_.conn, far_).value();
  round = 1;
  std::atomic<bool> failed{false};
  std::atomic<uint64_t> ended{0};
  std::thread owner([&] {
    for (uint64_t value = 2; value <= kRounds && !failed; ++value) {
      wait_for_some(ended, value);
      std::this_thread::sleep_for(std::chrono::microseconds(value * 7 % 500));
      EXPECT_TRUE(b_->deregister(far_.memory).is_ok());
      fill(value);
      far_ = range(b_, theirs_.span());
      slots[value] = b_->advertise(b_.conn, far_).value();
      round.store(value);
    }
  });
  uint64_t whole = 0, refused = 0;
  while (round < kRounds) {
    const uint64_t value = round.load();
    const Status status = a_->read(a_.conn, near_, {slots[value]});
    ++ended;
    if (status.is_ok()) {
      ++whole;
      failed = read_value(kBytes) != value;
      EXPECT_FALSE(failed) << "round " << value << ": " << read_value(kBytes);
    } else {
      ++refused;
      failed = status.code() != Code::kNotFound;
      EXPECT_FALSE(failed) << status.to_string();
    }
    if (failed) break;
  }
  owner.join();
  EXPECT_GT(whole, 0u);
  ::testing::Test::RecordProperty("refused", static_cast<int>(refused));
}

// After deregister the memory is the owner's alone, whatever its peer is doing.
TEST_P(EndpointLeases, NothingIsWrittenAfterTheMemoryWasDeregistered) {
  constexpr int kRounds = 60;
  std::atomic<bool> stop{false};
  std::mutex mutex;
  RemoteSlot slot = b_->advertise(b_.conn, far_).value();
  uint64_t written = 0, refused = 0;
  std::atomic<uint64_t> ended{0};
  std::thread writer([&] {
    std::fill(mine_.data(), mine_.data() + kBytes, std::byte{0xee});
    for (size_t i = 0; !stop; ++i) {
      const RemoteSlot there = [&] {
        const std::lock_guard lock(mutex);
        return slot;
      }();
      const NotifyMsg notify{.name = "n", .msg = "m"};
      const size_t bytes = i % 3 == 0 ? kBytes : kBytes >> (1 + i % 6);
      const Status status =
          a_->write(a_.conn, {near_.memory, near_.data, bytes}, {there}, {.notify = i % 4 == 0 ? &notify : nullptr});
      ++(status.is_ok() ? written : refused);
      ++ended;
      EXPECT_TRUE(status.is_ok() || status.code() == Code::kNotFound) << status.to_string();
      (void)b_->get_notifs();
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    wait_for_some(ended, static_cast<uint64_t>(round));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 131 % 1500));
    const Status removed = b_->deregister(far_.memory);
    EXPECT_TRUE(removed.is_ok()) << removed.to_string();
    std::fill(theirs_.data(), theirs_.data() + kBytes, static_cast<std::byte>(round));
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    const bool untouched = all_are(theirs_.span(), static_cast<std::byte>(round));
    EXPECT_TRUE(untouched) << "bytes were written in round " << round;
    if (!untouched) break;
    far_ = range(b_, theirs_.span());
    const RemoteSlot next = b_->advertise(b_.conn, far_).value();
    const std::lock_guard lock(mutex);
    slot = next;
  }
  stop = true;
  writer.join();
  EXPECT_GT(written, 0u);
  EXPECT_TRUE(theirs_.guards_intact());
}

TEST_P(EndpointLeases, ManyReadsAtOnce) {
  const RemoteSlot slot = b_->advertise(b_.conn, far_).value();
  for (size_t i = 0; i < kBytes; ++i) theirs_.data()[i] = static_cast<std::byte>(i * 31 + i / 4096);
  for (int round = 0; round < 5; ++round) {
    std::fill(mine_.data(), mine_.data() + kBytes, std::byte{0});
    std::vector<Result<OperationId>> reads;
    constexpr size_t kPieces = 32, kPiece = kBytes / kPieces;
    for (size_t i = 0; i < kPieces; ++i) {
      const LocalRange to{near_.memory, mine_.data() + i * kPiece, kPiece};
      const RemoteRange from{slot, (kPieces - 1 - i) * kPiece};
      reads.push_back(a_->read_async(a_.conn, {&to, 1}, {&from, 1}));
    }
    for (const auto& read : reads) ASSERT_TRUE(done(a_, read));
    for (size_t i = 0; i < kPieces; ++i)
      ASSERT_EQ(std::memcmp(mine_.data() + i * kPiece, theirs_.data() + (kPieces - 1 - i) * kPiece, kPiece), 0) << i;
  }
}

TEST_P(EndpointLeases, AfterDeregisterTheSlotIsUnknown) {
  const RemoteSlot slot = b_->advertise(b_.conn, far_).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a_->read(a_.conn, near_, {slot}).is_ok());
  ASSERT_TRUE(b_->deregister(far_.memory).is_ok());
  EXPECT_EQ(a_->read(a_.conn, near_, {slot}).code(), Code::kNotFound);
}

}  // namespace
}  // namespace tcpx::testing
