// Checksums that a SegmentCopier computes, of memory as it is and of what it has copied. Those of the GPU are skipped without one.
#include "tests/device/copier_test.h"
#include "tests/support/plain_sum.h"

namespace tcpx::testing {
namespace {

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
    return plain_sum(key, segments,
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
    ASSERT_EQ(part, plain_part(place, segments, open))
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
    ASSERT_EQ(parts[i], plain_part(place, one,
                                            [&](const std::byte* at) { return to.expected.data() + (at - to.memory.device()); }))
        << i;
  }
  wait(last);
  EXPECT_EQ(whole, plain_part({key, 0, kLong}, long_one,
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

INSTANTIATE_TEST_SUITE_P(Memory, SummedCopies, ::testing::Bool(), name_of_memory);
INSTANTIATE_TEST_SUITE_P(Memory, CopierSums, ::testing::Bool(), name_of_memory);

}  // namespace
}  // namespace tcpx::testing
