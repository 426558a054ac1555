// Unpackers on memory that needs no GPU, and the choice of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/environment.h"
#include "device/unpacker_factory.h"
#include "tests/support/count_allocations.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/ok.h"
#include "tests/support/unpack_cases.h"

namespace tcpx::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Host, UnpackCases,
    ::testing::Values(UnpackSetup{"host", UnpackKind::kHost, make_host_memory_ops, Place::kDevice, Place::kDevice, false},
                      UnpackSetup{"host_hidden_destination", UnpackKind::kHost, make_hidden_memory_ops, Place::kMapped, Place::kDevice,
                                  false},
                      UnpackSetup{"host_hidden_pool", UnpackKind::kHost, make_hidden_memory_ops, Place::kDevice, Place::kPageable, false},
                      UnpackSetup{"host_hidden_both", UnpackKind::kHost, make_hidden_memory_ops, Place::kDevice, Place::kDevice, false}),
    name_of_setup);

TEST(UnpackerFactory, AutoIsTheHostWithoutAGpu) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  const auto unpacker = must(make_unpacker(UnpackKind::kAuto, 0, *memory));
  EXPECT_STREQ(unpacker->name(), "host");
}

TEST(UnpackerFactory, RefusesWhatNeedsAGpuAndSaysWhatToUse) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  for (const UnpackKind kind : {UnpackKind::kKernel, UnpackKind::kD2d}) {
    const auto unpacker = make_unpacker(kind, 0, *memory);
    ASSERT_FALSE(unpacker.is_ok());
    EXPECT_EQ(unpacker.status().code(), Code::kUnsupported);
    EXPECT_NE(unpacker.status().detail().find("UCCL_TCPX_UNPACK_IMPL=host"), std::string::npos) << unpacker.status().to_string();
  }
}

TEST(UnpackerFactory, RefusesADeviceThatIsNotThere) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  EXPECT_EQ(make_unpacker(UnpackKind::kHost, 1, *memory).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_unpacker(UnpackKind::kHost, -1, *memory).status().code(), Code::kInvalidArgument);
}

TEST(UnpackerFactory, RefusesToMoveNothingAndSaysWhoDoes) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  const Status status = make_unpacker(UnpackKind::kNone, 0, *memory).status();
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.detail().find("UCCL_TCPX_UNPACK_IMPL=none"), std::string::npos) << status.to_string();
  EXPECT_NE(status.detail().find("test_tcpx_perf"), std::string::npos) << status.to_string();
}

TEST(NoUnpacker, IsDoneAtOnceAndTouchesNothing) {
  std::vector<std::byte> pool(kPageBytes, std::byte{1}), destination(kPageBytes, std::byte{2});
  DescriptorBlock block;
  const Fragment whole{0, kPageBytes, 0};
  ASSERT_TRUE(block.build({&whole, 1}, kPageBytes, {pool.data(), pool.size(), destination.data(), destination.size()}).is_ok());
  const std::unique_ptr<Unpacker> unpacker = make_no_unpacker();
  const auto first = unpacker->submit(block), second = unpacker->submit(block);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_LT(*first, *second);
  EXPECT_TRUE(unpacker->query(*first).value());
  EXPECT_EQ(destination, std::vector<std::byte>(kPageBytes, std::byte{2}));
  EXPECT_EQ(unpacker->submit(std::span<const DescriptorBlock>()).status().code(), Code::kInvalidArgument);
}

TEST(UnpackerFactory, KindsAreNumberedLikeTheChoicesOfTheEnvironment) {
  const std::string choices = std::string(environment_info(Variable::kUnpackImpl).choices) + "|";
  const auto choice = [&](UnpackKind kind) {
    size_t begin = 0;
    for (int i = 0; i < static_cast<int>(kind); ++i) begin = choices.find('|', begin) + 1;
    return choices.substr(begin, choices.find('|', begin) - begin);
  };
  EXPECT_EQ(choice(UnpackKind::kAuto), "auto");
  EXPECT_EQ(choice(UnpackKind::kKernel), "kernel");
  EXPECT_EQ(choice(UnpackKind::kD2d), "d2d");
  EXPECT_EQ(choice(UnpackKind::kHost), "host");
  EXPECT_EQ(choice(UnpackKind::kNone), "none");
  EXPECT_EQ(std::count(choices.begin(), choices.end(), '|'), 5);
}

class HostUnpack : public ::testing::Test {
 protected:
  void use(MemoryOps& memory) { unpacker_ = must(make_unpacker(UnpackKind::kHost, 0, memory)); }
  /// Pages of the pool in descending order.
  void build(uint32_t pages, const MemoryBuffer& pool, const MemoryBuffer& destination) {
    std::vector<Fragment> list;
    for (uint32_t i = 0; i < pages; ++i) list.push_back({(pages - 1 - i) * kPageBytes, kPageBytes, uint64_t{i} * kPageBytes});
    ASSERT_OK(
        block_.build(list, uint64_t{pages} * kPageBytes, {pool.device(), pool.size(), destination.device(), destination.size()}));
  }
  HiddenMemoryOps memory_;  // outlives the unpacker's buffers
  const std::unique_ptr<MemoryOps> host_ = make_host_memory_ops();
  std::unique_ptr<Unpacker> unpacker_;
  DescriptorBlock block_;
};

