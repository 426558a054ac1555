// The arithmetic of the unpack kernel, run on the host: every thread's share, with every access checked.
#include "device/fragment_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "measure/pattern.h"

namespace tcpx {
namespace {

std::vector<uint32_t> tested_lengths() {
  std::vector<uint32_t> lengths;
  for (uint32_t n = 0; n <= 64; ++n) lengths.push_back(n);
  for (uint32_t n = 1440; n <= 1456; ++n) lengths.push_back(n);
  for (uint32_t n : {511u, 512u, 513u, 2047u, 2049u, 4095u, 4096u, 4097u, 65535u, 65536u}) lengths.push_back(n);
  return lengths;
}

/// Memory of one copy, with the ranges that may be touched.
struct Watched {
  std::span<const std::byte> source;
  std::span<std::byte> destination;
  std::vector<uint8_t> writes;  // per byte of the destination
  uint64_t bad_loads = 0;
  uint64_t bad_stores = 0;
  uint64_t word_loads = 0;
  uint64_t byte_loads = 0;
};

/// All lanes of a warp in lockstep, over watched memory.
class WatchedWarp {
 public:
  using Row = std::array<CopyWord, kWarpThreads>;
  using Bytes = std::array<std::byte, kWarpThreads>;

  explicit WatchedWarp(Watched* memory) : memory_(memory) {}

  Bytes load_bytes(const std::byte* from, uint32_t count) {
    Bytes bytes;
    bytes.fill(kUnset);
    for (uint32_t lane = 0; lane < std::min(count, kWarpThreads); ++lane) {
      ++memory_->byte_loads;
      if (check_load(from + lane, 1)) bytes[lane] = from[lane];
    }
    return bytes;
  }
  void store_bytes(std::byte* to, uint32_t count, const Bytes& bytes) {
    for (uint32_t lane = 0; lane < std::min(count, kWarpThreads); ++lane) {
      if (check_store(to + lane, 1)) to[lane] = bytes[lane];
    }
  }
  Row load_row(const std::byte* from, uint32_t row, uint32_t count) {
    Row words;
    std::memset(&words, static_cast<int>(kUnset), sizeof words);
    for (uint32_t lane = 0; lane < kWarpThreads && row * kWarpThreads + lane < count; ++lane) {
      ++memory_->word_loads;
      const std::byte* address = from + (row * kWarpThreads + lane) * kCopyWordBytes;
      if (check_load(address, kCopyWordBytes)) std::memcpy(&words[lane], address, kCopyWordBytes);
    }
    return words;
  }
  void store_row(std::byte* to, uint32_t row, uint32_t count, const Row& words) {
    for (uint32_t lane = 0; lane < kWarpThreads && row * kWarpThreads + lane < count; ++lane) {
      std::byte* address = to + (row * kWarpThreads + lane) * kCopyWordBytes;
      if (check_store(address, kCopyWordBytes)) std::memcpy(address, &words[lane], kCopyWordBytes);
    }
  }
  template <uint32_t kParts>
  Row shifted_row(const Row& low, const Row& above, uint32_t bits) {
    Row words{};
    for (uint32_t lane = 0; lane < kWarpThreads; ++lane) {
      words[lane] = cut_word<kParts>(low[lane], lane + 1 < kWarpThreads ? low[lane + 1] : above[0], bits);
    }
    return words;
  }

