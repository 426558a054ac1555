// Operations of many ranges, which move in parts and are one operation all the same.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/text.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/same_bytes.h"

namespace tcpx {
namespace {

using testing::few_setups, testing::GuardedBuffer;

/// Enough blocks for four parts, none of which is a neighbour of the one before it, with gaps between them at the writer.
class EndpointManyRanges : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kBlock = 8192, kBlocks = 4096, kGap = 64, kStride = 1009;

  void prepare() override {
    make_pair();
    begin();
  }
  void begin() {
    memory_id_ = reg(a_, near_.span());
    slot_ = b_->advertise(range(b_, far_.span())).value();
    for (size_t i = 0; i < kBlocks; ++i) {
      const size_t block = i * kStride % kBlocks;
      ranges_.push_back({memory_id_, near_.data() + block * (kBlock + kGap), kBlock});
      remote_.push_back({slot_, block * kBlock});
    }
    fill_pattern(near_.span(), 5);
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }
  size_t blocks_equal() {
    size_t equal = 0;
    for (size_t i = 0; i < kBlocks; ++i)
      equal += std::memcmp(near_.data() + i * (kBlock + kGap), far_.data() + i * kBlock, kBlock) == 0 ? 1 : 0;
    return equal;
  }
  ConnectionStats stats() { return a_->stats().connections.at(0); }

  GuardedBuffer near_{kBlocks * (kBlock + kGap)}, far_{kBlocks * kBlock};
  MemoryId memory_id_{};
  RemoteSlot slot_{};
  std::vector<LocalRange> ranges_;
  std::vector<RemoteRange> remote_;
};
TCPX_OVER_SETUPS(EndpointManyRanges, few_setups());

TEST_P(EndpointManyRanges, AListIsOneOperation) {
  const NotifyMsg message{.name = "blocks", .msg = "all"};
  const uint64_t before = stats().operations_done;
  const auto id = a_->write_async(a_.conn, ranges_, remote_, {.notify = &message});
  const std::vector<NotifyMsg> told = b_->wait_notifs(testing::kTestDeadline);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].msg, "all");
  EXPECT_EQ(blocks_equal(), kBlocks) << "when the notification is there, so is every byte";
  ASSERT_TRUE(done(a_, id));
  EXPECT_EQ(stats().operations_done, before + 1);
  EXPECT_EQ(stats().bytes_sent, kBlocks * kBlock);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
  EXPECT_TRUE(near_.guards_intact() && far_.guards_intact());

  near_.clear();
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, ranges_, remote_, {.notify = &message})));
  EXPECT_EQ(blocks_equal(), kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    const auto gap = near_.span().subspan(i * (kBlock + kGap) + kBlock, kGap);
    ASSERT_TRUE(testing::all_are(gap, std::byte{0xee})) << "block " << i;
  }
  EXPECT_EQ(b_->wait_notifs(testing::kTestDeadline).size(), 1u);
  EXPECT_EQ(stats().operations_done, before + 2);
}

TEST_P(EndpointManyRanges, APlanIsOneOperation) {
  const TransferPlan plan = a_->prepare(ranges_, remote_).value();
  std::vector<uint32_t> indices(kBlocks - 1);
  std::iota(indices.begin(), indices.end(), uint32_t{0});
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, plan, indices)));
  EXPECT_EQ(blocks_equal(), kBlocks - 1);
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, plan)));
  EXPECT_EQ(blocks_equal(), kBlocks);
  EXPECT_EQ(stats().operations_done, 2u);
  indices.back() = kBlocks;
  const Status refused = a_->write_async(a_.conn, plan, indices).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.detail().find(concat("(range ", kBlocks - 2, ")")), std::string::npos) << refused.to_string();
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
}

TEST_P(EndpointManyRanges, ARangeThatIsNotOursStopsAllOfThem) {
  ranges_.back().bytes = near_.span().size();
  const NotifyMsg message{.name = "blocks", .msg = "all"};
  const auto id = a_->write_async(a_.conn, ranges_, remote_, {.notify = &message});
  EXPECT_EQ(id.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
  EXPECT_TRUE(far_.is_clear());
}

TEST_P(EndpointManyRanges, ARefusedPartFailsTheOperation) {
  const RemoteSlot gone = b_->advertise(range(b_, far_.span()), {.access = SlotAccess::kWrite}).value();
  ASSERT_TRUE(b_->withdraw(gone).is_ok());
  for (size_t i = kBlocks / 2; i < kBlocks; ++i) remote_[i].slot = gone;
  const NotifyMsg message{.name = "blocks", .msg = "all"};
  const auto id = a_->write_async(a_.conn, ranges_, remote_, {.notify = &message});
  ASSERT_TRUE(id.is_ok());
  EXPECT_EQ(a_->wait(*id).code(), Code::kNotFound);
  EXPECT_EQ(stats().operations_failed, 1u);
  EXPECT_EQ(stats().operations_done, 0u);
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, std::span(ranges_).first(1), std::span(remote_).first(1))));
  EXPECT_TRUE(b_->get_notifs().empty());
}

TEST_P(EndpointManyRanges, AreOneUseOfASlot) {
  const RemoteSlot once = b_->advertise(range(b_, far_.span()), {.uses = 1}).value();
  for (RemoteRange& range : remote_) range.slot = once;
  const TransferPlan plan = a_->prepare(ranges_, remote_).value();
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, ranges_, remote_)));
  EXPECT_EQ(blocks_equal(), kBlocks);
  EXPECT_FALSE(b_->is_advertised(once));
  EXPECT_TRUE(fails(a_, a_->write_async(a_.conn, plan), Code::kNotFound));
  const RemoteSlot again = b_->advertise(range(b_, far_.span()), {.uses = 1}).value();
  for (RemoteRange& range : remote_) range.slot = again;
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, a_->prepare(ranges_, remote_).value())));
}

/// No room for parts.
class EndpointOfFewOperations : public EndpointManyRanges {
 protected:
  void prepare() override {
    make_pair({.max_operations = 2});
    begin();
  }
};
TCPX_OVER_SETUPS(EndpointOfFewOperations, few_setups());

TEST_P(EndpointOfFewOperations, MovesAllInOne) {
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, ranges_, remote_)));
  EXPECT_EQ(blocks_equal(), kBlocks);
}

}  // namespace
}  // namespace tcpx
