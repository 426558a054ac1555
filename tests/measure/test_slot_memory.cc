// The memory that test_tcpx_perf sends from and receives into.
#include "measure/slot_memory.h"

#include <gtest/gtest.h>

#include "measure/size_sweep.h"

namespace tcpx::perf {
namespace {

class SlotMemoryTest : public ::testing::TestWithParam<MemoryType> {
 protected:
  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
};

TEST_P(SlotMemoryTest, FindsEveryWrongByteOfASlotAndOnlyThose) {
  auto slots = SlotMemory::create(*memory_, GetParam(), 0, 3 * slot_stride(5000));
  ASSERT_TRUE(slots.is_ok()) << slots.status().to_string();
  EXPECT_EQ(slots->bytes(), 3 * slot_stride(5000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(slots->address()) % kPageBytes, 0u);
  const uint64_t stride = slot_stride(5000);
  for (uint64_t slot = 0; slot < 3; ++slot) ASSERT_TRUE(slots->fill(slot * stride, 5000, 10 + slot).is_ok());
  for (uint64_t slot = 0; slot < 3; ++slot) EXPECT_EQ(slots->check(slot * stride, 5000, 10 + slot).value().wrong, 0u);

  const auto lane = memory_->make_copy_lane(0);
  ASSERT_TRUE(lane.is_ok());
  for (const size_t at : {size_t{7}, size_t{4999}}) {
    std::byte byte{};
    ASSERT_TRUE((*lane)->copy(&byte, slots->address() + stride + at, 1).is_ok());
    byte ^= std::byte{1};
    ASSERT_TRUE((*lane)->copy(slots->address() + stride + at, &byte, 1).is_ok());
  }
  const auto wrong = slots->check(stride, 5000, 11);
  ASSERT_TRUE(wrong.is_ok());
  EXPECT_EQ(wrong->wrong, 2u);
  EXPECT_EQ(wrong->first_wrong, 7u);
  EXPECT_EQ(slots->check(0, 5000, 10).value().wrong, 0u);
  EXPECT_EQ(slots->check(2 * stride, 5000, 12).value().wrong, 0u);
  EXPECT_GT(slots->check(0, 5000, 11).value().wrong, 4000u) << "what an earlier round left must not pass";
}

INSTANTIATE_TEST_SUITE_P(Types, SlotMemoryTest, ::testing::Values(MemoryType::kHost, MemoryType::kCuda),
                         [](const auto& type) { return type.param == MemoryType::kHost ? "host" : "cuda"; });

}  // namespace
}  // namespace tcpx::perf
