// Streams of bytes through shared memory: all arrives, no sleeper is missed, and nothing that the peer writes there does harm.
#include "base/shared_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/lingering_socket.h"
#include "tests/support/shared_pair.h"

namespace tcpx::testing {
namespace {

using Data = std::vector<std::byte>;

Data data(size_t bytes, size_t seed = 0) {
  Data made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i + seed) * 131 >> 3);
  return made;
}

class SharedStreamTest : public ::testing::Test {
 protected:
  bool b_is_woken() {
    pollfd entry{pair_.sockets.b.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  Data read(size_t room) {
    Data found(room);
    const auto bytes = b_->read(found);
    EXPECT_TRUE(bytes.is_ok()) << bytes.status().to_string();
    found.resize(bytes.is_ok() ? *bytes : 0);
    return found;
  }
  Code read_code() {
    std::array<std::byte, 16> room;
    return b_->read(room).status().code();
  }

  SharedPair pair_;
  std::unique_ptr<SharedStream> a_ = pair_.a(), b_ = pair_.b();
};

TEST_F(SharedStreamTest, WhatIsWrittenIsRead) {
  EXPECT_FALSE(b_->has_something());
  EXPECT_TRUE(read(10).empty());
  EXPECT_EQ(a_->write(data(100)).value(), 100u);
  EXPECT_TRUE(b_->has_something());
  EXPECT_EQ(read(60).size(), 60u);
  EXPECT_EQ(read(60).size(), 40u);
  EXPECT_FALSE(b_->has_something());
  EXPECT_FALSE(a_->has_something()) << "the other direction is another ring";
}

TEST_F(SharedStreamTest, LengthsOfAnyKindComeOutWhole) {
  size_t sent = 0;
  for (size_t bytes = 1; sent < 5 * SharedRing::kBytes; bytes = bytes * 7 % 100'003) {
    const Data out = data(bytes, sent);
    ASSERT_EQ(a_->write(out).value(), bytes);
    ASSERT_EQ(read(bytes + 1), out) << "at " << sent;
    sent += bytes;
  }
}

TEST_F(SharedStreamTest, AFullRingTakesNoMore) {
  const Data out = data(SharedRing::kBytes + 100);
  EXPECT_EQ(a_->write(out).value(), SharedRing::kBytes);
  EXPECT_EQ(a_->write(out).value(), 0u);
  EXPECT_EQ(read(30).size(), 30u);
  EXPECT_EQ(a_->write(std::span(out).subspan(SharedRing::kBytes)).value(), 30u);
  EXPECT_EQ(read(2 * SharedRing::kBytes).size(), SharedRing::kBytes);
}

TEST_F(SharedStreamTest, TheEndComesBehindWhatWasWritten) {
  ASSERT_EQ(a_->write(data(20)).value(), 20u);
  a_->end();
  EXPECT_EQ(read(15).size(), 15u);
  EXPECT_EQ(read(15).size(), 5u);
  EXPECT_TRUE(b_->has_something());
  EXPECT_EQ(read_code(), Code::kPeerGone);
  EXPECT_EQ(b_->write(data(5)).value(), 5u) << "the other half goes on";
}

TEST_F(SharedStreamTest, AProcessThatIsGoneHasWhatItWroteRead) {
  ASSERT_EQ(a_->write(data(20)).value(), 20u);
  pair_.sockets.a.reset();
  EXPECT_EQ(read(50).size(), 20u);
  EXPECT_TRUE(wait_until([&] {
    b_->look_at_socket();
    return read_code() == Code::kPeerGone;
  }));
  EXPECT_EQ(a_->write(data(5)).value(), 5u) << "without a socket nobody is woken";
}

TEST_F(SharedStreamTest, OnlyASleeperIsWoken) {
  ASSERT_EQ(a_->write(data(1)).value(), 1u);
  EXPECT_FALSE(b_is_woken()) << "it looks by itself";
  EXPECT_TRUE(b_->prepare_sleep()) << "something has come";
  EXPECT_EQ(read(1).size(), 1u);
  EXPECT_FALSE(b_->prepare_sleep());
  ASSERT_EQ(a_->write(data(1)).value(), 1u);
  EXPECT_TRUE(b_is_woken());
  b_->look_at_socket();
  EXPECT_FALSE(b_is_woken());
  ASSERT_EQ(a_->write(data(1)).value(), 1u);
  EXPECT_TRUE(b_is_woken()) << "somebody else has read; the sleeper sleeps on";
  b_->end_sleep();
  b_->look_at_socket();
  a_->end();
  EXPECT_FALSE(b_is_woken());
  EXPECT_TRUE(b_->prepare_sleep()) << "the end has come";
}

TEST_F(SharedStreamTest, TheEndWakesASleeper) {
  EXPECT_FALSE(b_->prepare_sleep());
  a_->end();
  EXPECT_TRUE(b_is_woken());
}

// One message at a time, each of which finds the reader about to sleep, asleep, or waking.
TEST_F(SharedStreamTest, NoWakeUpIsLost) {
  constexpr uint64_t kMessages = 20'000;
  std::atomic<uint64_t> seen{0};
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kMessages; ++i) {
      EXPECT_EQ(a_->write(std::as_bytes(std::span(&i, 1))).value(), sizeof i);
      while (seen.load() < i) std::this_thread::yield();
    }
  });
  bool lost = false;
  while (seen.load() < kMessages && !lost) {
    if (!b_->prepare_sleep()) {
      pollfd entry{pair_.sockets.b.get(), POLLIN, 0};
      lost = ::poll(&entry, 1, 30'000) != 1;
    }
    b_->end_sleep();
    b_->look_at_socket();
    uint64_t number = 0;
    const auto bytes = b_->read(std::as_writable_bytes(std::span(&number, 1)));
    ASSERT_TRUE(bytes.is_ok());
    if (*bytes == 0) continue;  // woken by the byte of one that was read before
    ASSERT_EQ(*bytes, sizeof number);
    ASSERT_EQ(number, seen.load() + 1);
    seen = number;
  }
  EXPECT_FALSE(lost);
  seen = kMessages;
  writer.join();
}

