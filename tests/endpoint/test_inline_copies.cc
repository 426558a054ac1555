// Short copies between GPU memory and slots of mapped memory: contents of a slot, its owner and when it is free again, also when
// the copier fails or is full.
#include "endpoint/inline_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/slow_copier.h"

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint32_t kCopySlots = 128;

Bytes seeded_bytes(size_t bytes, uint64_t seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i + seed) * 0x9e3779b97f4a7c15u >> 56);
  return made;
}

Status full() {
  return Status(Code::kExhausted, "copy", "too much in flight");
}

class InlineCopiesTest : public ::testing::Test {
 protected:
  /// Ranges of `memory_`, one behind the other with `gap` bytes between them.
  std::vector<HeldRange> ranges(const std::vector<size_t>& sizes, size_t gap = 0) {
    std::vector<HeldRange> made;
    size_t offset = 0;
    for (const size_t bytes : sizes) {
      made.push_back({registry_.use(region_, memory_.data() + offset, bytes).value(), memory_.data() + offset, bytes});
      offset += bytes + gap;
    }
    return made;
  }
  /// As many copies as there are slots, which keep them.
  std::vector<InlineCopies::Copy> take_all() {
    std::vector<InlineCopies::Copy> copies;
    std::set<uint32_t> slots;
    const auto range = ranges({8});
    for (uint32_t i = 0; i < kCopySlots; ++i) {
      const auto copy = copies_.read(range);
      EXPECT_TRUE(copy.is_ok()) << "copy " << i << ": " << copy.status().to_string();
      if (!copy.is_ok()) return copies;
      EXPECT_TRUE(slots.insert(copy->slot).second) << "slot " << copy->slot << " twice";
      copies.push_back(*copy);
    }
    EXPECT_EQ(copies_.read(range).status().code(), Code::kExhausted);
    return copies;
  }
  /// None has been lost, and none is there twice.
  void expect_all_free() {
    for (const InlineCopies::Copy& copy : take_all()) copies_.release(copy);
  }
  bool done(const InlineCopies::Copy& copy) {
    const auto answer = copies_.is_done(copy);
    EXPECT_TRUE(answer.is_ok()) << answer.status().to_string();
    return answer.is_ok() && *answer;
  }

  Bytes memory_ = seeded_bytes(2 * kMaxInlineBytes, 1);
  MemoryRegistry registry_{1};
  const MemoryId region_ = registry_.add(memory_.data(), memory_.size(), MemoryType::kCuda).value();
  SlowCopier copier_;
  std::unique_ptr<MemoryOps> ops_ = make_host_memory_ops();
  InlineCopies copies_{*ops_, copier_, 0};
};

TEST_F(InlineCopiesTest, ReadsRangesOneBehindTheOther) {
  const std::vector<size_t> sizes = {3, 0, 4096, 1, 300};
  const auto from = ranges(sizes, 7);
  Bytes wanted;
  for (const HeldRange& range : from) wanted.insert(wanted.end(), range.data, range.data + range.bytes);
  const auto copy = copies_.read(from);
  ASSERT_TRUE(copy.is_ok());
  ASSERT_TRUE(done(*copy));
  const auto got = copies_.bytes_of(*copy);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
}

TEST_F(InlineCopiesTest, WritesIntoRangesAndNothingBeside) {
  const std::vector<size_t> sizes = {5, 0, 1000, 1};
  const auto into = ranges(sizes, 9);
  const Bytes before = memory_;
  Bytes wanted = before;
  const Bytes data = seeded_bytes(1006, 77);
  size_t taken = 0;
  for (const HeldRange& range : into) {
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(taken), range.bytes, wanted.begin() + (range.data - memory_.data()));
    taken += range.bytes;
  }
  const auto copy = copies_.write(into, data);
  ASSERT_TRUE(copy.is_ok());
  ASSERT_TRUE(done(*copy));
  EXPECT_EQ(memory_, wanted);
}

TEST_F(InlineCopiesTest, ACopyIsDoneWhenTheCopierSaysSo) {
  copier_.hold();
  const auto from = ranges({100});
  const auto first = copies_.read(from), second = copies_.read(from);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_FALSE(done(*first));
  copier_.end_one();
  EXPECT_TRUE(done(*first));
  EXPECT_FALSE(done(*second)) << "each asks for its own";
  copier_.end_one();
  EXPECT_TRUE(done(*second));
}

TEST_F(InlineCopiesTest, DataOfAWriteMayBeReusedAtOnce) {
  copier_.hold();
  const Bytes wanted = seeded_bytes(500, 5);
  Bytes data = wanted;
  const auto into = ranges({500});
  const auto copy = copies_.write(into, data);
  ASSERT_TRUE(copy.is_ok());
  std::fill(data.begin(), data.end(), std::byte{0xee});
  copier_.release();
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), memory_.begin()));
}

TEST_F(InlineCopiesTest, CopiesUnderWayDoNotTouchEachOthersSlots) {
  copier_.hold();
  std::vector<InlineCopies::Copy> copies;
  std::vector<Bytes> wanted;
  for (uint64_t i = 0; i < kCopySlots; ++i) {
    const Bytes part = seeded_bytes(kMaxInlineBytes, 100 + i);
    const auto into = ranges({kMaxInlineBytes});
    copies.push_back(copies_.write(into, part).value());
    wanted.push_back(part);
  }
  for (uint64_t i = 0; i < kCopySlots; ++i) {
    copier_.end_one();
    EXPECT_TRUE(std::equal(wanted[i].begin(), wanted[i].end(), memory_.begin())) << i;
  }
}

TEST_F(InlineCopiesTest, AReleasedSlotIsUsedAgainAndNoOther) {
  const auto copies = take_all();
  ASSERT_EQ(copies.size(), kCopySlots);
  copies_.release(copies[5]);
  const auto range = ranges({8});
  const auto again = copies_.read(range);
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again->slot, copies[5].slot);
  EXPECT_EQ(copies_.read(range).status().code(), Code::kExhausted);
}

TEST_F(InlineCopiesTest, ACopyThatDoesNotStartKeepsNoSlot) {
  const Bytes data(8);
  const auto range = ranges({8});
  for (const Status& failure : {full(), copy_failure()}) {
    copier_.fail_submit = failure;
    for (uint32_t i = 0; i < 2 * kCopySlots; ++i) {
      EXPECT_EQ(copies_.read(range).status().to_string(), failure.to_string());
      EXPECT_EQ(copies_.write(range, data).status().to_string(), failure.to_string());
    }
  }
  copier_.fail_submit = Status::ok();
  expect_all_free();
}

TEST_F(InlineCopiesTest, ACopyThatFailsIsTold) {
  const auto range = ranges({8});
  const auto copy = copies_.read(range);
  ASSERT_TRUE(copy.is_ok());
  copier_.fail_query = copy_failure();
  EXPECT_EQ(copies_.is_done(*copy).status().to_string(), copy_failure().to_string());
  copies_.release(*copy);
  copier_.fail_query = Status::ok();
  expect_all_free();
}

TEST_F(InlineCopiesTest, PreparingTwiceMakesTheSlotsOnce) {
  ASSERT_TRUE(copies_.prepare().is_ok());
  ASSERT_TRUE(copies_.prepare().is_ok());
  expect_all_free();
}

}  // namespace
}  // namespace tcpx::testing
