// Endpoints that compare checksums (UCCL_TCPX_CHECKSUM): whose setting counts, and that no operation is done with other bytes than were
// sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "base/environment.h"
#include "net/plugin_loader.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/same_bytes.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {

/// An endpoint on TCP; while `flip` of its plugin is set, each of its messages has one bit wrong.
struct Flipping {
  static constexpr size_t kInline = 4096;

  explicit Flipping(const char* checksums) {
    EXPECT_TRUE(environment_set(Variable::kChecksum, checksums).is_ok());
    EndpointConfig config = loopback_config();
    config.same_host = false;
    config.inline_bytes = kInline;
    auto parts = make_default_parts(config).value();
    auto faulty = std::make_unique<FaultyNetPlugin>(*PluginLoader::load({.path = "embedded"}).value().plugin, FaultPolicy{});
    plugin = faulty.get();
    parts.plugin = std::make_shared<LockedNetPlugin>(std::move(faulty));
    endpoint = EndpointMaker::make(std::move(parts), config).value();
    EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok());
  }
  FaultyNetPlugin* plugin = nullptr;
  std::unique_ptr<Endpoint> endpoint;
};

/// Two, connected, with memory at both.
struct FlippingPair {
  static constexpr size_t kBytes = 100'000;  // summed before the first byte leaves

  FlippingPair(bool at_writer, bool at_target) : FlippingPair(at_writer ? "on" : "", at_target ? "on" : "") {}
  FlippingPair(const char* at_writer, const char* at_target)
      : a(at_writer), b(at_target), here(*a.endpoint, kBytes), there(*b.endpoint, kBytes) {
    std::tie(at_a, at_b) = connect_pair(*a.endpoint, *b.endpoint);
    slot = b.endpoint->advertise(there.whole()).value();
    here.fill(3);
  }
  Status write(size_t bytes) {
    const LocalRange range = here.range(0, bytes);
    const RemoteRange remote{slot, 0};
    return a.endpoint->write(at_a, {&range, 1}, {&remote, 1});
  }
  Status read(size_t bytes) {
    const LocalRange range = here.range(0, bytes);
    const RemoteRange remote{slot, 0};
    return a.endpoint->read(at_a, {&range, 1}, {&remote, 1});
  }

  Flipping a, b;
  Memory here, there;
  ConnId at_a{}, at_b{};
  RemoteSlot slot{};
};

TEST(EndpointChecksums, OneEndThatHasThemIsEnough) {
  allow_log("TCPX_E_CORRUPT");
  for (const bool at_writer : {true, false}) {
    FlippingPair pair(at_writer, !at_writer);
    EXPECT_TRUE(pair.write(FlippingPair::kBytes).is_ok());
    pair.a.plugin->flip = pair.b.plugin->flip = true;
    Status status = pair.write(FlippingPair::kBytes);
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.to_string();
    status = pair.read(FlippingPair::kBytes);
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.to_string();
    pair.a.plugin->flip = pair.b.plugin->flip = false;
    EXPECT_TRUE(pair.write(FlippingPair::kBytes).is_ok()) << "the connection goes on";
    EXPECT_TRUE(pair.read(FlippingPair::kBytes).is_ok());
    EXPECT_TRUE(is_alive(*pair.a.endpoint, pair.at_a));
  }
}

