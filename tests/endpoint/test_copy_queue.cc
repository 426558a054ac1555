// Short copies of one link: they begin as slots come free, end in order, and give every slot back.
#include "endpoint/copy_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/slow_copier.h"

namespace tcpx::testing {
namespace {

constexpr size_t kSlots = 128;

class CopyQueueTest : public ::testing::Test {
 protected:
  std::vector<HeldRange> range(size_t bytes) {
    std::vector<HeldRange> ranges;
    ranges.push_back({registry_.use(region_, memory_.data(), bytes).value(), memory_.data(), bytes});
    return ranges;
  }
  bool done() { return queue_.front_done().value(); }

  std::vector<std::byte> memory_ = std::vector<std::byte>(4096, std::byte{7});
  MemoryRegistry registry_{1};
  const MemoryId region_ = registry_.add(memory_.data(), memory_.size(), MemoryType::kCuda).value();
  SlowCopier copier_;
  std::unique_ptr<MemoryOps> ops_ = make_host_memory_ops();
  InlineCopies copies_{*ops_, copier_, 0};
  CopyQueue<int> queue_{copies_};
};

TEST_F(CopyQueueTest, ReadsAndWritesEndInOrder) {
  const auto from = range(100), to = range(10);
  copier_.hold();
  queue_.push_read(1, from);
  queue_.push_write(2, to, std::vector<std::byte>(10, std::byte{9}));
  ASSERT_TRUE(queue_.start().is_ok());
  EXPECT_EQ(copier_.under_way(), 2u);
  EXPECT_FALSE(done());
  copier_.end_one();
  ASSERT_TRUE(done());
  EXPECT_EQ(queue_.front(), 1);
  EXPECT_FALSE(queue_.front_writes());
  EXPECT_TRUE(std::ranges::all_of(queue_.front_bytes(), [](std::byte byte) { return byte == std::byte{7}; }));
  EXPECT_EQ(queue_.front_bytes().size(), 100u);
  queue_.pop();
  EXPECT_EQ(queue_.front(), 2);
  EXPECT_TRUE(queue_.front_writes());
  EXPECT_FALSE(done());
  copier_.end_one();
  ASSERT_TRUE(done());
  queue_.pop();
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(memory_[9], std::byte{9});
  EXPECT_EQ(memory_[10], std::byte{7});
}

TEST_F(CopyQueueTest, ThoseWithoutASlotWaitAndBeginAsOneComesFree) {
  const auto from = range(8);
  copier_.hold();
  for (size_t i = 0; i < kSlots + 3; ++i) queue_.push_read(static_cast<int>(i), from);
  ASSERT_TRUE(queue_.start().is_ok());
  EXPECT_EQ(copier_.submitted(), kSlots);
  ASSERT_TRUE(queue_.start().is_ok());
  EXPECT_EQ(copier_.submitted(), kSlots);
  copier_.end_one();
  queue_.pop();
  ASSERT_TRUE(queue_.start().is_ok());
  EXPECT_EQ(copier_.submitted(), kSlots + 1);
  copier_.release();
  for (int next = 1; !queue_.empty(); ++next) {
    ASSERT_TRUE(queue_.start().is_ok());
    ASSERT_TRUE(done());
    EXPECT_EQ(queue_.front(), next);
    queue_.pop();
  }
  EXPECT_EQ(copier_.submitted(), kSlots + 3);
}

TEST_F(CopyQueueTest, WhatHasNotBegunIsDroppedAndKeepsNoSlot) {
  const auto from = range(8);
  copier_.fail_submit = copy_failure();
  queue_.push_read(1, from);
  EXPECT_EQ(queue_.start().code(), Code::kCuda);
  EXPECT_FALSE(queue_.front_started());
  EXPECT_FALSE(done());
  queue_.pop();
  EXPECT_TRUE(queue_.empty());
  copier_.fail_submit = Status::ok();
  for (size_t i = 0; i < kSlots; ++i) queue_.push_read(static_cast<int>(i), from);
  ASSERT_TRUE(queue_.start().is_ok());
  EXPECT_EQ(copier_.submitted(), kSlots) << "all slots are there";
}

TEST_F(CopyQueueTest, ACopyThatFailsSaysSo) {
  const auto from = range(8);
  queue_.push_read(5, from);
  ASSERT_TRUE(queue_.start().is_ok());
  copier_.fail_query = copy_failure();
  EXPECT_EQ(queue_.front_done().status().code(), Code::kCuda);
  EXPECT_TRUE(queue_.any_of([](int tag) { return tag == 5; }));
  EXPECT_FALSE(queue_.any_of([](int tag) { return tag == 6; }));
  queue_.pop();
}

}  // namespace
}  // namespace tcpx::testing
