// Transfers of an Endpoint: sends that meet receives, of every size around a limit, in any order, both ways at once. The bodies
// run over every plugin, kind of memory, driver and number of channels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "lanes/net/net_lane.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;
using Ids = std::vector<Result<OperationId>>;

class EndpointTransfers : public testing::EndpointPairTest {};
TCPX_OVER_SETUPS(EndpointTransfers, testing::all_setups());

TEST_P(EndpointTransfers, EverySizeArrivesWhole) {
  constexpr size_t kMax = (5u << 20) + 3;
  const size_t chunk = 512u << 10;
  GuardedBuffer source(kMax), target(kMax);
  const MemoryId from = reg(a_, source.span()), to = reg(b_, target.span());
  const size_t sizes[] = {
      0, 1, 7, 4095, 4096, 4097, chunk - 1, chunk, chunk + 1, kParcelBytes - 1, kParcelBytes, kParcelBytes + 1, kMax};
  uint64_t seed = 1;
  for (const bool posted_first : {true, false}) {
    for (const size_t bytes : sizes) {
      SCOPED_TRACE(bytes);
      fill_pattern(source.span(), ++seed);
      target.clear();
      const LocalRange out{from, source.data(), bytes}, in{to, target.data(), bytes};
      Result<OperationId> sent = Status(Code::kInternal, "test", "not started"), received = sent;
      if (posted_first) received = b_->recv_async(b_.conn, {&in, 1});
      sent = a_->send_async(a_.conn, {&out, 1});
      if (!posted_first) received = b_->recv_async(b_.conn, {&in, 1});
      ASSERT_TRUE(done(b_, received));
      ASSERT_TRUE(done(a_, sent));
      const Status same = verify_pattern(target.span().first(bytes), seed);
      ASSERT_TRUE(same.is_ok()) << same.to_string();
      ASSERT_TRUE(testing::all_are(target.span().subspan(bytes), std::byte{0xee}));
      ASSERT_TRUE(target.guards_intact());
    }
  }
}

TEST_P(EndpointTransfers, OneRangeNeedsNoSpanAndSlotsTravelAsSends) {
  constexpr size_t kBytes = 100'000;
  GuardedBuffer source(kBytes), target(2 * kBytes);
  const MemoryId from = reg(a_, source.span()), to = reg(b_, target.span());
  fill_pattern(source.span(), 1);
  const auto advertised = b_->advertise(b_.conn, {to, target.data(), 2 * kBytes});
  ASSERT_TRUE(advertised.is_ok());
  auto shipped = std::async(std::launch::async, [&] { return b_->send_slot(b_.conn, *advertised, testing::kTestDeadline); });
  const auto slot = a_->recv_slot(a_.conn, testing::kTestDeadline);
  while (shipped.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) (void)a_->progress();
  ASSERT_TRUE(shipped.get().is_ok());
  ASSERT_TRUE(slot.is_ok()) << slot.status().to_string();
  EXPECT_EQ(std::memcmp(&*slot, &*advertised, sizeof(RemoteSlot)), 0);

  const LocalRange out{from, source.data(), kBytes}, in{to, target.data(), kBytes};
  const auto received = b_->recv_async(b_.conn, in);
  ASSERT_TRUE(done(a_, a_->send_async(a_.conn, out)));
  ASSERT_TRUE(done(b_, received));
  EXPECT_TRUE(verify_pattern(target.span().first(kBytes), 1).is_ok());
  ASSERT_TRUE(done(a_, a_->write_async(a_.conn, out, {*slot, kBytes})));
  EXPECT_TRUE(verify_pattern(target.span().last(kBytes), 1).is_ok());
  target.clear();
  fill_pattern(target.span(), 2);
  ASSERT_TRUE(done(a_, a_->read_async(a_.conn, out, {*slot})));
  EXPECT_TRUE(verify_pattern(source.span(), 2).is_ok());
  EXPECT_TRUE(target.guards_intact() && source.guards_intact());
}