TEST_F(HostUnpack, GathersBeforeCopyingToHiddenMemory) {
  use(memory_);
  const auto pool = memory_.allocate_mapped(0, 300 * kPageBytes);
  const auto destination = memory_.allocate_device(0, 300 * kPageBytes);
  ASSERT_TRUE(pool.is_ok() && destination.is_ok());
  ASSERT_NO_FATAL_FAILURE(build(300, *pool, *destination));
  ASSERT_TRUE(unpacker_->submit(block_).is_ok());
  EXPECT_EQ(memory_.copies(), 2u) << "1.2 MB through 1 MiB of staging memory";
}

TEST_F(HostUnpack, FetchesNearFragmentsOfAHiddenPoolTogether) {
  use(memory_);
  const auto pool = memory_.allocate_device(0, 300 * kPageBytes);
  const auto readable = memory_.allocate_mapped(0, 300 * kPageBytes);
  const auto hidden = memory_.allocate_device(0, 300 * kPageBytes);
  ASSERT_TRUE(pool.is_ok() && readable.is_ok() && hidden.is_ok());
  ASSERT_NO_FATAL_FAILURE(build(300, *pool, *readable));
  ASSERT_TRUE(unpacker_->submit(block_).is_ok());
  EXPECT_EQ(memory_.copies(), 2u) << "1.2 MB through 1 MiB of staging memory";
  ASSERT_NO_FATAL_FAILURE(build(300, *pool, *hidden));
  ASSERT_TRUE(unpacker_->submit(block_).is_ok());
  EXPECT_EQ(memory_.copies(), 6u) << "for each MiB one copy from the pool and one to the destination";
}

TEST_F(HostUnpack, FetchesFarFragmentsOfAHiddenPoolAlone) {
  use(memory_);
  const auto pool = memory_.allocate_device(0, 16 << 20);
  const auto destination = memory_.allocate_mapped(0, 3 << 20);
  ASSERT_TRUE(pool.is_ok() && destination.is_ok());
  const auto copies_for = [&](const std::vector<Fragment>& list) {
    const uint64_t bytes = list.back().dst_off + list.back().len;
    EXPECT_OK(block_.build(list, bytes, {pool->device(), pool->size(), destination->device(), destination->size()}));
    const uint64_t before = memory_.copies();
    EXPECT_TRUE(unpacker_->submit(block_).is_ok());
    return memory_.copies() - before;
  };
  EXPECT_EQ(copies_for({{0, 100, 0}, {4 << 20, 100, 100}, {8 << 20, 100, 200}}), 3u);
  EXPECT_EQ(copies_for({{8 << 20, 100, 0}, {0, 100, 100}, {1000, 100, 200}}), 2u) << "in any order of the list";
  // The middle one is longer than the staging memory and shares bytes with the first.
  EXPECT_EQ(copies_for({{50, 100, 0}, {100, 2 << 20, 100}, {(2 << 20) + 200, 100, (2 << 20) + 100}}), 3u);
}

TEST_F(HostUnpack, AFailedCopySticks) {
  use(memory_);
  const auto pool = memory_.allocate_device(0, kPageBytes);
  const auto destination = memory_.allocate_mapped(0, kPageBytes);
  ASSERT_TRUE(pool.is_ok() && destination.is_ok());
  ASSERT_NO_FATAL_FAILURE(build(1, *pool, *destination));
  const auto good = must(unpacker_->submit(block_));
  memory_.break_copies();
  EXPECT_EQ(unpacker_->submit(block_).status().detail(), "broken by the test");
  EXPECT_EQ(unpacker_->query(good).status().detail(), "broken by the test");
  ASSERT_NO_FATAL_FAILURE(build(1, *destination, *destination));  // would need no copy lane
  EXPECT_EQ(unpacker_->submit(block_).status().detail(), "broken by the test");
}

TEST_F(HostUnpack, SubmitAllocatesNothing) {
  use(*host_);
  const auto pool = host_->allocate_mapped(0, kMaxFragments * kPageBytes);
  const auto destination = host_->allocate_device(0, kMaxFragments * kPageBytes);
  ASSERT_TRUE(pool.is_ok() && destination.is_ok());
  ASSERT_NO_FATAL_FAILURE(build(kMaxFragments, *pool, *destination));
  (void)must(unpacker_->submit(block_));  // a thread's first copy makes what guards all its later ones
  const uint64_t before = allocation_count();
  for (int i = 0; i < 3; ++i) {
    const auto ticket = must(unpacker_->submit(block_));
    ASSERT_TRUE(*unpacker_->query(ticket));
  }
  EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace tcpx::testing