TEST_F(SharedStreamTest, OnlyWhoWantsRoomIsWokenForIt) {
  ASSERT_EQ(b_->write(data(SharedRing::kBytes)).value(), SharedRing::kBytes);
  EXPECT_FALSE(b_->has_room());
  std::array<std::byte, 16> room;
  EXPECT_FALSE(b_->prepare_sleep());
  ASSERT_EQ(a_->read(room).value(), room.size());
  EXPECT_FALSE(b_is_woken()) << "it has nothing to write";
  EXPECT_TRUE(b_->has_room());
  EXPECT_TRUE(b_->prepare_sleep(kWakeForBytes | kWakeForRoom)) << "there is some already";
  ASSERT_EQ(b_->write(data(room.size())).value(), room.size());
  EXPECT_FALSE(b_->prepare_sleep(kWakeForBytes | kWakeForRoom));
  ASSERT_EQ(a_->read(room).value(), room.size());
  EXPECT_TRUE(b_is_woken());
}

TEST_F(SharedStreamTest, ASleeperIsWokenForWhatItWants) {
  EXPECT_FALSE(b_->prepare_sleep(kWakeForBytes | kWakeForBulkRoom));
  a_->wake(kWakeForBulkBytes);
  EXPECT_FALSE(b_is_woken());
  a_->wake(kWakeForBulkRoom);
  EXPECT_TRUE(b_is_woken());
}

// The reader takes a piece whenever the ring is full, which finds the writer about to sleep, asleep, or waking.
TEST_F(SharedStreamTest, NoWakeUpForRoomIsLost) {
  constexpr size_t kPiece = SharedRing::kBytes / 2, kPieces = 4'000;
  std::atomic<bool> lost{false};
  std::thread reader([&] {
    Data room(kPiece);
    for (size_t taken = 0; taken < kPieces && !lost;) {
      const auto bytes = a_->read(room);
      if (bytes.is_ok() && *bytes > 0) ++taken;
      if (bytes.is_ok() && *bytes == 0) std::this_thread::yield();
    }
  });
  const Data piece = data(kPiece);
  size_t left = 0;
  for (size_t sent = 0; sent < kPieces && !lost;) {
    const size_t written = b_->write(std::span(piece).subspan(left)).value();
    left += written;
    if (left == kPiece) {
      left = 0;
      ++sent;
    }
    if (written > 0) continue;
    if (!b_->prepare_sleep(kWakeForRoom)) {
      pollfd entry{pair_.sockets.b.get(), POLLIN, 0};
      lost = ::poll(&entry, 1, 30'000) != 1;
    }
    b_->end_sleep();
    b_->look_at_socket();
  }
  EXPECT_FALSE(lost);
  reader.join();
}

TEST_F(SharedStreamTest, CountersThatDoNotAddUpAreRefused) {
  ASSERT_EQ(a_->write(data(10)).value(), 10u);
  ASSERT_EQ(read(5).size(), 5u);
  for (const uint64_t written : {uint64_t{4}, uint64_t{5 + SharedRing::kBytes + 1}, ~uint64_t{0}}) {
    pair_.forth->written = written;
    EXPECT_EQ(read_code(), Code::kProtocol) << written;
  }
  for (const uint64_t read : {uint64_t{11}, uint64_t{1} << 40}) {
    pair_.forth->read = read;
    EXPECT_EQ(a_->write(data(SharedRing::kBytes)).status().code(), Code::kProtocol) << read << ", which it has to look up";
  }
  // The count that this end has written itself is not believed either.
  pair_.forth->written = 0;
  pair_.forth->read = 10;
  EXPECT_EQ(a_->write(data(SharedRing::kBytes + 1)).value(), SharedRing::kBytes);
}

TEST_F(SharedStreamTest, APeerThatNeverStopsWakingHoldsUpNobody) {
  const std::array<char, 4096> bytes{};
  while (::send(pair_.sockets.a.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  for (int i = 0; i < 100; ++i) b_->look_at_socket();
  EXPECT_TRUE(b_is_woken()) << "more than a few looks take";
  EXPECT_FALSE(b_->has_something());
  EXPECT_FALSE(a_->prepare_sleep());
  EXPECT_EQ(b_->write(data(7)).value(), 7u);
}

// Where only bytes are expected a descriptor may come with them. The kernel would close it within the call that reads.
TEST_F(SharedStreamTest, ADescriptorThatNobodyAskedForHoldsUpNobody) {
  LingeringSocket socket;
  const std::byte mark{1};
  socket.pass(pair_.sockets.a.get(), std::span(&mark, 1));
  auto looked = std::async(std::launch::async, [&] { b_->look_at_socket(); });
  if (looked.wait_for(kTestDeadline) != std::future_status::ready) socket.let_go(), ADD_FAILURE() << "it is waited for";
  looked.get();
  EXPECT_FALSE(b_->has_something());
  EXPECT_EQ(a_->write(data(7)).value(), 7u);
  EXPECT_EQ(read(7).size(), 7u);
}

}  // namespace
}  // namespace tcpx::testing