// Also of what goes in a frame without checksums.
TEST(EndpointChecksums, ABitThatIsWrongInItsPlaceFailsAnyLengthAtBothEnds) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair(true, false);
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{1000}, Flipping::kInline, Flipping::kInline + 1}) {
    for (const OperationKind verb : kVerbs) {
      for (const bool flips : {true, false}) {
        SCOPED_TRACE(concat(name_of(verb), " of ", bytes, " bytes", flips ? ", flipped" : ""));
        std::ranges::fill(pair.there.bytes(), std::byte{0});
        pair.b.plugin->flip_placed = flips;
        const auto [sent, received] = move(verb, {*pair.a.endpoint, pair.at_a, {pair.here.range(0, bytes)}},
                                           {*pair.b.endpoint, pair.at_b, {pair.there.range(0, bytes)}});
        EXPECT_EQ(sent.code(), flips ? Code::kCorrupt : Code::kOk) << sent.to_string();
        EXPECT_EQ(received.code(), flips ? Code::kCorrupt : Code::kOk) << received.to_string();
        EXPECT_EQ(same(std::span(pair.here.bytes()).first(bytes), std::span(pair.there.bytes()).first(bytes)), !flips);
      }
    }
  }
  for (const auto& [end, conn] : {std::pair(&pair.a, pair.at_a), {&pair.b, pair.at_b}}) {
    const ConnectionStats stats = stats_of(*end->endpoint, conn);
    EXPECT_EQ(stats.inline_sent + stats.inline_received, 0u) << stats.path;
    EXPECT_EQ(stats.operations_done, stats.operations_failed);
  }
}

TEST(EndpointChecksums, NothingGoesInAFrameWithinAHost) {
  EXPECT_TRUE(environment_set(Variable::kChecksum, "on").is_ok());
  const auto a = make_endpoint(), b = make_endpoint_that_reads_nobody();
  EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok());
  const auto [at_a, at_b] = connect_pair(*a, *b);
  for (const size_t bytes : {1, 8, 5000}) {
    Memory here(*a, bytes), there(*b, bytes);
    for (const OperationKind verb : kVerbs) {
      for (const bool back : {false, true}) {
        here.fill(bytes + 1);
        there.fill(bytes + 2);
        const End at_here{*a, at_a, {here.whole()}}, at_there{*b, at_b, {there.whole()}};
        const auto [sent, received] = back ? move(verb, at_there, at_here) : move(verb, at_here, at_there);
        EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
        EXPECT_EQ(here.bytes(), there.bytes());
      }
    }
  }
  for (const auto& [end, conn] : {std::pair(a.get(), at_a), {b.get(), at_b}}) {
    const ConnectionStats stats = stats_of(*end, conn);
    EXPECT_EQ(stats.inline_sent + stats.inline_received, 0u) << stats.path;
  }
}

// So the tests here test something.
TEST(EndpointChecksums, WithoutThemAFlippedBitIsNotNoticed) {
  FlippingPair pair(false, false);
  pair.a.plugin->flip = true;
  EXPECT_TRUE(pair.write(FlippingPair::kBytes).is_ok());
  EXPECT_NE(pair.there.bytes(), pair.here.bytes());
}

TEST(EndpointChecksums, ASendThatLostABitFailsAtBothEnds) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair(true, true);
  pair.a.plugin->flip = true;
  const LocalRange out = pair.here.whole(), in = pair.there.whole();
  const auto received = pair.b.endpoint->recv_async(pair.at_b, {&in, 1}).value();
  const Status sent = pair.a.endpoint->send(pair.at_a, {&out, 1});
  EXPECT_EQ(sent.code(), Code::kCorrupt) << sent.to_string();
  const Status status = pair.b.endpoint->wait(received, kCallTime);
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.to_string();
  EXPECT_NE(status.detail().find("100000 bytes"), std::string::npos) << status.to_string();
}

