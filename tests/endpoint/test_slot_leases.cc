// Leases, and what ends them in a MemoryRegistry: each is a word that the peer compares after it has copied.
#include "base/slot_leases.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "base/memory_registry.h"

namespace tcpx {
namespace {

constexpr ConnId kConn{3}, kOtherConn{4};

class LeaseTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;

  std::optional<SlotLeases::Lease> lease(const RemoteSlot& slot, ConnId conn = kConn) {
    const auto given = registry_.lease(conn, slot.id, leases_);
    if (!given) return std::nullopt;
    EXPECT_EQ(given->second, access_);
    return given->first;
  }
  RemoteSlot advertise(SlotAccess access = SlotAccess::kReadWrite, SlotEnd end = {}, ConnId conn = kConn) {
    access_ = access;
    return registry_.advertise(conn, id_, room_.data(), kBytes, access, nullptr, nullptr, end).value();
  }
  bool lasts(const SlotLeases::Lease& lease) const { return words_.words[lease.place] == lease.word; }

  std::array<std::byte, kBytes> room_{};
  LeaseWords words_{};
  SlotAccess access_{};
  std::shared_ptr<SlotLeases> leases_ = std::make_shared<SlotLeases>(words_);
  MemoryRegistry registry_{1};
  MemoryId id_ = registry_.add(room_.data(), kBytes, MemoryType::kHost).value();
};

TEST_F(LeaseTest, AWordIsNeverGivenTwice) {
  std::set<uint64_t> words;
  for (uint64_t i = 1; i <= 10; ++i) {
    const SlotId slot{i, i};
    const auto lease = leases_->grant(slot, id_);
    ASSERT_TRUE(lease);
    EXPECT_TRUE(lasts(*lease));
    EXPECT_NE(lease->word, 0u);
    EXPECT_TRUE(words.insert(lease->word).second);
    EXPECT_FALSE(leases_->grant(slot, id_)) << "it has one";
    leases_->end(slot);
    EXPECT_FALSE(lasts(*lease));
    EXPECT_FALSE(leases_->has(slot));
  }
}

TEST_F(LeaseTest, ThereAreNoMoreThanWords) {
  for (uint64_t i = 1; i <= LeaseWords::kMost; ++i) EXPECT_TRUE(leases_->grant({i, i}, id_));
  EXPECT_FALSE(leases_->grant({9999, 9}, id_));
  leases_->end({2, 2});
  const auto again = leases_->grant({9999, 9}, id_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->place, 1u);
}

TEST_F(LeaseTest, NothingIsTouchedOnceClosed) {
  const auto lease = leases_->grant({1, 1}, id_);
  leases_->close();
  EXPECT_FALSE(lasts(*lease));
  words_.words[lease->place] = 77;  // as if the memory were another's now
  words_.writing[lease->place] = 1;
  leases_->end({1, 1});
  leases_->end_all();
  EXPECT_FALSE(leases_->is_touched());
  EXPECT_FALSE(leases_->grant({2, 2}, id_));
  EXPECT_EQ(words_.words[lease->place], 77u);
}

// Or a write that was begun for one slot would be taken for one of another.
TEST_F(LeaseTest, APlaceIsFreeOnlyWhenNobodyWrites) {
  const auto lease = leases_->grant({1, 1}, id_);
  words_.writing[lease->place] = 2;
  EXPECT_TRUE(leases_->is_touched(id_));
  leases_->end({1, 1});
  EXPECT_TRUE(leases_->is_touched(id_));
  EXPECT_FALSE(leases_->is_touched(MemoryId{99}));
  EXPECT_NE(leases_->grant({2, 2}, id_)->place, lease->place);
  words_.writing[lease->place] = 0;
  EXPECT_FALSE(leases_->is_touched(id_));
  EXPECT_EQ(leases_->grant({3, 3}, id_)->place, lease->place);
}

TEST_F(LeaseTest, NoneIsGivenAfterTheEndOfAll) {
  const auto lease = leases_->grant({1, 1}, id_);
  words_.writing[lease->place] = 1;
  leases_->end_all();
  EXPECT_FALSE(lasts(*lease));
  EXPECT_TRUE(leases_->is_touched());
  EXPECT_FALSE(leases_->grant({2, 2}, id_));
  words_.writing[lease->place] = 0;
  EXPECT_FALSE(leases_->is_touched());
}

TEST_F(LeaseTest, EndsWithItsSlot) {
  const RemoteSlot slot = advertise();
  const auto lease = this->lease(slot);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lasts(*lease));
  EXPECT_FALSE(this->lease(slot)) << "it has one";
  ASSERT_TRUE(registry_.withdraw(slot.id).is_ok());
  EXPECT_FALSE(lasts(*lease));
}

