// The ceilings that bench_endpoint measures within its own process, with host memory in place of a GPU's.
#include "programs/compare/copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/support/counting_memory_ops.h"
#include "tests/support/several_gpus.h"

namespace tcpx {
namespace {

using testing::CountingMemoryOps;
using testing::SeveralGpus;

constexpr uint64_t kKiB = 1024;
const RowPlan kPlan{.samples = 5, .duration = std::chrono::milliseconds(5)};

TEST(Copies, OfAThreadHaveARateForEachSize) {
  const auto copies = copies_of_a_thread({kKiB, 64 * kKiB}, kPlan);
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  ASSERT_EQ(copies->size(), 2u);
  for (const auto& [bytes, measured] : *copies) EXPECT_GT(measured.summary.median, 0) << bytes;
}

TEST(Copies, InOnePieceAndInRangesAreRight) {
  SeveralGpus gpus(2);
  gpus.let_reach(0, 1);
  for (const uint64_t range_bytes : {uint64_t{0}, kKiB}) {
    const auto copies = copies_between_gpus(gpus, {0, 1}, {kKiB, 7 * kKiB, 64 * kKiB}, range_bytes, kPlan);
    ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
    EXPECT_EQ(copies->size(), range_bytes == 0 ? 3u : 2u) << "one range has no order";
    for (const auto& [bytes, measured] : *copies) {
      EXPECT_GT(measured.summary.median, 0) << bytes;
      EXPECT_EQ(measured.mismatch, "") << bytes;
    }
  }
  EXPECT_EQ(copies_between_gpus(gpus, {1, 0}, {kKiB}, 0, kPlan).status().code(), Code::kUnsupported) << "no way from 1 to 0";
}

/// Its copies into that GPU leave out the last byte.
class Forgetful final : public CountingMemoryOps {
 public:
  using CountingMemoryOps::CountingMemoryOps;
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int) override {
    return std::unique_ptr<CopyLane>(std::make_unique<Lane>(*this));
  }

 private:
  class Lane final : public CopyLane {
   public:
    explicit Lane(MemoryOps& memory) : memory_(memory) {}
    Status copy(void* dst, const void* src, size_t bytes) override {
      const bool is_between = memory_.gpu_of(dst) && memory_.gpu_of(src);
      std::memcpy(dst, src, bytes - (is_between ? 1 : 0));
      return Status::ok();
    }

   private:
    MemoryOps& memory_;
  };
};

TEST(Copies, WithAWrongByteAreToldToBeWrong) {
  SeveralGpus gpus(1);
  Forgetful memory(gpus);
  const auto copies = copies_between_gpus(memory, {0, 0}, {kKiB}, 0, kPlan);
  ASSERT_TRUE(copies.is_ok()) << copies.status().to_string();
  EXPECT_EQ(copies->at(kKiB).mismatch, "wrong bytes in a range: 1");
}

}  // namespace
}  // namespace tcpx
