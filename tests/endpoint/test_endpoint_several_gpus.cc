// One endpoint with memory of several GPUs: which reaches which, and by what way bytes go that its own GPU does not reach. Host
// memory stands in for all of them; copiers of the test see to it that each touches only what its GPU reaches.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "lanes/net/net_lane.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/expect_log.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/several_gpus.h"
#include "tests/support/units.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {
namespace {

constexpr int kOwn = 0, kOther = 1;  // GPUs
constexpr size_t kPool = 3 * kMiB;

class EndpointSeveralGpus : public EndpointTest {
 protected:
  /// Connects `a_` and `b_`, endpoints of kOwn. @param steered over a plugin whose flows go to a GPU
  void start(bool peers, bool steered, bool checksums = false) {
    ASSERT_NO_FATAL_FAILURE(set_up({.plugin = PluginKind::kFake, .memory = MemoryType::kCuda, .checksums = checksums}));
    auto gpus = std::make_shared<SeveralGpus>(3);
    gpus_ = gpus.get();
    if (peers) gpus->let_reach(kOwn, kOther);
    memory_ = std::move(gpus);
    below_ = plugin_;
    FaultPolicy policy;
    policy.vendor_rules = steered;
    // Refuses nothing; counts what it is given of the other GPU.
    policy.refuses = [this](const void* data, size_t, MemoryType) {
      if (gpus_->gpu_of(data) == kOther) ++given_of_other_;
      return false;
    };
    auto faulty = std::make_unique<FaultyNetPlugin>(*below_, std::move(policy));
    faulty_ = faulty.get();
    plugin_ = std::make_shared<LockedNetPlugin>(std::move(faulty));
    for (auto& pool : pools_) {
      pool.own = memory_->allocate_device(kOwn, kPool).value();
      pool.other = memory_->allocate_device(kOther, kPool).value();
    }
    ASSERT_NO_FATAL_FAILURE(make_pair());
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }

  struct Pools {
    MemoryBuffer own, other;
    std::span<std::byte> of(int gpu) { return {(gpu == kOwn ? own : other).device(), kPool}; }
  };

  /// `count` ranges of `bytes` each in the memory of `gpu`, with room between them.
  std::vector<LocalRange> ranges(const Side& side, Pools& pools, int gpu, size_t count, size_t bytes) {
    const auto memory = pools.of(gpu);
    const auto id = side->register_memory(memory.data(), memory.size());
    EXPECT_TRUE(id.is_ok()) << id.status().to_string();
    std::vector<LocalRange> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back({id.is_ok() ? *id : MemoryId{}, memory.data() + 7 + i * (bytes + 13), bytes});
    return all;
  }
  static void fill(const std::vector<LocalRange>& ranges, uint64_t seed) {
    for (const LocalRange& range : ranges) fill_pattern({static_cast<std::byte*>(range.data), range.bytes}, seed++);
  }
  static bool holds(const std::vector<LocalRange>& ranges, uint64_t seed) {
    return std::all_of(ranges.begin(), ranges.end(), [&](const LocalRange& range) {
      return verify_pattern({static_cast<std::byte*>(range.data), range.bytes}, seed++).is_ok();
    });
  }

  /// Inline, direct, packed, and longer than a parcel, by each verb, between memory of any two GPUs.
  void expect_everything_moves() {
    constexpr std::pair<int, int> kWays[] = {{kOther, kOther}, {kOther, kOwn}, {kOwn, kOther}};
    constexpr std::pair<size_t, size_t> kShapes[] = {{1, 100},   {3, 1000},     {1, 300 * kKiB + 1},
                                                     {24, 3001}, {1, kMiB + 3}, {2, 300 * kKiB}};
    for (const auto& [from_gpu, to_gpu] : kWays) {
      for (const auto& [count, bytes] : kShapes) {
        for (const OperationKind verb : kVerbs) {
          SCOPED_TRACE(concat(name_of(verb), " of ", count, " ranges of ", bytes, " from GPU ", from_gpu, " to GPU ", to_gpu));
          const auto from = ranges(a_, pools_[0], from_gpu, count, bytes), to = ranges(b_, pools_[1], to_gpu, count, bytes);
          seed_ += count;
          fill(from, seed_);
          std::ranges::fill(pools_[1].of(to_gpu), std::byte{0xee});
          const auto [sent, received] = move(verb, {*a_.endpoint, a_.conn, from}, {*b_.endpoint, b_.conn, to});
          EXPECT_TRUE(sent.is_ok() && received.is_ok()) << sent.to_string() << ", " << received.to_string();
          EXPECT_TRUE(holds(to, seed_));
          const auto written = pools_[1].of(to_gpu);
          const auto untouched = std::ranges::count(written.first(7), std::byte{0xee}) +
                                 std::ranges::count(written.subspan(7 + count * (bytes + 13) - 13, 13), std::byte{0xee});
          EXPECT_EQ(untouched, 20) << "bytes beside the ranges";
          EXPECT_TRUE(a_->deregister(from[0].memory).is_ok() && b_->deregister(to[0].memory).is_ok());
        }
      }
    }
  }

