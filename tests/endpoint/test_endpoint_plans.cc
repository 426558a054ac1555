// Plans: ranges that were checked once and are moved many times, whole or by index, in as many rounds as it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/same_bytes.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;

/// Blocks of both ends, each in an order of its own.
class EndpointPlans : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kBlock = 24, kBlocks = 40000;  // of which no two are neighbours at both ends

  void prepare() override {
    make_pair();
    std::iota(order_.begin(), order_.end(), uint32_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(7));
    memory_id_ = reg(a_, near_.span());
    slot_ = b_->advertise(range(b_, far_.span())).value();
    for (size_t i = 0; i < kBlocks; ++i) {
      ranges_.push_back({memory_id_, near_.data() + i * kBlock, kBlock});
      remote_.push_back({slot_, order_[i] * kBlock});
    }
    plan_ = a_->prepare(ranges_, remote_).value();
  }
  /// A transfer that was given up may still arrive: the endpoints go before the memory.
  void TearDown() override {
    a_.reset();
    b_.reset();
  }
  std::span<std::byte> near_block(size_t i) { return near_.span().subspan(i * kBlock, kBlock); }
  std::span<std::byte> far_block(size_t i) { return far_.span().subspan(order_[i] * kBlock, kBlock); }
  bool is_clear(std::span<const std::byte> bytes) { return testing::all_are(bytes, std::byte{0xee}); }
  /// Blocks of which `moved` is true are equal at both ends, the others of `target` are untouched.
  template <class Moved>
  ::testing::AssertionResult moved(bool to_far, Moved is_moved) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const auto from = to_far ? near_block(i) : far_block(i), to = to_far ? far_block(i) : near_block(i);
      if (is_moved(i) ? !testing::same(from, to) : !is_clear(to)) return ::testing::AssertionFailure() << "block " << i;
    }
    if (near_.guards_intact() && far_.guards_intact()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "memory beside the blocks";
  }
  static bool all(size_t /*block*/) { return true; }

  std::vector<uint32_t> order_ = std::vector<uint32_t>(kBlocks);
  GuardedBuffer near_{kBlocks * kBlock}, far_{kBlocks * kBlock};
  MemoryId memory_id_{};
  RemoteSlot slot_{};
  std::vector<LocalRange> ranges_;
  std::vector<RemoteRange> remote_;
  TransferPlan plan_;
};
TCPX_OVER_SETUPS(EndpointPlans, testing::few_setups());

// More ranges than a peer is told of at once, and one end, one notification behind the last byte.
TEST_P(EndpointPlans, MovesAllOfItAsOneOperation) {
  const NotifyMsg message{.name = "layer", .msg = "whole"};
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    fill_pattern(near_.span(), static_cast<uint64_t>(round));
    far_.clear();
    const uint64_t before = a_->stats().connections.at(0).operations_done;
    ASSERT_TRUE(done(a_, a_->write_async(a_.conn, plan_, {.notify = &message})));
    ASSERT_TRUE(moved(true, all));
    const std::vector<NotifyMsg> told = b_->wait_notifs(testing::kTestDeadline);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].msg, "whole");
    near_.clear();
    ASSERT_TRUE(done(a_, a_->read_async(a_.conn, plan_, {.notify = &message})));
    ASSERT_TRUE(moved(false, all));
    EXPECT_EQ(b_->wait_notifs(testing::kTestDeadline).size(), 1u);
    EXPECT_EQ(a_->stats().connections.at(0).operations_done, before + 2);
  }
  EXPECT_TRUE(b_->get_notifs().empty());
  const ConnectionStats stats = a_->stats().connections.at(0);
  EXPECT_EQ(stats.bytes_sent, 3 * kBlocks * kBlock);
  EXPECT_EQ(stats.bytes_received, 3 * kBlocks * kBlock);
}

TEST_P(EndpointPlans, ANotificationComesBehindTheLastByte) {
  const NotifyMsg message{.name = "layer", .msg = "whole"};
  fill_pattern(near_.span(), 1);
  const auto written = a_->write_async(a_.conn, plan_, {.notify = &message});
  ASSERT_EQ(b_->wait_notifs(testing::kTestDeadline).size(), 1u);
  EXPECT_TRUE(moved(true, all));
  EXPECT_TRUE(done(a_, written));
}

