// Every refusal at its exact boundary.
#include "rx/rx_descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "tests/support/count_allocations.h"

namespace tcpx {
namespace {

constexpr uint64_t kMost64 = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kMost32 = std::numeric_limits<uint32_t>::max();

class RxDescriptor : public ::testing::Test {
 protected:
  // Nothing is read or written through these while a block is built, so their sizes may be arbitrary.
  UnpackTarget target(uint64_t pool_bytes, uint64_t destination_bytes) {
    return {
        .pool = &pool_byte_, .pool_bytes = pool_bytes, .destination = &destination_byte_, .destination_bytes = destination_bytes};
  }
  void expect_built(const std::vector<Fragment>& list, uint64_t message_bytes, const UnpackTarget& to) {
    const Status status = block_.build(list, message_bytes, to);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(std::equal(list.begin(), list.end(), block_.fragments().begin(), block_.fragments().end()));
    EXPECT_EQ(block_.message_bytes(), message_bytes);
    EXPECT_EQ(block_.target().pool, to.pool);
    EXPECT_EQ(block_.target().destination, to.destination);
    uint32_t longest_bytes = 0;
    for (const Fragment& f : list) longest_bytes = std::max(longest_bytes, f.len);
    EXPECT_EQ(block_.longest_bytes(), longest_bytes);
  }
  /// Expects a refusal with each of `words` in its text, and an empty block.
  void expect_refused(const std::vector<Fragment>& list, uint64_t message_bytes, const UnpackTarget& to,
                      const std::vector<std::string>& words, Code code = Code::kProtocol) {
    const Fragment whole{0, 1, 0};
    ASSERT_TRUE(block_.build({&whole, 1}, 1, target(1, 1)).is_ok());  // content that must be gone afterwards
    const Status status = block_.build(list, message_bytes, to);
    EXPECT_EQ(status.code(), code) << status.to_string();
    for (const std::string& word : words)
      EXPECT_NE(status.detail().find(word), std::string::npos) << word << " in " << status.detail();
    EXPECT_TRUE(block_.fragments().empty());
    EXPECT_EQ(block_.message_bytes(), 0u);
    EXPECT_EQ(block_.target().pool, nullptr);
    EXPECT_EQ(block_.contiguous_source(), nullptr);
    EXPECT_EQ(block_.target().destination, nullptr);
    EXPECT_EQ(block_.longest_bytes(), 0u);
    EXPECT_EQ(block_.joined_distance(), 0u);
  }

