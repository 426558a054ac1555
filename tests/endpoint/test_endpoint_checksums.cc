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

namespace tcpx::testing {
namespace {

/// An endpoint on TCP; while `flip` of its plugin is set, each of its messages has one bit wrong.
struct Flipping {
  static constexpr size_t kInline = 4096;

  explicit Flipping(bool checksums) {
    EXPECT_TRUE(environment_set(Variable::kChecksum, checksums ? "on" : "").is_ok());
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

  FlippingPair(bool at_writer, bool at_target) : a(at_writer), b(at_target), here(*a.endpoint, kBytes), there(*b.endpoint, kBytes) {
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
    }
  }
  EXPECT_NE(stats.path.find("lo"), std::string::npos) << stats.path;
  EXPECT_TRUE(logged("of the peer: 9000 bytes"));
}

// Any length, any bit, one or both ways of a round trip.
TEST(EndpointChecksums, NoFlippedBitOfManyIsDoneWithWrongBytes) {
  allow_log("TCPX_E_CORRUPT");
  FlippingPair pair(true, false);
  std::mt19937 random(5);
  size_t noticed = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = Flipping::kInline + 1 + random() % (i % 50 == 0 ? FlippingPair::kBytes - Flipping::kInline : 8192);
    const bool flips = random() % 4 != 0;
    pair.a.plugin->flip = flips;
    const Status status = pair.write(bytes);
    ASSERT_EQ(status.code(), flips ? Code::kCorrupt : Code::kOk) << i << ", " << bytes << " bytes: " << status.to_string();
    if (status.is_ok()) {
      ASSERT_TRUE(std::equal(pair.there.bytes().begin(), pair.there.bytes().begin() + bytes, pair.here.bytes().begin())) << i;
    } else {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 1000u);
}

}  // namespace
}  // namespace tcpx::testing
