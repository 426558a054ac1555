// The memory that programs send from and receive into.
#include "measure/test_memory.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

constexpr uint64_t kStride = 2 * kPageBytes;

class TestMemoryTest : public ::testing::TestWithParam<MemoryType> {
 protected:
  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
};

TEST_P(TestMemoryTest, FindsEveryWrongByteOfASlotAndOnlyThose) {
  auto slots = TestMemory::create(*memory_, GetParam(), 0, 3 * kStride);
  ASSERT_TRUE(slots.is_ok()) << slots.status().to_string();
  EXPECT_EQ(slots->size(), 3 * kStride);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(slots->data()) % kPageBytes, 0u);
  for (uint64_t slot = 0; slot < 3; ++slot) ASSERT_TRUE(slots->fill(slot * kStride, 5000, 10 + slot).is_ok());
  for (uint64_t slot = 0; slot < 3; ++slot) EXPECT_EQ(slots->check(slot * kStride, 5000, 10 + slot).value().wrong, 0u);

  const auto lane = memory_->make_copy_lane(0);
  ASSERT_TRUE(lane.is_ok());
  for (const size_t at : {size_t{7}, size_t{4999}}) {
    std::byte byte{};
    ASSERT_TRUE((*lane)->copy(&byte, slots->data() + kStride + at, 1).is_ok());
    byte ^= std::byte{1};
    ASSERT_TRUE((*lane)->copy(slots->data() + kStride + at, &byte, 1).is_ok());
  }
  const auto wrong = slots->check(kStride, 5000, 11);
  ASSERT_TRUE(wrong.is_ok());
  EXPECT_EQ(wrong->wrong, 2u);
  EXPECT_EQ(wrong->first_wrong, 7u);
  EXPECT_EQ(slots->check(0, 5000, 10).value().wrong, 0u);
  EXPECT_EQ(slots->check(2 * kStride, 5000, 12).value().wrong, 0u);
  EXPECT_GT(slots->check(0, 5000, 11).value().wrong, 4000u) << "what an earlier round left must not pass";
}

TEST_P(TestMemoryTest, SaysWhatIsWrongAndBlanksOnlyWhatItIsTold) {
  auto memory = TestMemory::create(*memory_, GetParam(), 0, 1);
  ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
  EXPECT_EQ(memory->size(), kPageBytes);
  ASSERT_TRUE(memory->fill(0, kPageBytes, 7).is_ok());
  EXPECT_TRUE(memory->verify(100, 300, 7, 100).is_ok()) << "a part of the stream";
  ASSERT_TRUE(memory->blank(200, 50).is_ok());
  EXPECT_TRUE(memory->verify(0, 200, 7).is_ok());
  EXPECT_TRUE(memory->verify(250, 50, 7, 250).is_ok());
  const Status wrong = memory->verify(100, 300, 7, 100);
  EXPECT_EQ(wrong.code(), Code::kMismatch);
  EXPECT_NE(wrong.detail().find("of 300 bytes differ, the first at 100"), std::string::npos) << wrong.detail();
  EXPECT_TRUE(memory->verify(0, 0, 8).is_ok());
  EXPECT_EQ(TestMemory().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Types, TestMemoryTest, ::testing::Values(MemoryType::kHost, MemoryType::kCuda),
                         [](const auto& type) { return type.param == MemoryType::kHost ? "host" : "cuda"; });

}  // namespace
}  // namespace tcpx