TEST_P(EndpointTransfers, WhatIsNoSlotIsSaidToBeNone) {
  GuardedBuffer bytes(sizeof(RemoteSlot));
  const LocalRange range{reg(a_, bytes.span()), bytes.data(), bytes.size()};
  const auto sent = a_->send_async(a_.conn, range);
  const auto slot = b_->recv_slot(b_.conn, testing::kTestDeadline);
  ASSERT_TRUE(done(a_, sent));
  EXPECT_EQ(slot.status().code(), Code::kProtocol) << slot.status().to_string();
  EXPECT_EQ(a_->send_slot(a_.conn, RemoteSlot{}).code(), Code::kInvalidArgument);
}

TEST_P(EndpointTransfers, TheNthSendMeetsTheNthReceiveWhateverTheirSizes) {
  constexpr size_t kCount = 200, kRoom = 300u << 10;
  std::mt19937_64 random(5);
  std::vector<size_t> sizes(kCount);
  for (size_t& bytes : sizes) {
    const size_t limits[] = {0, 64, 4096, 20000, 300000};
    bytes = random() % (limits[random() % 5] + 1);
  }
  std::vector<size_t> begins(kCount + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  GuardedBuffer source(begins.back() + 1), target(begins.back() + 1);
  static_assert(kRoom >= 300000);
  fill_pattern(source.span(), 9);
  const MemoryId from = reg(a_, source.span()), to = reg(b_, target.span());
  Ids sends, receives;
  // Bursts of either end in turn, so that sends find receives and receives find sends.
  for (size_t sent = 0, received = 0; sent < kCount || received < kCount;) {
    for (size_t burst = random() % 20; burst > 0 && sent < kCount; --burst, ++sent) {
      const LocalRange out{from, source.data() + begins[sent], sizes[sent]};
      sends.push_back(a_->send_async(a_.conn, {&out, 1}));
    }
    for (size_t burst = random() % 20; burst > 0 && received < kCount; --burst, ++received) {
      const LocalRange in{to, target.data() + begins[received], sizes[received]};
      receives.push_back(b_->recv_async(b_.conn, {&in, 1}));
    }
  }
  // Their ends are asked for in any order.
  std::vector<size_t> order(kCount);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    ASSERT_TRUE(done(b_, receives[i]));
    const Status same = verify_pattern({target.data() + begins[i], sizes[i]}, 9, begins[i]);
    ASSERT_TRUE(same.is_ok()) << "receive " << i << ": " << same.to_string();
  }
  for (const size_t i : order) ASSERT_TRUE(done(a_, sends[i]));
  EXPECT_TRUE(target.guards_intact());
  EXPECT_EQ(a_->stats().operations_outstanding, 0u);
}

TEST_P(EndpointTransfers, AConnectionCarriesBothDirectionsAtOnce) {
  constexpr size_t kBytes = 700001;
  constexpr int kRounds = 6;
  GuardedBuffer out_a(kBytes), in_a(kBytes * kRounds), out_b(kBytes), in_b(kBytes * kRounds);
  fill_pattern(out_a.span(), 1);
  fill_pattern(out_b.span(), 2);
  const LocalRange from_a = range(a_, out_a.span()), from_b = range(b_, out_b.span());
  const MemoryId to_a = reg(a_, in_a.span()), to_b = reg(b_, in_b.span());
  Ids of_a, of_b;
  for (int i = 0; i < kRounds; ++i) {
    const LocalRange into_a{to_a, in_a.data() + i * kBytes, kBytes}, into_b{to_b, in_b.data() + i * kBytes, kBytes};
    of_a.push_back(a_->send_async(a_.conn, {&from_a, 1}));
    of_b.push_back(b_->send_async(b_.conn, {&from_b, 1}));
    of_a.push_back(a_->recv_async(a_.conn, {&into_a, 1}));
    of_b.push_back(b_->recv_async(b_.conn, {&into_b, 1}));
  }
  for (const auto& id : of_a) ASSERT_TRUE(done(a_, id));
  for (const auto& id : of_b) ASSERT_TRUE(done(b_, id));
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_TRUE(verify_pattern(in_a.span().subspan(i * kBytes, kBytes), 2).is_ok()) << i;
    EXPECT_TRUE(verify_pattern(in_b.span().subspan(i * kBytes, kBytes), 1).is_ok()) << i;
  }
  EXPECT_TRUE(in_a.guards_intact() && in_b.guards_intact());
}

