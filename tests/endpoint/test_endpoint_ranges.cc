// Vectors and one-sided transfers: cut alike or differently at the ends, scattered to odd places, and never a byte beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/text.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;

/// Places of the pieces of a stream in a buffer: scattered, apart from each other, in any order.
struct Scatter {
  std::vector<size_t> lengths, places;
  size_t extent = 0;

  Scatter(std::vector<size_t> cut, uint64_t seed) : lengths(std::move(cut)), places(lengths.size()) {
    std::mt19937_64 random(seed);
    std::vector<size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      extent += 1 + random() % 13;
      places[i] = extent;
      extent += lengths[i];
    }
    extent += 3;
  }
  size_t bytes() const { return std::accumulate(lengths.begin(), lengths.end(), size_t{0}); }
  std::vector<LocalRange> ranges(MemoryId memory, std::byte* data) const {
    std::vector<LocalRange> list;
    for (size_t i = 0; i < lengths.size(); ++i) list.push_back({memory, data + places[i], lengths[i]});
    return list;
  }
  std::vector<RemoteRange> remote(const RemoteSlot& slot) const {
    std::vector<RemoteRange> list;
    for (const size_t place : places) list.push_back({slot, place});
    return list;
  }
  void fill(std::span<std::byte> buffer, uint64_t seed) const {
    size_t at = 0;
    for (size_t i = 0; i < lengths.size(); at += lengths[i++]) fill_pattern(buffer.subspan(places[i], lengths[i]), seed, at);
  }
  /// The pieces hold the stream, and all else is as `clear` left it.
  Status verify(std::span<const std::byte> buffer, uint64_t seed) const {
    std::vector<std::byte> rest(buffer.begin(), buffer.end());
    size_t at = 0;
    for (size_t i = 0; i < lengths.size(); at += lengths[i++]) {
      TCPX_RETURN_IF_ERROR(verify_pattern(buffer.subspan(places[i], lengths[i]), seed, at));
      std::memset(rest.data() + places[i], 0xee, lengths[i]);
    }
    // Byte by byte it would be most of the time of these tests.
    const std::vector<std::byte> clear(buffer.size(), std::byte{0xee});
    if (std::memcmp(rest.data(), clear.data(), clear.size()) == 0) return Status::ok();
    const auto touched = std::mismatch(rest.begin(), rest.end(), clear.begin()).first;
    return Status(Code::kMismatch, "verify", concat("byte ", touched - rest.begin(), " was touched"));
  }
};

std::vector<size_t> equal(size_t count, size_t bytes) {
  return std::vector<size_t>(count, bytes);
}

/// Cuts `bytes` into `count` pieces of any length, empty ones among them.
std::vector<size_t> cut(size_t bytes, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<size_t> ends = {0, bytes, bytes};
  while (ends.size() < count + 1) ends.push_back(random() % (bytes + 1));
  std::sort(ends.begin(), ends.end());
  std::vector<size_t> lengths;
  for (size_t i = 1; i < ends.size(); ++i) lengths.push_back(ends[i] - ends[i - 1]);
  return lengths;
}

struct Cuts {
  const char* name;
  std::vector<size_t> near, far;
};
std::vector<Cuts> many_cuts() {
  constexpr size_t kLarge = 300001;
  return {{"short, inline", {100, 0, 7, 1}, {1, 107}},
          {"nothing at all", {0, 0, 0}, {0}},
          {"one range", {70001}, {70001}},
          {"one and many", {70001}, cut(70001, 9, 1)},
          {"many and one", cut(70001, 9, 2), {70001}},
          {"two", {5000, 65001}, {65001, 5000}},
          {"many alike", equal(4096, 257), equal(4096, 257)},
          {"many differently", cut(1200000, 4096, 3), cut(1200000, 313, 4)},
          {"large ones alike", equal(4, kLarge), equal(4, kLarge)},
          {"large ones alike, with empty ones", {0, kLarge, 0, kLarge, 0}, {0, kLarge, 0, kLarge, 0}},
          {"large ones, empty ones at one end", {kLarge, kLarge}, {0, kLarge, kLarge, 0}},
          {"large ones differently", equal(4, kLarge), {4, 2 * kLarge - 4, 2 * kLarge}},
          {"one large, many small", {4 * kLarge}, cut(4 * kLarge, 1000, 6)}};
}

class EndpointRanges : public testing::EndpointPairTest {};
TCPX_OVER_SETUPS(EndpointRanges, testing::all_setups());

TEST_P(EndpointRanges, SendsAndReceivesAreStreamsThatTheEndsCutAsTheyLike) {
  uint64_t seed = 1;
  for (const Cuts& cuts : many_cuts()) {
    SCOPED_TRACE(cuts.name);
    const Scatter from(cuts.near, ++seed), to(cuts.far, ++seed);
    ASSERT_EQ(from.bytes(), to.bytes());
    GuardedBuffer source(from.extent), target(to.extent);
    from.fill(source.span(), seed);
    const MemoryId out = reg(a_, source.span()), in = reg(b_, target.span());
    const auto received = b_->recv_async(b_.conn, to.ranges(in, target.data()));
    ASSERT_TRUE(done(a_, a_->send_async(a_.conn, from.ranges(out, source.data()))));
    ASSERT_TRUE(done(b_, received));
    const Status same = to.verify(target.span(), seed);
    ASSERT_TRUE(same.is_ok()) << same.to_string();
    ASSERT_TRUE(target.guards_intact());
    ASSERT_TRUE(a_->deregister(out).is_ok());
    ASSERT_TRUE(b_->deregister(in).is_ok());
  }
}