TEST_P(EndpointPlans, MovesWhatIndicesName) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < kBlocks; i += 2) indices.push_back(i);
  std::shuffle(indices.begin(), indices.end(), std::mt19937_64(8));
  fill_pattern(near_.span(), 1);
  far_.clear();
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, plan_, indices)));
  EXPECT_TRUE(moved(true, [](size_t block) { return block % 2 == 0; }));
  fill_pattern(far_.span(), 2);
  near_.clear();
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, plan_, std::span(indices).first(3))));
  EXPECT_TRUE(moved(false, [&](size_t block) { return std::count(indices.begin(), indices.begin() + 3, block) > 0; }));
  near_.clear();
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, plan_, std::span<const uint32_t>())));
  EXPECT_TRUE(near_.is_clear());
}

// The same pairs, of two block tables.
TEST_P(EndpointPlans, MovesBlocksInAnyPairs) {
  const TransferPlan blocks = a_->prepare_blocks({memory_id_, near_.data(), kBlocks * kBlock}, {slot_, 0}, kBlock).value();
  EXPECT_EQ(blocks.size(), kBlocks);
  std::vector<uint32_t> here(kBlocks);
  std::iota(here.begin(), here.end(), uint32_t{0});
  fill_pattern(near_.span(), 3);
  far_.clear();
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, blocks, here, order_)));
  EXPECT_TRUE(moved(true, all));
  near_.clear();
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, blocks, std::span(here).first(100), std::span(order_).first(100))));
  EXPECT_TRUE(moved(false, [](size_t block) { return block < 100; }));
  EXPECT_EQ(a_->write_async(a_.conn, blocks, here, std::span(order_).first(1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->write_async(a_.conn, plan_, here, order_).status().code(), Code::kInvalidArgument) << "no plan of blocks";
}

TEST_P(EndpointPlans, RefusesWhatIsNotItsOwn) {
  const std::vector<uint32_t> beyond = {0, kBlocks};
  EXPECT_EQ(a_->write_async(a_.conn, plan_, beyond).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(a_->write_async(a_.conn, TransferPlan()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(b_->write_async(b_.conn, plan_).status().code(), Code::kInvalidArgument) << "another endpoint's";
  EXPECT_EQ(a_->write_async(ConnId{99}, plan_).status().code(), Code::kNotFound);
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
  ASSERT_TRUE(a_->deregister(memory_id_).is_ok()) << "a plan keeps nothing registered";
  EXPECT_EQ(a_->write_async(a_.conn, plan_).status().code(), Code::kNotFound);
}

TEST_P(EndpointPlans, EndsWithTheFirstRoundThatIsRefused) {
  const NotifyMsg message{.name = "layer", .msg = "never"};
  GuardedBuffer other(kBlock);
  const MemoryId withdrawn = reg(b_, other.span());
  remote_.back() = {b_->advertise({withdrawn, other.data(), kBlock}).value(), 0};
  ASSERT_TRUE(b_->deregister(withdrawn).is_ok());
  fill_pattern(near_.span(), 1);
  EXPECT_TRUE(fails(a_, a_->write_async(a_.conn, ranges_, remote_, {.notify = &message}), Code::kNotFound));
  EXPECT_TRUE(fails(a_, a_->read_async(a_.conn, ranges_, remote_, {.notify = &message}), Code::kNotFound));
  ASSERT_TRUE(a_->notify(a_.conn, {.name = "next", .msg = ""}).is_ok());
  const auto told = b_->wait_notifs(testing::kTestDeadline);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].name, "next");
  EXPECT_TRUE(done(a_, a_->write_async(a_.conn, plan_))) << "the connection goes on";
}

// Wherever it is by then: no byte moves any more once it has ended.
TEST_P(EndpointPlans, ACancelEndsItBetweenRoundsToo) {
  std::vector<uint32_t> indices;
  for (int times = 0; times < 20; ++times) indices.insert(indices.end(), order_.begin(), order_.end());
  const auto id = a_->write_async(a_.conn, plan_, indices);
  ASSERT_TRUE(id.is_ok());
  ASSERT_TRUE(a_->cancel(*id).is_ok());
  EXPECT_TRUE(fails(a_, id, Code::kCancelled));
  ASSERT_TRUE(a_->deregister(memory_id_).is_ok());
  EXPECT_EQ(a_->stats().connections.at(0).operations_failed, 1u);
}

TEST_P(EndpointPlans, AClosedConnectionEndsItBetweenRoundsToo) {
  std::vector<uint32_t> indices;
  for (int times = 0; times < 20; ++times) indices.insert(indices.end(), order_.begin(), order_.end());
  const auto id = a_->read_async(a_.conn, plan_, indices);
  ASSERT_TRUE(id.is_ok());
  ASSERT_TRUE(a_->remove_connection(a_.conn).is_ok());
  EXPECT_TRUE(fails(a_, id, Code::kCancelled));
}

}  // namespace
}  // namespace tcpx
