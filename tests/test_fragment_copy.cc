// The arithmetic of the unpack kernel, run on the host: every thread's share, with every access checked.
#include "device/fragment_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "perf/pattern.h"

namespace tcpx {
namespace {

constexpr uint32_t kLanes = 32;

std::vector<uint32_t> tested_lengths() {
  std::vector<uint32_t> lengths;
  for (uint32_t n = 0; n <= 64; ++n) lengths.push_back(n);
  for (uint32_t n = 1440; n <= 1456; ++n) lengths.push_back(n);
  for (uint32_t n : {511u, 512u, 513u, 2047u, 2049u, 4095u, 4096u, 4097u, 65535u, 65536u}) lengths.push_back(n);
  return lengths;
}

/// Memory that takes part in one copy and knows what may be touched.
struct Watched {
  std::span<const std::byte> source;
  std::span<std::byte> destination;
  std::vector<uint8_t> writes;  // per byte of the destination
  uint64_t bad_loads = 0;
  uint64_t bad_stores = 0;
  uint64_t word_loads = 0;
  uint64_t byte_loads = 0;
};

class WatchedAccess {
 public:
  explicit WatchedAccess(Watched* memory) : memory_(memory) {}

  std::byte load_byte(const std::byte* address) {
    ++memory_->byte_loads;
    return check_load(address, 1) ? *address : std::byte{0};
  }
  CopyWord load_word(const std::byte* address) {
    ++memory_->word_loads;
    CopyWord word{};
    if (check_load(address, sizeof word)) std::memcpy(&word, address, sizeof word);
    return word;
  }
  void store_byte(std::byte* address, std::byte value) {
    if (check_store(address, 1)) *address = value;
  }
  void store_word(std::byte* address, const CopyWord& word) {
    if (check_store(address, sizeof word)) std::memcpy(address, &word, sizeof word);
  }

 private:
  static bool lies_in(const std::byte* address, size_t bytes, std::span<const std::byte> range) {
    const auto begin = reinterpret_cast<uintptr_t>(range.data());
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at % bytes == 0 && at >= begin && bytes <= range.size() && at - begin <= range.size() - bytes;
  }
  bool check_load(const std::byte* address, size_t bytes) {
    const bool good = lies_in(address, bytes, memory_->source);
    memory_->bad_loads += good ? 0 : 1;
    return good;
  }
  bool check_store(std::byte* address, size_t bytes) {
    const bool good = lies_in(address, bytes, memory_->destination);
    memory_->bad_stores += good ? 0 : 1;
    if (good) {
      for (size_t i = 0; i < bytes; ++i) ++memory_->writes[static_cast<size_t>(address - memory_->destination.data()) + i];
    }
    return good;
  }

  Watched* memory_;
};

template <bool kShifts>
void copy_with_all_lanes(Watched* memory, uint32_t bytes) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    copy_fragment_share<kShifts>(WatchedAccess(memory), memory->destination.data(), memory->source.data(), bytes, lane, kLanes);
  }
}

class FragmentCopy : public ::testing::TestWithParam<int> {  // source alignment
 protected:
  static std::byte* align(std::vector<std::byte>& memory, uint32_t alignment) {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (16 - at % 16) % 16 + alignment;
  }
};

TEST_P(FragmentCopy, WritesEveryByteOnceAndTouchesNothingElse) {
  const auto source_alignment = static_cast<uint32_t>(GetParam());
  std::vector<std::byte> from(65536 + 64);
  std::vector<std::byte> to(65536 + 64);
  fill_pattern(from, 7);
  for (uint32_t alignment = 0; alignment < 16; ++alignment) {
    for (const uint32_t bytes : tested_lengths()) {
      SCOPED_TRACE(::testing::Message() << "source +" << source_alignment << " destination +" << alignment << " bytes " << bytes);
      Watched memory{{align(from, source_alignment), bytes}, {align(to, alignment), bytes}, std::vector<uint8_t>(bytes)};
      std::memset(to.data(), 0xa5, to.size());
      copy_with_all_lanes<true>(&memory, bytes);
      ASSERT_EQ(memory.bad_loads, 0u);
      ASSERT_EQ(memory.bad_stores, 0u);
      ASSERT_EQ(memory.writes, std::vector<uint8_t>(bytes, 1));
      ASSERT_TRUE(bytes == 0 || std::memcmp(memory.destination.data(), memory.source.data(), bytes) == 0);
    }
  }
}

TEST_P(FragmentCopy, NeedsNoShiftingCodeWhenAlignmentsAgree) {
  const auto alignment = static_cast<uint32_t>(GetParam());
  std::vector<std::byte> from(65536 + 64);
  std::vector<std::byte> to(65536 + 64);
  fill_pattern(from, 8);
  for (const uint32_t bytes : tested_lengths()) {
    SCOPED_TRACE(::testing::Message() << "both +" << alignment << " bytes " << bytes);
    Watched memory{{align(from, alignment), bytes}, {align(to, alignment), bytes}, std::vector<uint8_t>(bytes)};
    copy_with_all_lanes<false>(&memory, bytes);
    ASSERT_EQ(memory.bad_loads + memory.bad_stores, 0u);
    ASSERT_EQ(memory.writes, std::vector<uint8_t>(bytes, 1));
    ASSERT_TRUE(bytes == 0 || std::memcmp(memory.destination.data(), memory.source.data(), bytes) == 0);
  }
}

