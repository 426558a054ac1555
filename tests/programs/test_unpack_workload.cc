// The workloads of bench_unpack: they gather as they say, and their check sees a wrong byte.
#include "programs/unpack/unpack_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "measure/pattern.h"

namespace tcpx {
namespace {

constexpr uint64_t kPoolBytes = 4 << 20;
constexpr uint64_t kBytes = 1 << 20;

class UnpackWorkloadTest : public ::testing::TestWithParam<FragmentKind> {
 protected:
  void SetUp() override { fill_pattern(pool_, 5); }
  Result<UnpackWorkload> make(uint64_t bytes = kBytes) {
    return UnpackWorkload::create(GetParam(), bytes,
                                  {.pool = pool_.data(), .pool_bytes = pool_.size(), .destination = destination_.data()});
  }
  std::vector<std::byte> pool_ = std::vector<std::byte>(kPoolBytes);
  std::vector<std::byte> destination_ = std::vector<std::byte>(kBytes);
};

TEST_P(UnpackWorkloadTest, ItsBlocksTileTheDestinationAndItsCheckSeesEveryByte) {
  const Result<UnpackWorkload> workload = make();
  ASSERT_TRUE(workload.is_ok()) << workload.status().to_string();
  EXPECT_EQ(workload->check(pool_, destination_).code(), Code::kMismatch) << "nothing is gathered yet";
  uint64_t bytes = 0;
  for (const DescriptorBlock& block : workload->blocks()) {
    cpu_unpack(block);
    bytes += block.message_bytes();
  }
  EXPECT_EQ(bytes, kBytes);
  EXPECT_TRUE(workload->check(pool_, destination_).is_ok());
  for (const size_t at : {size_t{0}, size_t{kBytes / 2 + 7}, size_t{kBytes - 1}}) {
    destination_[at] ^= std::byte{0x10};
    const Status wrong = workload->check(pool_, destination_);
    EXPECT_EQ(wrong.code(), Code::kMismatch);
    EXPECT_NE(wrong.detail().find("byte " + std::to_string(at) + " "), std::string::npos) << wrong.detail();
    destination_[at] ^= std::byte{0x10};
  }
}

TEST_P(UnpackWorkloadTest, FragmentsAreOfItsKindAndPermuted) {
  const Result<UnpackWorkload> workload = make();
  ASSERT_TRUE(workload.is_ok());
  const std::span<const Fragment> fragments = workload->fragments();
  EXPECT_EQ(fragments.size(), (kBytes + GetParam().bytes - 1) / GetParam().bytes);
  std::set<uint32_t> alignments;
  for (const Fragment& fragment : fragments.first(fragments.size() - 1)) {
    EXPECT_EQ(fragment.len, GetParam().bytes);
    alignments.insert(fragment.src_off % 16);
  }
  switch (GetParam().source) {
    case FragmentKind::Source::kAligned:
      EXPECT_EQ(alignments, std::set<uint32_t>{0});
      break;
    case FragmentKind::Source::kOff3:
      EXPECT_EQ(alignments, std::set<uint32_t>{3});
      break;
    case FragmentKind::Source::kMixed:
      EXPECT_EQ(alignments.size(), 16u);
      break;
  }
  const auto by_source = [](const Fragment& a, const Fragment& b) { return a.src_off < b.src_off; };
  EXPECT_FALSE(std::is_sorted(fragments.begin(), fragments.end(), by_source));
}

TEST_P(UnpackWorkloadTest, APoolWithoutASinglePageIsRefused) {
  const auto refused =
      UnpackWorkload::create(GetParam(), kBytes, {.pool = pool_.data(), .pool_bytes = 4096, .destination = destination_.data()});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnpackWorkloadTest,
                         ::testing::Values(FragmentKind{"pages", 4096, FragmentKind::Source::kAligned},
                                           FragmentKind{"segments", 1448, FragmentKind::Source::kMixed},
                                           FragmentKind{"off", 4096, FragmentKind::Source::kOff3}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace tcpx
