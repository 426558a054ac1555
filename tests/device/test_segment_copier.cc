// SegmentCopier against a host loop: over host memory, and on a GPU, where all but the first two cases also cover every path of
// the CUDA copier. Those of the GPU are skipped without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/byte_sum.h"
#include "base/clock.h"
#include "base/memory_ops.h"
#include "device/gpu_presence.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"
#include "tests/support/plain_sum.h"
#include "tests/support/process_state.h"

namespace tcpx {
namespace {

using testing::must;

constexpr size_t kBytes = 8u << 20;
constexpr std::byte kGuard{0xEE};

Deadline late() {
  return Deadline::after(std::chrono::seconds(20));
}

enum class Place { kDevice, kMapped };

/// A buffer and its expected content.
struct Side {
  MemoryBuffer memory;
  std::vector<std::byte> expected;
};

class CopierTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    memory_ = GetParam() ? make_machine_memory_ops() : make_host_memory_ops();
    if (GetParam() && !memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    ASSERT_TRUE(memory_->set_current_device(0).is_ok());
    copier_ = must(memory_->make_segment_copier(0));
    lane_ = memory_->make_copy_lane(0).value();
  }

  Side make(Place place, uint64_t seed, size_t bytes = kBytes) {
    Side side{(place == Place::kDevice ? memory_->allocate_device(0, bytes) : memory_->allocate_mapped(0, bytes)).value(), {}};
    side.expected.resize(bytes, kGuard);
    if (seed != 0) fill_pattern(side.expected, seed, 0);
    EXPECT_TRUE(lane_->copy(side.memory.device(), side.expected.data(), bytes).is_ok());
    return side;
  }
  static CopySegment segment(const Side& to, size_t to_off, const Side& from, size_t from_off, size_t bytes) {
    return {to.memory.device() + to_off, from.memory.device() + from_off, bytes};
  }
  /// Expected result of the copy, computed by a host loop.
  static void expect(Side* to, const Side& from, const std::vector<CopySegment>& segments) {
    for (const CopySegment& s : segments) {
      for (size_t i = 0; i < s.bytes; ++i) {
        to->expected[static_cast<size_t>(s.to - to->memory.device()) + i] =
            from.expected[static_cast<size_t>(s.from - from.memory.device()) + i];
      }
    }
  }
  void wait(CopyTicket ticket) {
    const Deadline deadline = late();
    for (;;) {
      if (must(copier_->query(ticket))) return;
      ASSERT_FALSE(deadline.expired());
      std::this_thread::yield();
    }
  }
  void run(const std::vector<CopySegment>& segments) {
    const auto ticket = must(copier_->submit(segments));
    ASSERT_NO_FATAL_FAILURE(wait(ticket));
  }
  void check(const Side& side) {
    std::vector<std::byte> found(side.expected.size());
    ASSERT_TRUE(lane_->copy(found.data(), side.memory.device(), found.size()).is_ok());
    const auto wrong = std::mismatch(found.begin(), found.end(), side.expected.begin()).first;
    ASSERT_TRUE(wrong == found.end()) << "wrong at byte " << wrong - found.begin();
  }
  static const std::vector<std::pair<Place, Place>>& ways() {
    static const std::vector<std::pair<Place, Place>> all = {{Place::kDevice, Place::kDevice},
                                                             {Place::kMapped, Place::kDevice},
                                                             {Place::kDevice, Place::kMapped},
                                                             {Place::kMapped, Place::kMapped}};
    return all;
  }

