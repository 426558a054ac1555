// SegmentCopier against a host loop: over host memory, and on a GPU, where all but the first two cases also cover every path of
// the CUDA copier. Those of the GPU are skipped without one.
#include "tests/device/copier_test.h"

namespace tcpx::testing {
namespace {

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
    for (int i = 0; i < (kIsChecked ? 300 : 3000); ++i) {
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
  for (int i = 0; i < (kIsChecked ? 4 : 20); ++i) {
    const std::vector<CopySegment> segments = {segment(to, 0, from, static_cast<size_t>(i), 4u << 20),
                                               segment(to, 5u << 20, from, 0, 3),
                                               segment(to, 6u << 20, from, 1u << 20, 1u << 20)};
    expect(&to, from, segments);
    ASSERT_TRUE(copier_->submit(segments).is_ok());
    copier_ = memory_->make_segment_copier(0).value();
    check(to);
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, CopierTest, ::testing::Bool(), name_of_memory);

}  // namespace
}  // namespace tcpx::testing