  SeveralGpus* gpus_ = nullptr;
  std::shared_ptr<NetPlugin> below_;
  FaultyNetPlugin* faulty_ = nullptr;
  std::atomic<int> given_of_other_{0};
  Pools pools_[2];
  uint64_t seed_ = 0;
};

TEST_F(EndpointSeveralGpus, MemoryOfAPeerMovesAsItsOwnDoes) {
  ASSERT_NO_FATAL_FAILURE(start(true, false));
  expect_everything_moves();
  EXPECT_GT(given_of_other_, 0) << "the plugin takes it as it is";
}

TEST_F(EndpointSeveralGpus, Trap27_MemoryOfAPeerIsStagedWhereFlowsAreSteered) {
  ASSERT_NO_FATAL_FAILURE(start(true, true));
  expect_everything_moves();
  EXPECT_EQ(given_of_other_, 0) << "its comms are for one GPU's memory";
}

TEST_F(EndpointSeveralGpus, MemoryOutOfReachGoesByWayOfTheHost) {
  ASSERT_NO_FATAL_FAILURE(start(false, false));
  expect_everything_moves();
  EXPECT_EQ(given_of_other_, 0);
}

TEST_F(EndpointSeveralGpus, MemoryOutOfReachGoesByWayOfTheHostWhereFlowsAreSteered) {
  ASSERT_NO_FATAL_FAILURE(start(false, true));
  expect_everything_moves();
  EXPECT_EQ(given_of_other_, 0);
}

// Memory that its own GPU does not reach is summed by the GPU that owns it.
TEST_F(EndpointSeveralGpus, ChecksumsAreComputedByWhoReachesTheMemory) {
  for (const bool peers : {true, false}) {
    SCOPED_TRACE(peers ? "peers" : "no peers");
    ASSERT_NO_FATAL_FAILURE(start(peers, false, true));
    expect_everything_moves();
    EXPECT_GT(gpus_->sums(kOwn), 0u);
    EXPECT_EQ(gpus_->sums(kOther) > 0, !peers);
    a_.reset();
    b_.reset();
    for (auto& pool : pools_) pool = {};
  }
}

TEST_F(EndpointSeveralGpus, AWrongBitOfGpuMemoryFailsTheOperationAtBothEnds) {
  allow_log("TCPX_E_CORRUPT");
  ASSERT_NO_FATAL_FAILURE(start(false, false, true));
  for (const auto& [from_gpu, to_gpu] : {std::pair(kOwn, kOwn), {kOwn, kOther}, {kOther, kOwn}}) {
    for (const size_t bytes : {50'001, 8}) {
      for (const bool flips : {true, false}) {
        SCOPED_TRACE(concat(bytes, " bytes from GPU ", from_gpu, " to GPU ", to_gpu, flips ? ", flipped" : ""));
        const auto from = ranges(a_, pools_[0], from_gpu, 3, bytes), to = ranges(b_, pools_[1], to_gpu, 3, bytes);
        fill(from, ++seed_);
        faulty_->flip = flips;
        const auto [sent, received] = move(OperationKind::kSend, {*a_.endpoint, a_.conn, from}, {*b_.endpoint, b_.conn, to});
        const Code expected = flips ? Code::kCorrupt : Code::kOk;
        EXPECT_EQ(sent.code(), expected) << sent.to_string();
        EXPECT_EQ(received.code(), expected) << received.to_string();
      }
    }
  }
}

TEST_F(EndpointSeveralGpus, WithoutAWayItIsRefusedAndBothGpusAreNamed) {
  ASSERT_NO_FATAL_FAILURE(start(false, false));
  gpus_->without_copiers(kOther);
  const auto refused = a_->register_memory(pools_[0].other.device(), kPool);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  const std::string text = refused.status().to_string();
  EXPECT_NE(text.find("GPU 0"), std::string::npos) << text;
  EXPECT_NE(text.find("GPU 1"), std::string::npos) << text;
  EXPECT_EQ(a_->stats().registered_regions, 0u);
  EXPECT_TRUE(a_->register_memory(pools_[0].own.device(), kPool).is_ok());
}

// At the end that calls and at the end that is written to.
TEST_F(EndpointSeveralGpus, RangesOfTwoGpusMixWhenBothAreReached) {
  for (const bool peers : {true, false}) {
    SCOPED_TRACE(peers ? "peers" : "no peers");
    ASSERT_NO_FATAL_FAILURE(start(peers, false));
    for (const size_t bytes : {size_t{100}, 20 * kKiB, 300 * kKiB}) {
      const auto own = [&](const Side& side, Pools& pools) { return ranges(side, pools, kOwn, 1, bytes)[0]; };
      const auto other = [&](const Side& side, Pools& pools) { return ranges(side, pools, kOther, 1, bytes)[0]; };
      const std::vector<LocalRange> mixed_here = {own(a_, pools_[0]), other(a_, pools_[0])};
      const std::vector<LocalRange> plain_here = ranges(a_, pools_[0], kOwn, 2, bytes);
      const std::vector<LocalRange> mixed_there = {other(b_, pools_[1]), own(b_, pools_[1])};
      const std::vector<LocalRange> plain_there = ranges(b_, pools_[1], kOwn, 2, bytes);
      for (const auto& [from, to] : {std::pair(&mixed_here, &plain_there), {&plain_here, &mixed_there}}) {
        fill(*from, ++seed_ * 2);
        const auto [sent, received] = move(OperationKind::kWrite, {*a_.endpoint, a_.conn, *from}, {*b_.endpoint, b_.conn, *to});
        if (peers) {
          EXPECT_TRUE(sent.is_ok()) << sent.to_string();
          EXPECT_TRUE(holds(*to, seed_ * 2));
        } else {
          EXPECT_EQ(sent.code(), Code::kUnsupported) << sent.to_string();
          EXPECT_NE(sent.to_string().find("GPU 1"), std::string::npos) << sent.to_string();
        }
      }
    }
    a_.reset();
    b_.reset();
    for (auto& pool : pools_) pool = {};
  }
}

// A default stream has one handle on all GPUs. It is the one of the memory that is meant.
TEST_F(EndpointSeveralGpus, ADefaultStreamIsThatOfEachGpuWhoseMemoryIsMoved) {
  ASSERT_NO_FATAL_FAILURE(start(true, false));
  const auto own = ranges(a_, pools_[0], kOwn, 1, 64), other = ranges(a_, pools_[0], kOther, 2, 64);
  const auto to = ranges(b_, pools_[1], kOwn, 3, 64);
  std::vector<std::byte> host(64);
  const LocalRange on_host{a_->register_memory(host.data(), host.size()).value(), host.data(), host.size()};
  int stream = 0;
  const auto marks_of = [&](std::vector<LocalRange> from) {
    const size_t before = gpus_->marked().size();
    std::vector<RemoteRange> places = End{*b_.endpoint, b_.conn, to}.advertised();
    places.resize(from.size());
    EXPECT_TRUE(done(a_, a_->write_async(a_.conn, from, places, {.after_stream = &stream})));
    const auto all = gpus_->marked();
    return std::vector(all.begin() + static_cast<ptrdiff_t>(before), all.end());
  };
  using Marks = std::vector<std::pair<void*, int>>;
  EXPECT_EQ(marks_of(other), (Marks{{&stream, kOther}}));
  EXPECT_EQ(marks_of(own), (Marks{{&stream, kOwn}}));
  EXPECT_EQ(marks_of({other[0], own[0], other[1]}), (Marks{{&stream, kOther}, {&stream, kOwn}}));
  EXPECT_EQ(marks_of({on_host}), (Marks{{&stream, kOwn}}));
}

}  // namespace
}  // namespace tcpx::testing