  std::unique_ptr<MemoryOps> memory_;
  std::unique_ptr<SegmentCopier> copier_;
  std::unique_ptr<CopyLane> lane_;
};

TEST_P(CopierTest, AShortCopyIsSeenToEndBeforeALongOne) {
  constexpr size_t kLong = 256u << 20, kShort = 4096;
  const MemoryBuffer from = must(memory_->allocate_mapped(0, kLong)), to = must(memory_->allocate_device(0, kLong));
  const Side source = make(Place::kMapped, 3, kShort);
  Side target = make(Place::kDevice, 0, kShort);
  const CopySegment brief = segment(target, 0, source, 0, kShort);
  for (int i = 0; i < 3; ++i) run({brief});  // what is there for short ones has begun
  const CopyTicket long_one = must(copier_->submit(std::vector<CopySegment>{{to.device(), from.device(), kLong}}));
  const CopyTicket short_one = must(copier_->submit(std::vector<CopySegment>{brief}));
  while (!must(copier_->query_alone(short_one))) {
  }
  EXPECT_NE(must(copier_->query(long_one)), memory_->has_gpu()) << "some milliseconds over PCIe";
  EXPECT_TRUE(must(copier_->query_alone(short_one))) << "still";
  ASSERT_NO_FATAL_FAILURE(wait(short_one));
  EXPECT_TRUE(must(copier_->query(long_one)));
  target.expected = source.expected;
  check(target);
}

TEST_P(CopierTest, RefusesTooManySegmentsAndUnknownTickets) {
  EXPECT_EQ(copier_->query(CopyTicket{0}).status().code(), Code::kInvalidArgument);
  const std::vector<CopySegment> many(kMaxCopySegments + 1);
  EXPECT_EQ(copier_->submit(many).status().code(), Code::kInvalidArgument);
  const auto ticket = must(copier_->submit({}));
  EXPECT_TRUE(*copier_->query(ticket));
  EXPECT_EQ(copier_->query(CopyTicket{static_cast<uint64_t>(ticket) + 1}).status().code(), Code::kInvalidArgument);
}

TEST_P(CopierTest, SegmentsWithoutBytesTouchNothing) {
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 3);
  std::vector<CopySegment> segments(1000, segment(to, 5, from, 9, 0));
  run(segments);
  check(to);
  segments[500] = segment(to, 5, from, 9, 77);
  expect(&to, from, segments);
  run(segments);
  check(to);
}

TEST_P(CopierTest, CopiesEveryAlignmentAndShortLength) {
  for (const auto& [to_place, from_place] : ways()) {
    Side to = make(to_place, 0), from = make(from_place, 11);
    std::vector<CopySegment> segments;
    size_t at = 0;
    // 256 pairs of alignments with 65 lengths: 16640 segments, in two submits.
    for (size_t bytes = 0; bytes <= 64; ++bytes) {
      for (size_t a = 0; a < 256; ++a, at += 128) segments.push_back(segment(to, at + a / 16, from, at + a % 16 + 17, bytes));
    }
    expect(&to, from, segments);
    run({segments.begin(), segments.begin() + kMaxCopySegments});
    run({segments.begin() + kMaxCopySegments, segments.end()});
    check(to);
  }
}

TEST_P(CopierTest, CopiesLongSegmentsBesideShortOnes) {
  for (const auto& [to_place, from_place] : ways()) {
    for (const size_t shift : {0u, 1u, 4u, 15u}) {
      Side to = make(to_place, 0), from = make(from_place, 12);
      const std::vector<CopySegment> segments = {
          segment(to, 3, from, 3 + shift, 5), segment(to, 64, from, 64 + shift, (3u << 20) + 7),
          segment(to, 4u << 20, from, 100 + shift, 32768), segment(to, (4u << 20) + 32769, from, (5u << 20) + shift, 1)};
      expect(&to, from, segments);
      run(segments);
      check(to);
    }
  }
}

TEST_P(CopierTest, GathersAndScatters) {
  Side scattered = make(Place::kDevice, 13), packed = make(Place::kDevice, 0), back = make(Place::kDevice, 0);
  std::vector<CopySegment> gather, scatter;
  for (size_t i = 0; i < 32; ++i) {
    const size_t place = (i * 7 % 32) * 128 * 1024 + 48;
    gather.push_back(segment(packed, i * 32768, scattered, place, 32768));
    scatter.push_back(segment(back, place, packed, i * 32768, 32768));
  }
  expect(&packed, scattered, gather);
  run(gather);
  check(packed);
  expect(&back, packed, scatter);
  run(scatter);
  check(back);
}