TEST_F(LeaseTest, EndsBeforeARemovalThatWaits) {
  const auto lease = this->lease(advertise());
  const RegionUse use = registry_.use(id_).value();
  EXPECT_EQ(registry_.try_remove(id_).status().code(), Code::kExhausted);
  EXPECT_FALSE(lasts(*lease));
}

// A peer that writes is waited for, whether its slot ended now or was withdrawn before.
TEST_F(LeaseTest, ARemovalWaitsForWhoWrites) {
  for (const bool withdrawn : {false, true}) {
    const MemoryId id = id_;
    const RemoteSlot slot = advertise();
    const auto lease = this->lease(slot);
    words_.writing[lease->place] = 1;
    if (withdrawn) {
      ASSERT_TRUE(registry_.withdraw(slot.id).is_ok());
    }
    EXPECT_EQ(registry_.try_remove(id).status().code(), Code::kExhausted);
    const Status late = registry_.remove(id, Deadline::after(std::chrono::milliseconds(20))).status();
    EXPECT_EQ(late.code(), Code::kTimeout);
    EXPECT_NE(late.detail().find("a peer of this host uses them"), std::string::npos) << late.detail();
    EXPECT_FALSE(lasts(*lease));
    EXPECT_FALSE(registry_.is_advertised(slot.id));
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      words_.writing[lease->place] = 0;
    });
    const auto removed = registry_.remove(id, Deadline::after(std::chrono::seconds(20)));
    EXPECT_EQ(words_.writing[lease->place], 0u);
    ASSERT_TRUE(removed.is_ok()) << removed.status().to_string();
    EXPECT_TRUE(removed->has_value());
    writer.join();
    id_ = registry_.add(room_.data(), kBytes, MemoryType::kHost).value();
  }
}

TEST_F(LeaseTest, APeerThatIsGoneIsNotWaitedFor) {
  const auto lease = this->lease(advertise());
  words_.writing[lease->place] = 1;
  leases_->close();
  EXPECT_TRUE(registry_.remove(id_, Deadline::after(std::chrono::seconds(20))).is_ok());
}

TEST_F(LeaseTest, EndsWithItsConnection) {
  const auto lease = this->lease(advertise());
  registry_.forget(kConn);
  EXPECT_FALSE(lasts(*lease));
}

// Memory that has been advertised again behind work of the GPU is not to be read before that work is done.
TEST_F(LeaseTest, EndsBehindWorkOfTheGpu) {
  struct Mark final : GpuMark {
    Result<bool> reached() override { return true; }
  };
  const RemoteSlot slot = advertise();
  const auto lease = this->lease(slot);
  ASSERT_TRUE(registry_.advertise(kConn, id_, room_.data(), kBytes, SlotAccess::kReadWrite, std::make_unique<Mark>()).is_ok());
  EXPECT_FALSE(lasts(*lease));
  EXPECT_FALSE(this->lease(slot)) << "nobody has looked yet whether the work is done";
  ASSERT_TRUE(registry_.look_up(kConn, slot.id, false).value());
  EXPECT_TRUE(this->lease(slot));
}

TEST_F(LeaseTest, IsNotGivenForWhatThePeerMayNotUseAtAnyTime) {
  EXPECT_FALSE(lease(advertise(SlotAccess::kReadWrite, {.uses = 2})));
  EXPECT_FALSE(lease(advertise(SlotAccess::kReadWrite, {.at = Clock::steady().now() + std::chrono::hours(1)})));
  EXPECT_FALSE(lease(advertise(), kOtherConn));
  EXPECT_FALSE(lease(RemoteSlot{}));
  EXPECT_TRUE(lease(advertise(SlotAccess::kRead)));
  EXPECT_TRUE(lease(advertise(SlotAccess::kWrite)));
}

// Peers come and go, and a slot may stay.
TEST_F(LeaseTest, SeveralPeersHaveEachTheirOwn) {
  const RemoteSlot slot = advertise(SlotAccess::kRead, {}, kAnyConnection);
  LeaseWords others_words{}, third_words{};
  auto others = std::make_shared<SlotLeases>(others_words);
  const auto lease = this->lease(slot);
  ASSERT_TRUE(registry_.lease(kOtherConn, slot.id, others));
  const std::weak_ptr<SlotLeases> gone = others;
  others->close();
  others.reset();
  EXPECT_EQ(others_words.words[0], 0u);
  EXPECT_TRUE(lasts(*lease));
  ASSERT_TRUE(registry_.lease(kOtherConn, slot.id, std::make_shared<SlotLeases>(third_words)));
  EXPECT_TRUE(gone.expired()) << "the registry still knows a peer that has gone";
  EXPECT_NE(third_words.words[0], 0u);
  ASSERT_TRUE(registry_.withdraw(slot.id).is_ok());
  EXPECT_FALSE(lasts(*lease));
  EXPECT_EQ(third_words.words[0], 0u);
}

}  // namespace
}  // namespace tcpx