TEST_P(FragmentCopy, MovesPagesInWords) {
  const auto source_alignment = static_cast<uint32_t>(GetParam());
  std::vector<std::byte> from(4096 + 64);
  std::vector<std::byte> to(4096 + 64);
  for (uint32_t alignment = 0; alignment < 16; ++alignment) {
    Watched memory{{align(from, source_alignment), 4096}, {align(to, alignment), 4096}, std::vector<uint8_t>(4096)};
    copy_with_all_lanes<true>(&memory, 4096);
    // One pass of 32 threads at each end at most; a shifted word takes two loads, one of which a neighbour takes too.
    EXPECT_LE(memory.byte_loads, 31u + 30u);
    EXPECT_LE(memory.word_loads, alignment == source_alignment ? 256u : 2u * 255u);
  }
}

INSTANTIATE_TEST_SUITE_P(SourceAlignment, FragmentCopy, ::testing::Range(0, 16));

TEST(FragmentPlan, StaysInsideFragmentsOfAnyLength) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  for (uint32_t source = 16; source < 32; ++source) {
    for (uint32_t destination = 16; destination < 32; ++destination) {
      for (const uint32_t bytes : {kMax, kMax - 1, kMax - 15, kMax - 16, kMax - 17, kMax - 31, kMax / 2, 47u, 31u, 16u, 1u}) {
        const FragmentPlan plan = plan_fragment(destination, source, bytes);
        SCOPED_TRACE(::testing::Message() << "source " << source << " destination " << destination << " bytes " << bytes);
        const uint64_t done = plan.head + uint64_t{plan.words} * 16;
        ASSERT_LE(done, bytes);
        ASSERT_LE(bytes - done, 30u) << "left to single bytes";
        if (plan.words == 0) continue;
        ASSERT_LE(plan.head, 31u);
        ASSERT_EQ((destination + plan.head) % 16, 0u);
        ASSERT_EQ((source + plan.head - plan.shift) % 16, 0u);
        ASSERT_GE(plan.head, plan.shift) << "first source word begins before the fragment";
        const uint64_t source_words = plan.words + (plan.shift != 0 ? 1u : 0u);
        ASSERT_LE(plan.head - plan.shift + source_words * 16, bytes) << "last source word ends behind the fragment";
      }
    }
  }
}

TEST(ShiftedWord, CutsSixteenBytesAtEveryOffset) {
  std::byte bytes[32];
  fill_pattern(bytes, 9);
  CopyWord low{};
  CopyWord high{};
  std::memcpy(&low, bytes, 16);
  std::memcpy(&high, bytes + 16, 16);
  for (uint32_t shift = 0; shift < 16; ++shift) {
    const CopyWord word = shifted_word(low, high, shift);
    EXPECT_EQ(std::memcmp(&word, bytes + shift, 16), 0) << "shift " << shift;
  }
}

TEST(Stretch, PartsFollowEachOtherAndCoverAll) {
  for (const uint32_t total : {0u, 1u, 31u, 32u, 33u, 1000u, 16384u}) {
    for (const uint32_t parts : {1u, 2u, 16u, 63u, 2112u}) {
      uint32_t next = 0;
      for (uint32_t part = 0; part < parts; ++part) {
        const Stretch own = stretch_of(total, part, parts);
        ASSERT_EQ(own.begin, next) << total << " in " << parts << ", part " << part;
        ASSERT_GE(own.count, total / parts);
        ASSERT_LE(own.count, total / parts + 1);
        next += own.count;
      }
      ASSERT_EQ(next, total);
    }
  }
}

TEST(Piece, PiecesTileAFragmentAndKeepItsAlignment) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  for (const uint32_t bytes : {1u, 15u, 16u, 17u, 4095u, 4096u, 4097u, 65536u, 4194304u, kMax - 16, kMax - 15, kMax}) {
    for (const uint32_t pieces : {1u, 2u, 3u, 16u, 1024u, 16384u}) {
      uint64_t next = 0;
      for (uint32_t piece = 0; piece < pieces; ++piece) {
        const Stretch own = piece_of(bytes, piece, pieces);
        if (own.count == 0) continue;
        ASSERT_EQ(own.begin, next) << bytes << " in " << pieces << ", piece " << piece;
        ASSERT_EQ(own.begin % 16, 0u);
        next += own.count;
      }
      ASSERT_EQ(next, bytes) << "in " << pieces;
    }
  }
}

}  // namespace
}  // namespace tcpx