// One after the other as fast as possible, so that a copier that keeps a kernel ready for the next one uses it.
TEST_P(CopierTest, CopiesShortMessagesInARow) {
  for (const auto& [to_place, from_place] : ways()) {
    Side to = make(to_place, 0), from = make(from_place, 14);
    std::mt19937_64 random(5);
    for (int i = 0; i < (testing::kIsChecked ? 300 : 3000); ++i) {
      static constexpr size_t kLengths[] = {1, 8, 31, 232, 233, 256, 257, 4096, 16383, 65536};
      const size_t bytes = kLengths[random() % std::size(kLengths)];
      const std::vector<CopySegment> one = {segment(to, random() % (kBytes - bytes), from, random() % (kBytes - bytes), bytes)};
      expect(&to, from, one);
      ASSERT_NO_FATAL_FAILURE(run(one));
      if (i % 500 == 0) {
        ASSERT_NO_FATAL_FAILURE(check(to));
      }
    }
    check(to);
  }
}

// A copy must read the bytes as of the submit, not those that an earlier copy of the same range left in a cache.
TEST_P(CopierTest, ReadsAnewWhatHasChanged) {
  Side device = make(Place::kDevice, 0, 65536), mapped = make(Place::kMapped, 0, 65536), back = make(Place::kMapped, 0, 65536);
  for (const size_t bytes : {8u, 200u, 4096u, 65536u}) {
    for (uint32_t i = 1; i <= 500; ++i) {
      std::memset(mapped.memory.host(), static_cast<int>(i & 0xff), bytes);
      ASSERT_NO_FATAL_FAILURE(run({segment(device, 0, mapped, 0, bytes)}));
      ASSERT_NO_FATAL_FAILURE(run({segment(back, 0, device, 0, bytes)}));
      ASSERT_EQ(std::memcmp(back.memory.host(), mapped.memory.host(), bytes), 0) << bytes << " bytes, round " << i;
    }
  }
}

TEST_P(CopierTest, SaysWhenItIsFullAndGoesOn) {
  Side to = make(Place::kDevice, 0), from = make(Place::kMapped, 15);
  std::vector<CopyTicket> flight;
  size_t oldest = 0, refused = 0, at = 0;
  for (int i = 0; i < 400; ++i) {
    // Segments of one submit and of those in flight are disjoint: there is room for all of them.
    std::vector<CopySegment> segments;
    const size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 7 : kMaxCopySegments;
    for (size_t s = 0; s < count; ++s, ++at) segments.push_back(segment(to, at, from, at, 1));
    ASSERT_LT(at, kBytes);
    expect(&to, from, segments);
    auto ticket = copier_->submit(segments);
    const Deadline deadline = late();
    while (!ticket.is_ok()) {
      ASSERT_EQ(ticket.status().code(), Code::kExhausted) << ticket.status().to_string();
      ASSERT_LT(oldest, flight.size());
      ASSERT_FALSE(deadline.expired());
      ++refused;
      if (must(copier_->query(flight[oldest]))) ++oldest;
      ticket = copier_->submit(segments);
    }
    EXPECT_TRUE(flight.empty() || flight.back() < *ticket);
    flight.push_back(*ticket);
  }
  wait(flight.back());
  for (const CopyTicket ticket : flight) EXPECT_TRUE(*copier_->query(ticket));
  check(to);
  // A copier that copies at once is never full.
  EXPECT_EQ(refused > 0, memory_->has_gpu());
}

TEST_P(CopierTest, WaitsWhenItIsDestroyed) {
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 16);
  for (int i = 0; i < (testing::kIsChecked ? 4 : 20); ++i) {
    const std::vector<CopySegment> segments = {segment(to, 0, from, static_cast<size_t>(i), 4u << 20),
                                               segment(to, 5u << 20, from, 0, 3),
                                               segment(to, 6u << 20, from, 1u << 20, 1u << 20)};
    expect(&to, from, segments);
    ASSERT_TRUE(copier_->submit(segments).is_ok());
    copier_ = memory_->make_segment_copier(0).value();
    check(to);
  }
}