  std::byte pool_byte_{}, destination_byte_{};
  DescriptorBlock block_;
};

std::vector<Fragment> equal_parts(uint32_t count, uint32_t len) {
  std::vector<Fragment> list;
  for (uint32_t i = 0; i < count; ++i) list.push_back({i * len, len, uint64_t{i} * len});
  return list;
}

TEST_F(RxDescriptor, NewBlockIsEmpty) {
  EXPECT_TRUE(block_.fragments().empty());
  EXPECT_EQ(block_.message_bytes(), 0u);
  EXPECT_EQ(block_.longest_bytes(), 0u);
  EXPECT_EQ(block_.joined_distance(), 0u);
  cpu_unpack(block_);
}

TEST_F(RxDescriptor, MessageOfNoBytesHasNoFragments) {
  expect_built({}, 0, target(4096, 100));
  expect_built({}, 0, {.pool = &pool_byte_, .pool_bytes = 1, .destination = nullptr, .destination_bytes = 0});
  expect_refused({}, 1, target(4096, 100), {"0 fragments", "0 bytes", "message of 1"});
  expect_refused({{0, 1, 0}}, 0, target(4096, 100), {"fragment 0", "message of 0 bytes"});
}

TEST_F(RxDescriptor, BadTargets) {
  const auto invalid = Code::kInvalidArgument;
  UnpackTarget to = target(4096, 100);
  to.pool = nullptr;
  expect_refused({{0, 1, 0}}, 1, to, {"no bounce pool"}, invalid);
  expect_refused({{0, 1, 0}}, 1, target(0, 100), {"pool of 0 bytes"}, invalid);
  expect_refused({{0, 1, 0}}, 1, target(kMaxPoolBytes + 1, 100), {"4294967297"}, invalid);
  expect_built({{kMost32, 1, 0}}, 1, target(kMaxPoolBytes, 100));
  to = target(4096, 1);
  to.destination = nullptr;
  expect_refused({{0, 1, 0}}, 1, to, {"no destination for 1 bytes"}, invalid);
}

TEST_F(RxDescriptor, Trap16_MessageLongerThanTheDestinationIsRefused) {
  expect_built({{0, 100, 0}}, 100, target(4096, 100));
  expect_refused({{0, 101, 0}}, 101, target(4096, 100), {"message of 101 bytes", "destination of 100"});
  expect_refused({{0, 100, 0}}, 100, target(4096, 99), {"message of 100 bytes", "destination of 99"});
}

TEST_F(RxDescriptor, MessagesAbove4GiBAreRefused) {
  constexpr uint64_t kMost = uint64_t{4} << 30;
  const UnpackTarget to = target(kMaxPoolBytes, kMost64);
  const uint32_t half = 1u << 31;
  expect_built({{0, half, 0}, {half, half, half}}, kMost, to);
  expect_built({{half, half, half}, {0, half, 0}}, kMost, to);
  expect_built({{0, kMost32, 0}, {kMost32, 1, kMost32}}, kMost, to);
  expect_built({{kMost32, 1, kMost32}, {0, kMost32, 0}}, kMost, to);
  expect_refused({{0, half, 0}, {half, half, half}, {0, 1, kMost}}, kMost + 1, to, {"message of 4294967297", "4294967296"});
  expect_refused({{0, 1, 0}}, kMost + 1, to, {"message of 4294967297"});
  expect_refused({{0, 1, 0}}, kMost64, to, {"message of 18446744073709551615"});
}

TEST_F(RxDescriptor, DstOffAbove4GiBIsRefused) {
  constexpr uint64_t kMost = uint64_t{4} << 30;
  const UnpackTarget to = target(kMaxPoolBytes, kMost64);
  for (const uint64_t dst_off : {kMost, kMost + 1, kMost + 10, uint64_t{1} << 33}) {
    SCOPED_TRACE(dst_off);
    const std::string text = "dst_off " + std::to_string(dst_off);
    expect_refused({{0, 10, dst_off}}, 10, to, {"fragment 0", text, "message of 10"});
    expect_refused({{0, kMost32, 0}, {0, 1, dst_off}}, kMost, to, {"fragment 1", text, "message of 4294967296"});
    expect_refused({{0, 1, dst_off}, {0, kMost32, 0}}, kMost, to, {"fragment 0", text, "message of 4294967296"});
  }
}

TEST_F(RxDescriptor, Trap16_FragmentBeyondTheMessageIsRefused) {
  const UnpackTarget to = target(4096, 1000);
  expect_refused({{0, 50, 0}, {50, 51, 50}}, 100, to, {"fragment 1", "dst_off 50", "len 51", "message of 100"});
  expect_refused({{0, 100, 0}, {0, 1, 100}}, 100, to, {"fragment 1", "dst_off 100"});
  expect_refused({{0, 1, 101}, {0, 100, 0}}, 100, to, {"fragment 0", "dst_off 101"});
}

TEST_F(RxDescriptor, Trap16_SumsThatWrapIn64BitsAreRefused) {
  for (const uint64_t dst_off : {kMost64, kMost64 - 9, kMost64 - 10, uint64_t{1} << 32, uint64_t{1} << 63}) {
    SCOPED_TRACE(dst_off);
    expect_refused({{0, 10, 0}, {10, 10, dst_off}}, 20, target(4096, 20),
                   {"fragment 1", std::to_string(dst_off), "beyond the message of 20"});
  }
  // The lengths sum up to the message, and another fragment begins at the end that wraps.
  expect_refused({{0, 6, kMost64 - 5}, {6, 14, 0}}, 20, target(4096, 20), {"fragment 0", "beyond the message of 20"});
  expect_refused({{6, 10, 10}, {0, 10, kMost64 - 9}}, 20, target(4096, 20), {"fragment 1", "beyond the message of 20"});
  // The sum of two ends is right, and so is every end modulo 2^64.
  expect_refused({{0, 10, 5}, {0, 10, kMost64 - 4}}, 20, target(4096, 20), {"fragment 1", "beyond the message of 20"});
}

TEST_F(RxDescriptor, SumsThatWrapIn32BitsAreRefused) {
  const UnpackTarget to = target(4096, kMost64);
  // src_off + len is 4 or 4096 in 32 bits
  expect_refused({{kMost32 - 3, 8, 0}}, 8, to, {"fragment 0", "src_off 4294967292", "len 8", "pool of 4096"});
  expect_refused({{8, kMost32 - 3, 0}}, kMost32 - 3, to, {"fragment 0", "len 4294967292", "pool of 4096"});
  expect_refused({{kMost32, 4097, 0}}, 4097, to, {"fragment 0", "src_off 4294967295"});
  expect_refused({{kMost32, 4097, 4}, {0, 4, 0}}, 4101, to, {"fragment 0", "src_off 4294967295"});
  // dst_off + len is 10 in 32 bits, and the lengths of the second sum up to 10 there
  expect_refused({{0, 20, kMost32 - 9}}, 10, to, {"fragment 0", "dst_off 4294967286", "message of 10"});
  expect_refused({{0, kMost32, 0}, {0, 11, 0}}, 10, target(kMaxPoolBytes, kMost64), {"fragment 0", "message of 10"});
}

TEST_F(RxDescriptor, Trap21_FragmentOutsideThePoolIsRefused) {
  expect_built({{4000, 96, 0}}, 96, target(4096, 1000));
  expect_built({{0, 4096, 0}}, 4096, target(4096, 4096));
  expect_refused({{4000, 97, 0}}, 97, target(4096, 1000), {"fragment 0", "src_off 4000", "len 97", "pool of 4096"});
  expect_refused({{4096, 1, 0}}, 1, target(4096, 1000), {"src_off 4096"});
  expect_refused({{0, 4097, 0}}, 4097, target(4096, 5000), {"len 4097"});
  expect_refused({{0, 4, 0}, {kMost32, 1, 4}}, 5, target(kMost32, 1000), {"fragment 1", "src_off 4294967295"});
  expect_refused({{kMost32, kMost32, 0}}, kMost32, target(kMaxPoolBytes, kMost64), {"src_off 4294967295", "len 4294967295"});
}

TEST_F(RxDescriptor, FragmentsOfNoBytesAreRefused) {
  expect_refused({{0, 0, 0}}, 0, target(4096, 100), {"fragment 0", "no bytes"});
  expect_refused({{0, 10, 0}, {10, 0, 10}}, 10, target(4096, 100), {"fragment 1", "no bytes", "dst_off 10"});
}

TEST_F(RxDescriptor, GapsAreRefusedWhereverTheyAre) {
  const UnpackTarget to = target(4096, 100);
  expect_refused({{0, 9, 1}}, 10, to, {"fragment 0", "dst_off 1", "from 0"});
  expect_refused({{0, 4, 0}, {4, 5, 5}}, 10, to, {"fragment 1", "dst_off 5", "from 4"});
  expect_refused({{4, 5, 5}, {0, 4, 0}}, 10, to, {"fragment 0", "dst_off 5", "from 4"});
  expect_refused({{0, 4, 0}, {4, 5, 4}}, 10, to, {"2 fragments", "9 bytes", "message of 10"});
}

TEST_F(RxDescriptor, OverlapsAreRefusedEvenWhenTheSumIsRight) {
  const UnpackTarget to = target(4096, 100);
  expect_refused({{0, 6, 0}, {6, 5, 5}}, 10, to, {"fragment 1", "dst_off 5", "up to 6"});
  expect_refused({{6, 5, 5}, {0, 6, 0}}, 10, to, {"fragment 0", "dst_off 5", "up to 6"});
  expect_refused({{0, 5, 0}, {5, 5, 0}}, 10, to, {"dst_off 0", "up to 5"});
  expect_refused({{0, 10, 0}, {0, 10, 0}}, 10, to, {"dst_off 0", "up to 10"});
  expect_refused({{0, 5, 0}, {0, 3, 1}, {0, 2, 8}}, 10, to, {"fragment 1", "dst_off 1"});  // and a gap: 10 bytes in all
}

TEST_F(RxDescriptor, CoversThatAreRightOnAverageAreRefused) {
  const UnpackTarget to = target(4096, 100);
  // two identical covers of one half, none of the other
  expect_refused({{0, 5, 0}, {0, 5, 5}, {0, 5, 0}, {0, 5, 5}}, 20, to, {"dst_off 0", "up to 5"});
  expect_refused({{0, 10, 0}, {0, 5, 0}, {0, 5, 5}}, 20, to, {"dst_off 0", "up to "});
  // two whole covers
  expect_refused({{0, 10, 0}, {0, 5, 0}, {0, 5, 5}}, 10, to, {"dst_off 0", "up to "});
  // swapped lengths
  expect_refused({{0, 7, 0}, {0, 3, 3}, {0, 10, 10}}, 20, to, {"fragment 1", "dst_off 3", "up to 7"});
  expect_refused({{0, 3, 0}, {0, 10, 10}, {0, 7, 7}}, 20, to, {"fragment 2", "dst_off 7", "from 3"});
  // a chain of fragments without a first, and one without a last
  expect_refused({{0, 5, 15}, {0, 10, 5}, {0, 5, 5}}, 20, to, {"dst_off 5", "from 0"});
  expect_refused({{0, 5, 5}, {0, 5, 0}, {0, 10, 0}}, 20, to, {"dst_off 0", "up to "});
  // offsets, ends and lengths sum up to those of {0, 10}, {10, 10}, {20, 10}
  expect_refused({{0, 10, 1}, {0, 10, 9}, {0, 10, 20}}, 30, to, {"fragment 0", "dst_off 1", "from 0"});
}

TEST_F(RxDescriptor, OnePoolRangeMayBeReadTwice) {
  expect_built({{0, 5, 0}, {0, 5, 5}}, 10, target(5, 10));
}

TEST_F(RxDescriptor, Trap23_2048FragmentsAreLegalAnd2049AreRefused) {
  expect_built(equal_parts(2048, 2048), kMaxRequestBytes, target(kMaxRequestBytes, kMaxRequestBytes));
  expect_refused(equal_parts(2049, 1), 2049, target(4096, 4096), {"2049 fragments", "2048"});
}

TEST_F(RxDescriptor, Trap22_ListsInAnyOrderAreOneMessage) {
  std::mt19937 random(1);
  for (const uint32_t count : {2u, 3u, 128u, 2048u}) {
    std::vector<Fragment> list = equal_parts(count, 53);
    std::reverse(list.begin(), list.end());
    expect_built(list, count * 53, target(kMaxPoolBytes, kMaxRequestBytes));
    std::shuffle(list.begin(), list.end(), random);
    expect_built(list, count * 53, target(kMaxPoolBytes, kMaxRequestBytes));
    list[count / 2].dst_off ^= 1;
    expect_refused(list, count * 53, target(kMaxPoolBytes, kMaxRequestBytes), {"fragment "});
  }
}

TEST_F(RxDescriptor, OneFragmentOutOfPlaceInALongListIsNamed) {
  const UnpackTarget to = target(kMaxPoolBytes, kMaxRequestBytes);
  std::mt19937 random(5);
  for (const uint32_t count : {2u, 17u, 1024u, 2048u}) {
    for (int round = 0; round < 20; ++round) {
      SCOPED_TRACE(std::to_string(count) + " fragments, round " + std::to_string(round));
      std::vector<Fragment> list = equal_parts(count, 64);
      if (round > 0) std::shuffle(list.begin(), list.end(), random);
      const size_t i = random() % count;
      const std::string place = "fragment " + std::to_string(i);
      const Fragment good = list[i];
      list[i].dst_off += 1;  // a gap, or beyond the end
      expect_refused(list, count * 64, to, {place + (good.dst_off + 64 == count * 64 ? ": dst_off " : " begins at dst_off ")});
      list[i] = {good.src_off, 0, good.dst_off};
      expect_refused(list, count * 64, to, {place + " has no bytes"});
      list[i] = {kMost32, 64, good.dst_off};
      expect_refused(list, count * 64, to, {place + ": src_off 4294967295"});
      list[i] = {good.src_off, 64, list[(i + 1) % count].dst_off};
      expect_refused(list, count * 64, to, {"fragment "});
      list[i] = good;
      expect_built(list, count * 64, to);
    }
  }
}

TEST_F(RxDescriptor, JoinedDistanceTellsWhichAddressBitsDiffer) {
  alignas(64) std::byte pool[128], destination[128];
  const auto joined = [&](uint32_t pool_shift, uint32_t src_shift, uint32_t destination_shift) {
    // 16 + 7 + 9 bytes; the source of the last one is src_shift further than the others
    const std::vector<Fragment> list{{0, 16, 0}, {32 + 7 + src_shift, 9, 23}, {32, 7, 16}};
    EXPECT_TRUE(block_.build(list, 32, {pool + pool_shift, 100, destination + destination_shift, 32}).is_ok());
    return block_.joined_distance();
  };
  EXPECT_EQ(joined(0, 0, 0) % 16, 0u);
  EXPECT_EQ(joined(5, 0, 5) % 16, 0u);
  EXPECT_EQ(joined(21, 0, 5) % 16, 0u);
  EXPECT_EQ(joined(8, 0, 0) % 16, 8u);
  EXPECT_EQ(joined(0, 8, 0) % 16, 8u);
  EXPECT_EQ(joined(0, 4, 8) % 16, 12u);  // 8 for all and 4 more for one: 8 | 12
  EXPECT_EQ(joined(0, 0, 1) % 2, 1u);
  EXPECT_EQ(joined(0, 1, 0) % 16, 1u);
  block_.clear();
  EXPECT_EQ(block_.joined_distance(), 0u);
}

TEST_F(RxDescriptor, AMessageInOnePieceIsSeenAsOne) {
  std::byte pool[100];
  const auto source_off = [&](const std::vector<Fragment>& list, uint64_t bytes) -> std::ptrdiff_t {
    EXPECT_TRUE(block_.build(list, bytes, {pool, 100, &destination_byte_, bytes}).is_ok());
    return block_.contiguous_source() == nullptr ? -1 : block_.contiguous_source() - pool;
  };
  EXPECT_EQ(source_off({{7, 30, 0}}, 30), 7);
  EXPECT_EQ(source_off({{50, 10, 0}, {60, 20, 10}, {80, 1, 30}}, 31), 50);
  EXPECT_EQ(source_off({{80, 1, 30}, {50, 10, 0}, {60, 20, 10}}, 31), 50) << "whatever the order";
  EXPECT_EQ(source_off({{50, 10, 0}, {61, 20, 10}}, 30), -1) << "a gap in the pool";
  EXPECT_EQ(source_off({{60, 10, 0}, {50, 10, 10}}, 20), -1) << "the wrong way round";
  EXPECT_EQ(source_off({{50, 10, 0}, {50, 10, 10}}, 20), -1) << "the same twice";
  EXPECT_EQ(source_off({}, 0), -1);
  EXPECT_EQ(source_off({{0, 100, 0}}, 100), 0);
  block_.clear();
  EXPECT_EQ(block_.contiguous_source(), nullptr);
  // Contiguous, but beginning before the pool.
  expect_refused({{0, 10, uint64_t{1} << 63}}, 10, target(100, 10), {"beyond the message"});
}

TEST_F(RxDescriptor, BlockKeepsItsOwnCopyOfTheList) {
  std::vector<Fragment> list = equal_parts(4, 10);
  ASSERT_TRUE(block_.build(list, 40, target(4096, 40)).is_ok());
  for (Fragment& f : list) f = {kMost32, kMost32, kMost64};
  const std::vector<Fragment> expected = equal_parts(4, 10);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), block_.fragments().begin(), block_.fragments().end()));
}

TEST_F(RxDescriptor, NothingIsAllocatedOnceABlockHasBeenUsed) {
  std::vector<Fragment> ascending = equal_parts(2048, 16);
  std::vector<Fragment> permuted = ascending;
  std::shuffle(permuted.begin(), permuted.end(), std::mt19937(2));
  const UnpackTarget to = target(kMaxPoolBytes, kMaxRequestBytes);
  ASSERT_TRUE(block_.build({}, 0, to).is_ok());
  const uint64_t before = testing::allocation_count();
  bool built = block_.build(permuted, 32768, to).is_ok();
  block_.clear();
  built = block_.build(ascending, 32768, to).is_ok() && built;
  built = block_.build({}, 0, to).is_ok() && built;
  built = block_.build(permuted, 32768, to).is_ok() && built;
  const uint64_t after = testing::allocation_count();
  EXPECT_TRUE(built);
  EXPECT_EQ(after, before);
  EXPECT_GT(before, 0u);
}

}  // namespace
}  // namespace tcpx