 private:
  static constexpr std::byte kUnset{0xee};  // value of a lane that has loaded nothing

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

/// @tparam kRows those that the kernels use: 2, 3 and 4.
template <bool kShifts, uint32_t kRows>
void copy_with_warp(Watched* memory, uint32_t bytes) {
  WatchedWarp warp(memory);
  copy_fragment<kShifts, kRows>(warp, memory->destination.data(), memory->source.data(), bytes);
}

class FragmentCopy : public ::testing::TestWithParam<int> {  // source alignment
 protected:
  static std::byte* align(std::vector<std::byte>& memory, uint32_t alignment) {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (16 - at % 16) % 16 + alignment;
  }
  /// Every byte is written once, and nothing else is touched.
  static void expect_whole(void (*copy)(Watched*, uint32_t), const std::byte* from, std::byte* to, uint32_t bytes) {
    Watched memory{{from, bytes}, {to, bytes}, std::vector<uint8_t>(bytes)};
    copy(&memory, bytes);
    ASSERT_EQ(memory.bad_loads, 0u);
    ASSERT_EQ(memory.bad_stores, 0u);
    ASSERT_EQ(memory.writes, std::vector<uint8_t>(bytes, 1));
    ASSERT_TRUE(bytes == 0 || std::memcmp(to, from, bytes) == 0);
  }
};

TEST_P(FragmentCopy, WritesEveryByteOnceAndTouchesNothingElse) {
  const auto source_alignment = static_cast<uint32_t>(GetParam());
  std::vector<std::byte> from(65536 + 64);
  std::vector<std::byte> to(65536 + 64);
  fill_pattern(from, 7);
  for (uint32_t alignment = 0; alignment < 16; ++alignment) {
    for (const uint32_t bytes : tested_lengths()) {
      for (const auto copy : {copy_with_warp<true, 3>, copy_with_warp<true, 4>}) {
        SCOPED_TRACE(::testing::Message() << "source +" << source_alignment << " destination +" << alignment << " bytes "
                                          << bytes);
        std::memset(to.data(), 0xa5, to.size());
        expect_whole(copy, align(from, source_alignment), align(to, alignment), bytes);
        if (HasFatalFailure()) return;
      }
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
    expect_whole(copy_with_warp<false, 2>, align(from, alignment), align(to, alignment), bytes);
    if (HasFatalFailure()) return;
  }
}

TEST_P(FragmentCopy, MovesPagesInWords) {
  const auto source_alignment = static_cast<uint32_t>(GetParam());
  std::vector<std::byte> from(4096 + 64);
  std::vector<std::byte> to(4096 + 64);
  for (uint32_t alignment = 0; alignment < 16; ++alignment) {
    Watched memory{{align(from, source_alignment), 4096}, {align(to, alignment), 4096}, std::vector<uint8_t>(4096)};
    copy_with_warp<true, 4>(&memory, 4096);
    EXPECT_LE(memory.byte_loads, 31u + 30u) << "one pass of 32 lanes at each end at most";
    EXPECT_LE(memory.word_loads, 256u + 1) << "every word once, and again the one between two rounds";
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

template <uint32_t kParts>
void expect_cuts(const std::byte (&bytes)[32]) {
  CopyWord low{};
  CopyWord high{};
  std::memcpy(&low, bytes, 16);
  std::memcpy(&high, bytes + 16, 16);
  for (uint32_t more = 0; more < 4; ++more) {
    const CopyWord word = cut_word<kParts>(low, high, more * 8);
    EXPECT_EQ(std::memcmp(&word, bytes + kParts * 4 + more, 16), 0) << "behind " << kParts * 4 + more << " bytes";
  }
}

TEST(CutWord, CutsSixteenBytesAtEveryOffset) {
  std::byte bytes[32];
  fill_pattern(bytes, 9);
  expect_cuts<0>(bytes);
  expect_cuts<1>(bytes);
  expect_cuts<2>(bytes);
  expect_cuts<3>(bytes);
}

TEST(Piece, PiecesTileAFragmentAndKeepItsAlignment) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  for (const uint32_t bytes : {1u, 15u, 16u, 17u, 4095u, 4096u, 4097u, 65536u, 4194304u, kMax - 16, kMax - 15, kMax}) {
    for (const uint32_t pieces_log2 : {0u, 1u, 2u, 4u, 10u, 14u}) {
      uint64_t next = 0;
      for (uint32_t piece = 0; piece < 1u << pieces_log2; ++piece) {
        const Stretch own = piece_of(bytes, piece, pieces_log2);
        if (own.count == 0) continue;
        ASSERT_EQ(own.begin, next) << bytes << " in 2^" << pieces_log2 << ", piece " << piece;
        ASSERT_EQ(own.begin % 16, 0u);
        ASSERT_LE(own.count, (uint64_t{bytes} >> pieces_log2) + 32) << "pieces are alike";
        next += own.count;
      }
      ASSERT_EQ(next, bytes) << "in 2^" << pieces_log2;
    }
  }
}

}  // namespace
}  // namespace tcpx