class CopierSums : public CopierTest {
 protected:
  /// Compares the sum with that of the same bytes as the test expects them.
  void expect_sum(const Side& side, const std::vector<CopySegment>& segments, const ByteSumKey& key) {
    uint64_t sum = ~uint64_t{0};
    const auto ticket = must(copier_->submit_sum(key, segments, sum));
    ASSERT_NO_FATAL_FAILURE(wait(ticket));
    ASSERT_EQ(sum, expected(side, segments, key)) << segments.size() << " segments, the first of " << segments[0].bytes;
  }
  static uint64_t expected(const Side& side, const std::vector<CopySegment>& segments, const ByteSumKey& key) {
    return testing::plain_sum(key, segments,
                              [&](const std::byte* from) { return side.expected.data() + (from - side.memory.device()); });
  }
  static CopySegment source(const Side& side, size_t off, size_t bytes) { return {nullptr, side.memory.device() + off, bytes}; }
};

TEST_P(CopierSums, OfEveryLengthAtEveryAlignmentOfAddressAndPosition) {
  const ByteSumKey key(21);
  for (const Place place : {Place::kDevice, Place::kMapped}) {
    for (const bool random : {true, false}) {
      Side side = make(place, random ? 31 : 0);
      if (!random) {  // words as large as they can be
        std::fill(side.expected.begin(), side.expected.end(), std::byte{0xff});
        ASSERT_TRUE(lane_->copy(side.memory.device(), side.expected.data(), kBytes).is_ok());
      }
      for (size_t bytes = 0; bytes <= 300; bytes += random ? 1 : 13) {
        for (size_t address = 0; address < 4; ++address) {
          for (size_t position = 0; position < 4; ++position)
            ASSERT_NO_FATAL_FAILURE(
                expect_sum(side, {source(side, 4096, position), source(side, 512 * (bytes + 1) + address, bytes)}, key));
        }
      }
    }
  }
}

TEST_P(CopierSums, OfLongSegmentsAndManyOfThem) {
  Side side = make(Place::kDevice, 32);
  std::mt19937_64 random(6);
  for (int round = 0; round < 20; ++round) {
    const ByteSumKey key(random());
    const size_t count = round % 5 == 0 ? kMaxCopySegments : 1 + random() % 40;
    const size_t most = round % 5 == 0 ? 500 : kBytes / (round % 2 == 0 ? 1 : 100);
    std::vector<CopySegment> segments;
    for (size_t i = 0; i < count; ++i) {
      const size_t bytes = random() % most;
      segments.push_back(source(side, random() % (kBytes - bytes), bytes));
    }
    ASSERT_NO_FATAL_FAILURE(expect_sum(side, segments, key));
  }
}

// More bytes than pieces of the usual length, in memory that is summed again and again.
TEST_P(CopierSums, OfMoreThanAListOfUsualPiecesHolds) {
  const ByteSumKey key(22);
  Side side = make(Place::kDevice, 33);
  ASSERT_NO_FATAL_FAILURE(expect_sum(side, std::vector<CopySegment>(24, source(side, 3, kBytes - 3)), key));
}

// Whoever waits for the last one has the sums of all.
TEST_P(CopierSums, ManyAreInFlightBesideCopiesAndOneThatIsFullSaysSo) {
  const ByteSumKey key(23);
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 34);
  std::vector<uint64_t> sums(300, ~uint64_t{0});
  std::vector<std::vector<CopySegment>> summed;
  CopyTicket last{};
  const Deadline deadline = late();
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::vector<CopySegment> copies = {segment(to, i * 4096, from, i * 4096, 4000),
                                             segment(to, i * 4096 + 4001, from, 5, 9)};
    expect(&to, from, copies);
    summed.push_back({source(from, i, 1 + i * 1000), source(from, 7 * i, 33)});
    for (const bool sum : {false, true}) {
      for (;;) {
        const auto ticket = sum ? copier_->submit_sum(key, summed[i], sums[i]) : copier_->submit(copies);
        if (ticket.is_ok()) {
          last = *ticket;
          break;
        }
        ASSERT_EQ(ticket.status().code(), Code::kExhausted) << ticket.status().to_string();
        ASSERT_FALSE(deadline.expired());
        (void)must(copier_->query(last));
      }
    }
  }
  wait(last);
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], expected(from, summed[i], key)) << i;
  check(to);
}