TEST_P(EndpointTransfers, StatisticsCountWhatThePeerHasMoved) {
  constexpr size_t kBytes = 600000;
  GuardedBuffer near(kBytes), far(kBytes);
  const LocalRange here = range(a_, near.span()), there = range(b_, far.span());
  const RemoteSlot slot = b_->advertise(there).value();
  for (const size_t bytes : {kBytes, size_t{8}}) {
    const LocalRange part{here.memory, here.data, bytes};
    ASSERT_TRUE(done(a_, a_->write_async(a_.conn, part, {slot})));
    ASSERT_TRUE(done(a_, a_->read_async(a_.conn, part, {slot})));
  }
  EXPECT_EQ(b_->stats().connections.at(0).bytes_received, kBytes + 8);
  // The reader may know of the end first.
  EXPECT_TRUE(testing::wait_until([&] { return b_->stats().connections.at(0).bytes_sent == kBytes + 8; }));
  EXPECT_EQ(b_->stats().connections.at(0).operations_done, 0u) << "they are the peer's";
}

TEST_P(EndpointTransfers, StatisticsCountWhatHasMoved) {
  constexpr size_t kBytes = 600000;
  GuardedBuffer source(kBytes), target(kBytes);
  const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
  const LocalRange small_out{out.memory, out.data, 8}, small_in{in.memory, in.data, 8};
  for (const auto& [send, recv] : {std::pair{out, in}, std::pair{small_out, small_in}}) {
    const auto received = b_->recv_async(b_.conn, {&recv, 1});
    ASSERT_TRUE(done(a_, a_->send_async(a_.conn, {&send, 1})));
    ASSERT_TRUE(done(b_, received));
  }
  const EndpointStats a = a_->stats(), b = b_->stats();
  ASSERT_EQ(a.connections.size(), 1u);
  ASSERT_EQ(b.connections.size(), 1u);
  EXPECT_EQ(a.registered_regions, 1u);
  EXPECT_EQ(a.operations_outstanding, 0u);
  const ConnectionStats& sender = a.connections[0];
  const ConnectionStats& receiver = b.connections[0];
  EXPECT_EQ(sender.conn, a_.conn);
  EXPECT_TRUE(sender.alive);
  EXPECT_EQ(sender.bytes_sent, kBytes + 8);
  EXPECT_EQ(receiver.bytes_received, kBytes + 8);
  EXPECT_EQ(sender.bytes_received, 0u);
  const uint64_t in_frames = setup_.checksums ? 0 : 1;
  EXPECT_EQ(sender.inline_sent, in_frames);
  EXPECT_EQ(receiver.inline_received, in_frames);
  EXPECT_EQ(sender.operations_done, 2u);
  EXPECT_EQ(sender.operations_failed, 0u);
  EXPECT_EQ(sender.operations_pending, 0u);
  EXPECT_EQ(sender.latency.count, 2u);
  EXPECT_GT(sender.latency.quantile(1.0).count(), 0);
  EXPECT_EQ(sender.chunks_in_flight, 0u);
  EXPECT_GT(sender.window_chunks, 0u);
  uint64_t nic_bytes = 0;
  for (const NicStats& nic : sender.nics) nic_bytes += nic.bytes_sent;
  EXPECT_EQ(nic_bytes, GetParam().same_host ? 0 : kBytes + 8 - 8 * in_frames);
}

}  // namespace
}  // namespace tcpx
