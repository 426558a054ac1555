// Test data that kernels fill and check, against the pattern of the host. Skipped without a GPU.
#include <gtest/gtest.h>

#include <vector>

#include "device/gpu_pattern.h"
#include "device/gpu_presence.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::must;

TEST(GpuPatternWithoutAGpu, SaysWhatIsMissing) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  EXPECT_EQ(GpuPattern::create(0, *memory).status().code(), Code::kUnsupported);
}

class GpuPatternTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    pattern_ = must(GpuPattern::create(0, *memory_));
    lane_ = memory_->make_copy_lane(0).value();
    buffer_ = memory_->allocate_device(0, kBytes).value();
  }
  std::vector<std::byte> read(size_t begin, size_t bytes) {
    std::vector<std::byte> data(bytes);
    EXPECT_TRUE(lane_->copy(data.data(), buffer_.device() + begin, bytes).is_ok());
    return data;
  }
  void write(size_t at, std::byte value) { EXPECT_TRUE(lane_->copy(buffer_.device() + at, &value, 1).is_ok()); }

  static constexpr size_t kBytes = 8u << 20;
  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
  std::unique_ptr<GpuPattern> pattern_;
  std::unique_ptr<CopyLane> lane_;
  MemoryBuffer buffer_;
};

TEST_F(GpuPatternTest, FillsTheBytesOfTheHostAndNoOthers) {
  for (const size_t begin : {8u, 9u, 13u, 16u}) {
    for (const size_t bytes : {1u, 5u, 7u, 8u, 9u, 31u, 4096u, 100003u}) {
      for (const uint64_t offset : {0u, 3u, 8u, 4097u}) {
        const std::vector<std::byte> before(begin + bytes + 64, std::byte{0xEE});
        ASSERT_TRUE(lane_->copy(buffer_.device(), before.data(), before.size()).is_ok());
        ASSERT_TRUE(pattern_->fill(buffer_.device() + begin, bytes, 5, offset).is_ok());
        std::vector<std::byte> expected = before;
        fill_pattern(std::span(expected).subspan(begin, bytes), 5, offset);
        ASSERT_EQ(read(0, before.size()), expected) << begin << ' ' << bytes << ' ' << offset;
      }
    }
  }
}

TEST_F(GpuPatternTest, CountsWrongBytesAsTheHostDoes) {
  for (const size_t begin : {0u, 3u}) {
    const size_t bytes = kBytes - 16;
    ASSERT_TRUE(pattern_->fill(buffer_.device() + begin, bytes, 7, 1).is_ok());
    const auto right = must(pattern_->check(buffer_.device() + begin, bytes, 7, 1));
    EXPECT_EQ(right.wrong, 0u);
    for (const size_t at : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, bytes / 2, bytes - 1}) {
      write(begin + at, read(begin + at, 1)[0] ^ std::byte{0x10});
    }
    const auto check = pattern_->check(buffer_.device() + begin, bytes, 7, 1);
    ASSERT_TRUE(check.is_ok());
    EXPECT_EQ(check->wrong, 6u);
    EXPECT_EQ(check->first_wrong, 0u);
    const auto later = must(pattern_->check(buffer_.device() + begin + 2, bytes - 2, 7, 3));
    EXPECT_EQ(later.wrong, 4u);
    EXPECT_EQ(later.first_wrong, 4094u);
    // With another seed nearly every byte is wrong, and both checks agree on the number.
    const auto other = must(pattern_->check(buffer_.device() + begin, 100001, 8, 1));
    EXPECT_EQ(other.wrong, check_pattern(read(begin, 100001), 8, 1).wrong);
  }
}

TEST_F(GpuPatternTest, TellsFreeMemory) {
  const auto before = must(free_gpu_bytes(0));
  const auto taken = must(memory_->allocate_device(0, 256u << 20));
  EXPECT_LT(must(free_gpu_bytes(0)), before);
}

}  // namespace
}  // namespace tcpx