// Copies are compared with what the test expects, and their sums with the oracle of the host over that.
class SummedCopies : public CopierSums {
 protected:
  /// @param begin, behind bytes of the string before and after those of the segments
  void expect_part(Side* to, const Side& from, const std::vector<CopySegment>& segments, uint64_t begin, uint64_t behind) {
    const ByteSumKey key(begin + 41);
    uint64_t total = begin + behind;
    for (const CopySegment& segment : segments) total += segment.bytes;
    const SumPlace place{key, begin, total};
    expect(to, from, segments);
    uint64_t part = ~uint64_t{0};
    const auto ticket = must(copier_->submit_summed(segments, place, part));
    ASSERT_NO_FATAL_FAILURE(wait(ticket));
    const auto open = [to](const std::byte* at) { return to->expected.data() + (at - to->memory.device()); };
    ASSERT_EQ(part, testing::plain_part(place, segments, open))
        << segments.size() << " segments, the first of " << segments[0].bytes;
  }
};

TEST_P(SummedCopies, OfOneSegmentOfAnyLengthAtOddAddressesAndPositions) {
  std::mt19937_64 random(43);
  for (const auto& [to_place, from_place] : ways()) {
    Side to = make(to_place, 0), from = make(from_place, 44);
    static constexpr size_t kLengths[] = {0,
                                          1,
                                          2,
                                          3,
                                          4,
                                          5,
                                          255,
                                          256,
                                          4097,
                                          65535,
                                          65536,
                                          65537,
                                          262147,
                                          1u << 20,
                                          4u << 20,
                                          (4u << 20) + 1,
                                          (4u << 20) + 3,
                                          5u << 20,
                                          kBytes - 64};
    for (const size_t bytes : kLengths) {
      for (uint64_t i = 0; i < (bytes < 1u << 20 ? 6 : 1); ++i) {
        const size_t to_off = random() % 33, from_off = random() % 33;
        ASSERT_NO_FATAL_FAILURE(
            expect_part(&to, from, {segment(to, to_off, from, from_off, bytes)}, random() % 1000 + i, random() % 9));
      }
    }
    ASSERT_NO_FATAL_FAILURE(check(to));
  }
}

// Many in a string are cut into stretches, too; one may lie in several.
TEST_P(SummedCopies, OfManySegmentsCutAnywhere) {
  std::mt19937_64 random(45);
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 46);
  for (int round = 0; round < 16; ++round) {
    const size_t most = size_t{1} << (6 + round % 16);
    std::vector<CopySegment> segments;
    for (size_t at = random() % 5; segments.size() < kMaxCopySegments;) {
      const size_t bytes = round % 3 == 0 ? most : random() % most;
      if (at + bytes > kBytes) break;
      segments.push_back(segment(to, at, from, random() % (kBytes - bytes + 1), bytes));
      at += bytes + random() % 3;
    }
    ASSERT_NO_FATAL_FAILURE(expect_part(&to, from, segments, uint64_t{1} << round, random() % 7));
  }
  check(to);
}

// The parts of a string add up to its sum, wherever it is cut.
TEST_P(SummedCopies, AddUpToTheSumOfTheWhole) {
  std::mt19937_64 random(47);
  const ByteSumKey key(48);
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 49);
  for (int round = 0; round < 10; ++round) {
    const size_t total = 1 + random() % kBytes;
    uint64_t sum = 0;
    for (size_t at = 0; at < total;) {
      const size_t bytes = std::min<size_t>(1 + random() % (total / 3 + 1), total - at);
      uint64_t part = 0;
      const auto ticket = must(copier_->submit_summed(std::vector{segment(to, at, from, at, bytes)}, {key, at, total}, part));
      ASSERT_NO_FATAL_FAILURE(wait(ticket));
      sum = ByteSumKey::add(sum, part);
      at += bytes;
    }
    uint64_t whole = 0;
    wait(must(copier_->submit_sum(key, std::vector{source(from, 0, total)}, whole)));
    ASSERT_EQ(sum, whole) << total;
  }
}

