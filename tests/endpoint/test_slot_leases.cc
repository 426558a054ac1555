// Leases, and what ends them in a MemoryRegistry: each is a word that the peer compares after it has copied.
#include "base/slot_leases.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <set>

#include "base/memory_registry.h"

namespace tcpx {
namespace {

constexpr ConnId kConn{3}, kOtherConn{4};

class LeaseTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;

  std::optional<SlotLeases::Lease> lease(const RemoteSlot& slot, ConnId conn = kConn) {
    return registry_.lease(conn, slot.id, leases_);
  }
  RemoteSlot advertise(SlotAccess access = SlotAccess::kReadWrite, SlotEnd end = {}, ConnId conn = kConn) {
    return registry_.advertise(conn, id_, room_.data(), kBytes, access, nullptr, nullptr, end).value();
  }
  bool lasts(const SlotLeases::Lease& lease) const { return words_[lease.place] == lease.word; }

  std::array<std::byte, kBytes> room_{};
  std::array<std::atomic<uint64_t>, 3> words_{};
  std::shared_ptr<SlotLeases> leases_ = std::make_shared<SlotLeases>(words_);
  MemoryRegistry registry_{1};
  MemoryId id_ = registry_.add(room_.data(), kBytes, MemoryType::kHost).value();
};

TEST_F(LeaseTest, AWordIsNeverGivenTwice) {
  std::set<uint64_t> words;
  for (uint64_t i = 1; i <= 10; ++i) {
    const SlotId slot{i, i};
    const auto lease = leases_->grant(slot);
    ASSERT_TRUE(lease);
    EXPECT_TRUE(lasts(*lease));
    EXPECT_NE(lease->word, 0u);
    EXPECT_TRUE(words.insert(lease->word).second);
    EXPECT_FALSE(leases_->grant(slot)) << "it has one";
    leases_->end(slot);
    EXPECT_FALSE(lasts(*lease));
    EXPECT_FALSE(leases_->has(slot));
  }
}

TEST_F(LeaseTest, ThereAreNoMoreThanWords) {
  for (uint64_t i = 1; i <= words_.size(); ++i) EXPECT_TRUE(leases_->grant({i, i}));
  EXPECT_FALSE(leases_->grant({9, 9}));
  leases_->end({2, 2});
  const auto again = leases_->grant({9, 9});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->place, 1u);
}

TEST_F(LeaseTest, NothingIsTouchedOnceClosed) {
  const auto lease = leases_->grant({1, 1});
  leases_->close();
  EXPECT_FALSE(lasts(*lease));
  words_[lease->place] = 77;  // as if the memory were another's now
  leases_->end({1, 1});
  EXPECT_FALSE(leases_->grant({2, 2}));
  EXPECT_EQ(words_[lease->place], 77u);
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

TEST_F(LeaseTest, IsNotGivenForWhatThePeerMayNotReadAtAnyTime) {
  EXPECT_FALSE(lease(advertise(SlotAccess::kWrite)));
  EXPECT_FALSE(lease(advertise(SlotAccess::kReadWrite, {.uses = 2})));
  EXPECT_FALSE(lease(advertise(SlotAccess::kReadWrite, {.at = Clock::steady().now() + std::chrono::hours(1)})));
  EXPECT_FALSE(lease(advertise(), kOtherConn));
  EXPECT_FALSE(lease(RemoteSlot{}));
  EXPECT_TRUE(lease(advertise(SlotAccess::kRead)));
}

// Peers come and go, and a slot may stay.
TEST_F(LeaseTest, SeveralPeersHaveEachTheirOwn) {
  const RemoteSlot slot = advertise(SlotAccess::kRead, {}, kAnyConnection);
  std::array<std::atomic<uint64_t>, 1> others_words{};
  auto others = std::make_shared<SlotLeases>(others_words);
  const auto lease = this->lease(slot);
  ASSERT_TRUE(registry_.lease(kOtherConn, slot.id, others));
  const std::weak_ptr<SlotLeases> gone = others;
  others->close();
  others.reset();
  EXPECT_EQ(others_words[0], 0u);
  EXPECT_TRUE(lasts(*lease));
  std::array<std::atomic<uint64_t>, 1> third_words{};
  ASSERT_TRUE(registry_.lease(kOtherConn, slot.id, std::make_shared<SlotLeases>(third_words)));
  EXPECT_TRUE(gone.expired()) << "the registry still knows a peer that has gone";
  EXPECT_NE(third_words[0], 0u);
  ASSERT_TRUE(registry_.withdraw(slot.id).is_ok());
  EXPECT_FALSE(lasts(*lease));
  EXPECT_EQ(third_words[0], 0u);
}

}  // namespace
}  // namespace tcpx