TEST(EndpointChecksums, WhatFailsNamesItsConnectionItsWayAndItsRanges) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair(true, true);
  pair.a.plugin->flip = pair.b.plugin->flip = true;
  const std::vector<LocalRange> ranges{pair.here.range(0, 9000), pair.here.range(20'000, 9000)};
  const std::vector<RemoteRange> remote{{pair.slot, 50'000}, {pair.slot, 0}};
  const ConnectionStats stats = stats_of(*pair.a.endpoint, pair.at_a);
  for (const bool writes : {true, false}) {
    for (const size_t count : {2, 1}) {
      const auto here = std::span(ranges).first(count);
      const auto there = std::span(remote).first(count);
      const Status status =
          writes ? pair.a.endpoint->write(pair.at_a, here, there) : pair.a.endpoint->read(pair.at_a, here, there);
      ASSERT_EQ(status.code(), Code::kCorrupt) << status.to_string();
      const std::string begin =
          concat("connection ", static_cast<uint64_t>(pair.at_a), " to ", stats.peer, ", ", stats.path, ": operation ");
      EXPECT_EQ(status.detail().compare(0, begin.size(), begin), 0) << status.to_string();
      const std::string named = count == 1 ? ", range 0: 9000 bytes" : ", ranges 0 to 1: 18000 bytes";
      EXPECT_NE(status.detail().find(named), std::string::npos) << status.to_string();
      const std::string place = concat("; at this end between bytes 0 and ", count == 1 ? 9000 : 29'000, " of a registration of ",
                                       FlippingPair::kBytes);
      EXPECT_NE(status.detail().find(place), std::string::npos) << status.to_string();
    }
  }
  EXPECT_TRUE(logged("; at this end between bytes 50000 and 59000 of a registration of ")) << "by the peer";
  EXPECT_NE(stats.path.find("lo"), std::string::npos) << stats.path;
  EXPECT_TRUE(logged("of the peer: 9000 bytes"));
}

// Whatever the other end has: what it is told is as without.
TEST(EndpointChecksums, WithRetryAWriteOrReadIsStartedOnceMoreByTheEndThatStartedIt) {
  allow_log("TCPX_E_CORRUPT");
  for (const char* at_target : {"off", "on", "retry"}) {
    SCOPED_TRACE(at_target);
    FlippingPair pair("retry", at_target);
    const LocalRange range = pair.here.whole();
    const NotifyMsg message{.name = "told", .msg = "once"};
    for (const bool writes : {true, false}) {
      auto& plugin = writes ? pair.a.plugin : pair.b.plugin;
      pair.here.fill(writes ? 7 : 8);
      plugin->flip_next = 1;
      const Status status = writes ? pair.a.endpoint->write(pair.at_a, range, {pair.slot}, {.notify = &message})
                                   : pair.a.endpoint->read(pair.at_a, range, {pair.slot}, {.notify = &message});
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(plugin->flip_next, 0u);
      EXPECT_EQ(pair.there.bytes(), pair.here.bytes());
      EXPECT_EQ(pair.b.endpoint->wait_notifs(kCallTime).size(), 1u);
      EXPECT_EQ(stats_of(*pair.a.endpoint, pair.at_a).operations_repeated, writes ? 1u : 3u);
      plugin->flip_next = 2;
      EXPECT_EQ((writes ? pair.write(FlippingPair::kBytes) : pair.read(FlippingPair::kBytes)).code(), Code::kCorrupt);
      EXPECT_EQ(plugin->flip_next, 0u);
      EXPECT_EQ((writes ? pair.write(FlippingPair::kBytes) : pair.read(FlippingPair::kBytes)).code(), Code::kOk);
    }
    EXPECT_EQ(stats_of(*pair.a.endpoint, pair.at_a).operations_repeated, 4u);
    EXPECT_EQ(stats_of(*pair.b.endpoint, pair.at_b).operations_repeated, 0u) << "it has started none";
    EXPECT_TRUE(pair.b.endpoint->get_notifs().empty()) << "said twice";
  }
}

TEST(EndpointChecksums, WithRetryOnePartOfAPlanIsStartedOnceMore) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair("retry", "on");
  constexpr size_t kBlock = 4, kBlocks = FlippingPair::kBytes / kBlock;  // of which no two are neighbours at both ends
  std::vector<LocalRange> ranges;
  std::vector<RemoteRange> remote;
  for (size_t i = 0; i < kBlocks; ++i) {
    ranges.push_back(pair.here.range(i * kBlock, kBlock));
    remote.push_back({pair.slot, (kBlocks - 1 - i) * kBlock});
  }
  const TransferPlan plan = pair.a.endpoint->prepare(ranges, remote).value();
  const auto move = [&](bool writes) {
    const auto id = writes ? pair.a.endpoint->write_async(pair.at_a, plan) : pair.a.endpoint->read_async(pair.at_a, plan);
    return pair.a.endpoint->wait(id.value(), kCallTime);
  };
  for (uint64_t count = 1; count <= 40; ++count) {  // more than the peer's window takes without credit for what it found corrupt
    const bool writes = count % 2 == 0;
    pair.here.fill(count);
    (writes ? pair.a.plugin : pair.b.plugin)->flip_next = 1;
    const Status status = move(writes);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    for (size_t i = 0; i < kBlocks; ++i) {
      const std::span<const std::byte> here(pair.here.bytes()), there(pair.there.bytes());
      ASSERT_TRUE(same(here.subspan(i * kBlock, kBlock), there.subspan(remote[i].offset, kBlock))) << "block " << i;
    }
    const ConnectionStats stats = stats_of(*pair.a.endpoint, pair.at_a);
    EXPECT_EQ(stats.operations_repeated, count);
    EXPECT_EQ(stats.operations_done, count);
  }
}

TEST(EndpointChecksums, WithRetryTheSecondStartUsesASlotOnceMore) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair("retry", "on");
  const LocalRange range = pair.here.whole();
  for (const uint32_t uses : {1, 2, 3}) {
    const RemoteSlot slot = pair.b.endpoint->advertise(pair.there.whole(), {.uses = uses}).value();
    pair.a.plugin->flip_next = 1;
    EXPECT_EQ(pair.a.endpoint->write(pair.at_a, range, {slot}).code(), uses == 1 ? Code::kNotFound : Code::kOk);
    EXPECT_EQ(pair.a.endpoint->write(pair.at_a, range, {slot}).code(), uses == 3 ? Code::kOk : Code::kNotFound);
  }
}

TEST(EndpointChecksums, WithRetryManyFlippedBitsFailNothing) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair("retry", "on");
  std::mt19937 random(6);
  uint64_t flipped = 0;
  for (int i = 0; i < 500; ++i) {
    const size_t bytes = 1 + random() % 8192;
    const bool writes = random() % 2 == 0, flips = random() % 4 != 0;
    pair.here.fill(static_cast<uint64_t>(i));
    (writes ? pair.a.plugin : pair.b.plugin)->flip_next = flips ? 1 : 0;
    flipped += flips ? 1 : 0;
    const Status status = writes ? pair.write(bytes) : pair.read(bytes);
    ASSERT_TRUE(status.is_ok()) << i << ": " << status.to_string();
    ASSERT_TRUE(same(std::span(pair.there.bytes()).first(bytes), std::span(pair.here.bytes()).first(bytes))) << i;
  }
  EXPECT_EQ(stats_of(*pair.a.endpoint, pair.at_a).operations_repeated, flipped);
}

// Any length, any bit, one or both ways of a round trip.
TEST(EndpointChecksums, NoFlippedBitOfManyIsDoneWithWrongBytes) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair(true, false);
  std::mt19937 random(5);
  size_t noticed = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = 1 + random() % (i % 50 == 0 ? FlippingPair::kBytes : 8192);
    const bool flips = random() % 4 != 0;
    pair.a.plugin->flip = flips;
    const Status status = pair.write(bytes);
    ASSERT_EQ(status.code(), flips ? Code::kCorrupt : Code::kOk) << i << ", " << bytes << " bytes: " << status.to_string();
    if (status.is_ok()) {
      ASSERT_TRUE(same(std::span(pair.there.bytes()).first(bytes), std::span(pair.here.bytes()).first(bytes))) << i;
    } else {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 1000u);
}

}  // namespace
}  // namespace tcpx::testing