// A byte that is changed there later shows.
TEST_P(SummedCopies, OfTheTargetAndNotOfTheSource) {
  Side to = make(Place::kDevice, 50), from = make(Place::kDevice, 51);
  const ByteSumKey key(52);
  for (const size_t bytes : {size_t{1}, size_t{1000}, kBytes}) {
    uint64_t before = 0, part = 0, after = 0;
    wait(must(copier_->submit_summed(std::vector{segment(to, 0, from, 0, bytes)}, {key, 0, bytes}, part)));
    wait(must(copier_->submit_sum(key, std::vector{source(to, 0, bytes)}, before)));
    ASSERT_EQ(part, before);
    ASSERT_EQ(part, expected(from, {source(from, 0, bytes)}, key));
    const std::byte other = ~from.expected[bytes / 2];
    ASSERT_TRUE(lane_->copy(to.memory.device() + bytes / 2, &other, 1).is_ok());
    wait(must(copier_->submit_sum(key, std::vector{source(to, 0, bytes)}, after)));
    ASSERT_NE(part, after) << "one byte of " << bytes << " was changed";
  }
}

TEST_P(SummedCopies, ManyAreInFlightAndShortOnesAreSeenAlone) {
  Side to = make(Place::kDevice, 0), from = make(Place::kDevice, 53);
  const ByteSumKey key(54);
  constexpr size_t kLong = 6u << 20, kShort = 500, kCount = 100;
  std::vector<uint64_t> parts(kCount, ~uint64_t{0});
  uint64_t whole = ~uint64_t{0};
  const std::vector<CopySegment> long_one = {segment(to, 0, from, 0, kLong)};
  expect(&to, from, long_one);
  const auto first = must(copier_->submit_summed(long_one, {key, 0, kLong}, whole));
  const Deadline deadline = late();
  CopyTicket last{};
  for (size_t i = 0; i < kCount; ++i) {
    const std::vector<CopySegment> one = {segment(to, kLong + i * kShort, from, i, kShort)};
    expect(&to, from, one);
    for (;;) {
      const auto ticket = copier_->submit_summed(one, {key, i, i + kShort}, parts[i]);
      if (ticket.is_ok()) {
        last = *ticket;
        break;
      }
      ASSERT_EQ(ticket.status().code(), Code::kExhausted) << ticket.status().to_string();
      ASSERT_FALSE(deadline.expired());
      (void)must(copier_->query(first));
    }
    while (!must(copier_->query_alone(last))) ASSERT_FALSE(deadline.expired());
    const SumPlace place{key, i, i + kShort};
    ASSERT_EQ(parts[i], testing::plain_part(place, one,
                                            [&](const std::byte* at) { return to.expected.data() + (at - to.memory.device()); }))
        << i;
  }
  wait(last);
  EXPECT_EQ(whole, testing::plain_part({key, 0, kLong}, long_one,
                                       [&](const std::byte* at) { return to.expected.data() + (at - to.memory.device()); }));
  check(to);
}

TEST_P(CopierSums, OfNothingAndOfTooMany) {
  const ByteSumKey key(24);
  uint64_t sum = 5;
  const std::vector<CopySegment> many(kMaxCopySegments + 1);
  EXPECT_EQ(copier_->submit_sum(key, many, sum).status().code(), Code::kInvalidArgument);
  for (const size_t count : {size_t{0}, kMaxCopySegments}) {
    sum = 5;
    wait(must(copier_->submit_sum(key, std::span(many).first(count), sum)));
    EXPECT_EQ(sum, 0u) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, SummedCopies, ::testing::Bool(),
                         [](const auto& which) { return which.param ? std::string("Gpu") : std::string("Host"); });
INSTANTIATE_TEST_SUITE_P(Memory, CopierSums, ::testing::Bool(),
                         [](const auto& which) { return which.param ? std::string("Gpu") : std::string("Host"); });
INSTANTIATE_TEST_SUITE_P(Memory, CopierTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? std::string("Gpu") : std::string("Host"); });

}  // namespace
}  // namespace tcpx