TEST_P(EndpointRanges, WritesAndReadsScatterAtBothEnds) {
  uint64_t seed = 100;
  for (const auto& lengths : {equal(1, 1), equal(1, 4096), equal(1, 4097), equal(1, 3u << 20), equal(3, 0), cut(4000, 7, 1),
                              cut(70001, 9, 2), equal(4096, 257), cut(1200000, 4096, 3), equal(4, 300001), equal(40000, 33)}) {
    SCOPED_TRACE(concat(lengths.size(), " ranges, the first of ", lengths[0]));
    const Scatter here(lengths, ++seed), there(lengths, ++seed);
    GuardedBuffer near(here.extent), far(there.extent);
    const MemoryId mine = reg(a_, near.span()), theirs = reg(b_, far.span());
    const auto slot = b_->advertise(b_.conn, {theirs, far.data(), far.size()});
    ASSERT_TRUE(slot.is_ok()) << slot.status().to_string();
    here.fill(near.span(), seed);
    ASSERT_TRUE(done(a_, a_->write_async(a_.conn, here.ranges(mine, near.data()), there.remote(*slot))));
    Status same = there.verify(far.span(), seed);
    ASSERT_TRUE(same.is_ok()) << "written: " << same.to_string();
    near.clear();
    ASSERT_TRUE(done(a_, a_->read_async(a_.conn, here.ranges(mine, near.data()), there.remote(*slot))));
    same = here.verify(near.span(), seed);
    ASSERT_TRUE(same.is_ok()) << "read: " << same.to_string();
    ASSERT_TRUE(near.guards_intact() && far.guards_intact());
    ASSERT_TRUE(a_->deregister(mine).is_ok());
    ASSERT_TRUE(b_->deregister(theirs).is_ok());
  }
}

TEST_P(EndpointRanges, OneWriteGoesToSeveralSlots) {
  GuardedBuffer source(30000), first(10000), second(20000);
  fill_pattern(source.span(), 3);
  const LocalRange all = range(a_, source.span());
  const auto slot_of = [&](GuardedBuffer& buffer) { return b_->advertise(b_.conn, range(b_, buffer.span())).value(); };
  const LocalRange parts[] = {{all.memory, source.data(), 9999}, {all.memory, source.data() + 9999, 20000}};
  const RemoteRange places[] = {{slot_of(first), 1}, {slot_of(second), 0}};
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, parts, places)));
  EXPECT_TRUE(verify_pattern(first.span().subspan(1), 3).is_ok());
  EXPECT_EQ(first.data()[0], std::byte{0xee});
  EXPECT_TRUE(verify_pattern(second.span(), 3, 9999).is_ok());
}

// Every write has a place of its own: operations of a connection that are under way together have no order.
TEST_P(EndpointRanges, BothEndsWriteAndReadAtOnce) {
  constexpr size_t kBytes = 400000, kSmall = 1000, kRounds = 20;
  GuardedBuffer mine[2] = {GuardedBuffer(kBytes), GuardedBuffer(kBytes)};
  GuardedBuffer written[2] = {GuardedBuffer(kRounds * kBytes), GuardedBuffer(kRounds * kBytes)};
  GuardedBuffer asked[2] = {GuardedBuffer(kSmall), GuardedBuffer(kSmall)};
  GuardedBuffer fetched[2] = {GuardedBuffer(kRounds * kSmall), GuardedBuffer(kRounds * kSmall)};
  testing::Side* sides[2] = {&a_, &b_};
  RemoteSlot to_write[2], to_read[2];
  for (size_t i = 0; i < 2; ++i) {
    fill_pattern(mine[i].span(), i);
    fill_pattern(asked[i].span(), 50 + i);
    to_write[i] = (*sides[i])->advertise(sides[i]->conn, range(*sides[i], written[i].span())).value();
    to_read[i] = (*sides[i])->advertise(sides[i]->conn, range(*sides[i], asked[i].span())).value();
  }
  std::vector<Result<OperationId>> ids[2];
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const LocalRange out = range(*sides[i], mine[i].span());
      const LocalRange into = range(*sides[i], fetched[i].span().subspan(round * kSmall, kSmall));
      const RemoteRange target{to_write[1 - i], round * kBytes}, source{to_read[1 - i], 0};
      ids[i].push_back((*sides[i])->write_async(sides[i]->conn, {&out, 1}, {&target, 1}));
      ids[i].push_back((*sides[i])->read_async(sides[i]->conn, {&into, 1}, {&source, 1}));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    for (const auto& id : ids[i]) ASSERT_TRUE(done(*sides[i], id));
  }
  for (size_t i = 0; i < 2; ++i) {
    for (size_t round = 0; round < kRounds; ++round) {
      EXPECT_TRUE(verify_pattern(written[1 - i].span().subspan(round * kBytes, kBytes), i).is_ok()) << "write " << round;
      EXPECT_TRUE(verify_pattern(fetched[i].span().subspan(round * kSmall, kSmall), 50 + (1 - i)).is_ok()) << "read " << round;
    }
    EXPECT_TRUE(mine[i].guards_intact() && written[i].guards_intact() && fetched[i].guards_intact());
  }
}

}  // namespace
}  // namespace tcpx
