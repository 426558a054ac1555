// The ends of measured connections, both in this process: every kind moves what it says, and its comparison sees wrong bytes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "base/environment.h"
#include "base/socket_io.h"
#include "measure/end.h"
#include "tests/support/expect_log.h"

namespace tcpx {
namespace {

const Duration kLimit = std::chrono::seconds(30);

struct Kind {
  const char* name;
  EndSetup::Kind kind = EndSetup::Kind::kPlugin;
  MemoryType memory = MemoryType::kHost;
  uint32_t streams = 1;
  uint32_t channels = 1;
  uint32_t peers = 1;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class BenchEnds : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    environment_preset(Variable::kSocketIfname, "=lo,lo");
    for (auto* end : {&leader_, &follower_}) {
      EndSetup setup;
      setup.kind = GetParam().kind;
      setup.memory = GetParam().memory;
      setup.streams = GetParam().streams;
      setup.channels = GetParam().channels;
      setup.peers = GetParam().peers;
      setup.request_bytes = 64 * 1024;
      setup.leads = end == &leader_;
      auto made = make_bench_end(setup);
      ASSERT_TRUE(made.is_ok()) << made.status().to_string();
      *end = std::move(made).value();
    }
    const Result<Handle> to_leader = leader_->listen(), to_follower = follower_->listen();
    ASSERT_TRUE(to_leader.is_ok() && to_follower.is_ok());
    at_once([&] { return leader_->connect(*to_follower, Deadline::after(kLimit)); },
            [&] { return follower_->accept(Deadline::after(kLimit)); });
    at_once([&] { return leader_->accept(Deadline::after(kLimit)); },
            [&] { return follower_->connect(*to_leader, Deadline::after(kLimit)); });
  }
  void TearDown() override {
    at_once([&] { return leader_->close(); }, [&] { return follower_->close(); });
  }

  /// As the two processes would.
  template <class AtLeader, class AtFollower>
  void at_once(AtLeader at_leader, AtFollower at_follower) {
    Status leader, follower;
    {
      std::jthread thread([&] { leader = at_leader(); });
      follower = at_follower();
    }
    EXPECT_TRUE(leader.is_ok()) << leader.to_string();
    EXPECT_TRUE(follower.is_ok()) << follower.to_string();
  }

  void allocate(Pattern pattern, uint64_t bytes, uint64_t leader_seed, uint64_t follower_seed) {
    allocate({pattern, bytes, leader_seed}, follower_seed);
  }
  void allocate(const RowSetup& at_leader, uint64_t follower_seed) {
    RowSetup at_follower = at_leader;
    at_follower.seed = follower_seed;
    at_once([&] { return leader_->allocate(at_leader); }, [&] { return follower_->allocate(at_follower); });
  }
  /// Moves `count` messages.
  void round(uint64_t count) {
    at_once([&] { return leader_->prepare(count); }, [&] { return follower_->prepare(count); });
    Result<Timing> at_leader = Timing(), at_follower = Timing();
    at_once(
        [&] {
          at_leader = leader_->run(Deadline::after(kLimit));
          return at_leader.status();
        },
        [&] {
          at_follower = follower_->run(Deadline::after(kLimit));
          return at_follower.status();
        });
    ASSERT_TRUE(at_leader.is_ok() && at_follower.is_ok());
    EXPECT_LT(at_leader->begin_ns, at_follower->end_ns);
    EXPECT_LT(at_follower->begin_ns, at_follower->end_ns);
  }

  std::unique_ptr<BenchEnd> leader_, follower_;
};

TEST_P(BenchEnds, MoveMessagesOneWay) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{8}, uint64_t{4097}, uint64_t{1'000'000}, uint64_t{3'000'000}}) {
    allocate(Pattern::kOneWay, bytes, bytes, bytes);
    for (const uint64_t count : {1, 2, 33}) {
      round(count);
      EXPECT_TRUE(follower_->verify().is_ok()) << bytes << " bytes, " << follower_->verify().to_string();
    }
  }
}

TEST_P(BenchEnds, MoveMessagesBackAndForth) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{200'000}}) {
    allocate(Pattern::kPingPong, bytes, bytes, bytes);
    for (const uint64_t count : {1, 20}) {
      round(count);
      EXPECT_TRUE(leader_->verify().is_ok()) << bytes << " bytes, " << leader_->verify().to_string();
      EXPECT_TRUE(follower_->verify().is_ok()) << bytes << " bytes, " << follower_->verify().to_string();
    }
  }
}

TEST_P(BenchEnds, SeeWrongBytes) {
  allocate(Pattern::kOneWay, 100'000, 1, 2);
  round(1);
  EXPECT_EQ(follower_->verify().code(), Code::kMismatch);
  allocate(Pattern::kPingPong, 8, 3, 4);
  round(5);
  EXPECT_EQ(leader_->verify().code(), Code::kMismatch);
  EXPECT_EQ(follower_->verify().code(), Code::kMismatch);
}

TEST_P(BenchEnds, SeeThatNothingCame) {
  allocate(Pattern::kOneWay, 5000, 1, 1);
  round(3);
  ASSERT_TRUE(follower_->verify().is_ok());
  at_once([&] { return leader_->prepare(3); }, [&] { return follower_->prepare(3); });
  EXPECT_EQ(follower_->verify().code(), Code::kMismatch);  // earlier messages have been overwritten
  at_once([&] { return leader_->run(Deadline::after(kLimit)).status(); },
          [&] { return follower_->run(Deadline::after(kLimit)).status(); });
  EXPECT_TRUE(follower_->verify().is_ok());
}

using PipelineEnds = BenchEnds;

// As test_tcpx_perf and p2p_fullmesh have it; the times and bytes are what their reports say.
TEST_P(PipelineEnds, MoveMessagesFromPlacesOfTheirOwnToThoseOfTheOther) {
  constexpr uint64_t kBytes = 100'001, kCount = 5;
  for (const Pattern pattern : {Pattern::kOneWay, Pattern::kPingPong, Pattern::kBothWays}) {
    for (const uint64_t follower_seed : {1, 100}) {
      const RowSetup row{.pattern = pattern, .message_bytes = kBytes, .seed = 1, .slots = kCount, .stride = kBytes + 1};
      allocate(row, follower_seed);
      for (const uint64_t count : {uint64_t{2}, kCount}) {
        SCOPED_TRACE(::testing::Message() << static_cast<uint32_t>(pattern) << ", " << count << " messages");
        round(count);
        const auto compared = follower_->compare();
        ASSERT_TRUE(compared.is_ok()) << compared.status().to_string();
        EXPECT_EQ(compared->first.code(), follower_seed == row.seed ? Code::kOk : Code::kMismatch);
        EXPECT_EQ(compared->wrong_bytes > count * kBytes * 9 / 10, follower_seed != row.seed) << compared->wrong_bytes;
        EXPECT_EQ(leader_->verify().is_ok(), follower_seed == row.seed || pattern == Pattern::kOneWay);
      }
    }
  }
  const NicBytes before = leader_->nic_bytes();
  std::vector<uint64_t> samples_ns;
  uint64_t ticks = 0;
  at_once([&] { return leader_->prepare(kCount); }, [&] { return follower_->prepare(kCount); });
  const RoundWait wait{
      .deadline = Deadline::after(kLimit), .on_tick = [&](uint64_t) { return ++ticks, Status::ok(); }, .samples_ns = &samples_ns};
  at_once([&] { return leader_->run(wait).status(); }, [&] { return follower_->run(Deadline::after(kLimit)).status(); });
  EXPECT_EQ(samples_ns.size(), kCount);
  uint64_t moved = 0;
  for (const auto& [nic, bytes] : leader_->nic_bytes()) moved += bytes;
  for (const auto& [nic, bytes] : before) moved -= bytes;
  EXPECT_EQ(moved, 2 * kCount * kBytes);
}

TEST_P(PipelineEnds, StopWhenTheyAreTold) {
  allocate(Pattern::kOneWay, 1000, 1, 1);
  at_once([&] { return leader_->prepare(1); }, [&] { return follower_->prepare(1); });
  const std::atomic<bool> stop = true;
  const auto go_on = [](uint64_t) { return Status::ok(); };
  EXPECT_EQ(follower_->run({.deadline = Deadline::after(kLimit), .stop = &stop, .on_tick = go_on}).status().code(),
            Code::kCancelled);
  testing::allow_log("deadline passed");
  EXPECT_EQ(follower_->run({.deadline = Deadline::after(Duration::zero()), .on_tick = go_on}).status().code(), Code::kTimeout);
  at_once([&] { return leader_->run(Deadline::after(kLimit)).status(); },
          [&] { return follower_->run(Deadline::after(kLimit)).status(); });
}

INSTANTIATE_TEST_SUITE_P(Pipelines, PipelineEnds,
                         ::testing::Values(Kind{.name = "host_2", .kind = EndSetup::Kind::kPipeline, .channels = 2},
                                           Kind{
                                               .name = "device", .kind = EndSetup::Kind::kPipeline, .memory = MemoryType::kCuda}),
                         [](const auto& kind) { return std::string(kind.param.name); });

using EndpointEnds = BenchEnds;

TEST_P(EndpointEnds, MoveRangesByEveryVerb) {
  const auto move = [this](uint64_t count) {
    at_once([&] { return leader_->prepare(count); }, [&] { return follower_->prepare(count); });
    at_once([&] { return leader_->run(Deadline::after(kLimit)).status(); },
            [&] { return follower_->run(Deadline::after(kLimit)).status(); });
  };
  for (const Verb verb : {Verb::kSend, Verb::kWrite, Verb::kRead}) {
    for (const uint64_t range_bytes : {0, 1000, 100'000}) {
      RowSetup row{.message_bytes = 350'001, .seed = 1, .verb = verb, .range_bytes = range_bytes, .outstanding = 5};
      for (const uint64_t follower_seed : {1, 2}) {
        allocate(row, follower_seed);
        for (const uint64_t count : {1, 12}) {
          move(count);
          EXPECT_EQ(follower_->verify().code(), follower_seed == row.seed ? Code::kOk : Code::kMismatch)
              << static_cast<uint32_t>(verb) << ", ranges of " << range_bytes << ", " << follower_->verify().to_string();
        }
      }
    }
  }
}

TEST_P(EndpointEnds, AreIdle) {
  allocate({.pattern = Pattern::kIdle, .message_bytes = 8}, 0);
  at_once([&] { return leader_->prepare(20); }, [&] { return follower_->prepare(20); });
  const auto timing = leader_->run(Deadline::after(kLimit));
  ASSERT_TRUE(timing.is_ok());
  EXPECT_GE(timing->end_ns - timing->begin_ns, 20'000'000);
  EXPECT_GT(timing->connected.resident_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Endpoints, EndpointEnds,
    ::testing::Values(Kind{.name = "host", .kind = EndSetup::Kind::kEndpoint},
                      Kind{.name = "device_3_peers", .kind = EndSetup::Kind::kEndpoint, .memory = MemoryType::kCuda, .peers = 3}),
    [](const auto& kind) { return std::string(kind.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Kinds, BenchEnds,
    ::testing::Values(
        Kind{.name = "plugin_host"}, Kind{.name = "plugin_device", .memory = MemoryType::kCuda},
        Kind{.name = "pipeline_host", .kind = EndSetup::Kind::kPipeline},
        Kind{.name = "pipeline_host_3", .kind = EndSetup::Kind::kPipeline, .channels = 3},
        Kind{.name = "pipeline_device", .kind = EndSetup::Kind::kPipeline, .memory = MemoryType::kCuda},
        Kind{.name = "pipeline_device_2", .kind = EndSetup::Kind::kPipeline, .memory = MemoryType::kCuda, .channels = 2},
        Kind{.name = "endpoint_host", .kind = EndSetup::Kind::kEndpoint},
        Kind{.name = "endpoint_device", .kind = EndSetup::Kind::kEndpoint, .memory = MemoryType::kCuda},
        Kind{.name = "raw_tcp_1", .kind = EndSetup::Kind::kRawTcp},
        Kind{.name = "raw_tcp_3", .kind = EndSetup::Kind::kRawTcp, .streams = 3}),
    [](const auto& kind) { return std::string(kind.param.name); });

TEST(BenchEnd, PipelineTakesNoHandleOfAnother) {
  environment_preset(Variable::kSocketIfname, "=lo,lo");
  EndSetup setup;
  setup.request_bytes = 4096;
  setup.kind = EndSetup::Kind::kRawTcp;
  const auto other = make_bench_end(setup);
  setup.kind = EndSetup::Kind::kPipeline;
  const auto pipeline = make_bench_end(setup);
  ASSERT_TRUE(other.is_ok() && pipeline.is_ok());
  const Result<Handle> handle = (*other)->listen();
  ASSERT_TRUE(handle.is_ok());
  EXPECT_EQ((*pipeline)->connect(*handle, Deadline::after(kLimit)).code(), Code::kProtocol);
}

TEST(BenchEnd, PipelinesOfDifferentChannelsDoNotConnect) {
  environment_preset(Variable::kSocketIfname, "=lo,lo");
  std::unique_ptr<BenchEnd> ends[2];
  for (const uint32_t i : {0u, 1u}) {
    EndSetup setup;
    setup.kind = EndSetup::Kind::kPipeline;
    setup.request_bytes = 4096;
    setup.channels = 1 + i;
    auto made = make_bench_end(setup);
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    ends[i] = std::move(made).value();
  }
  const Result<Handle> handle = ends[0]->listen();
  ASSERT_TRUE(handle.is_ok());
  Status connected;
  std::jthread connects([&] { connected = ends[1]->connect(*handle, Deadline::after(kLimit)); });
  EXPECT_EQ(ends[0]->accept(Deadline::after(kLimit)).code(), Code::kMismatch);
  connects.join();
  EXPECT_EQ(connected.code(), Code::kMismatch);
}

TEST(BenchEnd, SaysThatThereIsNoSuchLibrary) {
  tcpx::testing::allow_log("/no/such/plugin.so");  // the loader says it as well
  for (const EndSetup::Kind kind : {EndSetup::Kind::kPlugin, EndSetup::Kind::kPipeline}) {
    EndSetup setup;
    setup.kind = kind;
    std::string("/no/such/plugin.so").copy(setup.plugin, sizeof setup.plugin - 1);
    const Result<std::unique_ptr<BenchEnd>> end = make_bench_end(setup);
    ASSERT_FALSE(end.is_ok());
    EXPECT_EQ(end.status().code(), Code::kNotFound);
    EXPECT_NE(end.status().detail().find("/no/such/plugin.so"), std::string::npos) << end.status().to_string();
  }
}

TEST(BenchEnd, ASharedMessageIsAnsweredWhenItIsWhole) {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kRawTcp;
  setup.leads = false;
  setup.streams = 2;
  setup.request_bytes = 1;
  const auto end = make_bench_end(setup);
  ASSERT_TRUE(end.is_ok());
  const Result<Handle> handle = (*end)->listen();
  const Result<UniqueFd> listener = listen_tcp(SocketAddress::loopback(0), 2);
  ASSERT_TRUE(handle.is_ok() && listener.is_ok());
  const uint16_t mine = local_address(listener->get())->port();
  uint16_t port = 0;
  std::memcpy(&port, handle->bytes.data(), sizeof port);
  Handle here;
  std::memcpy(here.bytes.data(), &mine, sizeof mine);
  const Deadline deadline = Deadline::after(kLimit);
  UniqueFd out[2], in[2];
  for (UniqueFd& fd : out) fd = std::move(connect_tcp(SocketAddress::loopback(port), deadline)).value();
  ASSERT_TRUE((*end)->accept(deadline).is_ok());
  ASSERT_TRUE((*end)->connect(here, deadline).is_ok());
  for (UniqueFd& fd : in) fd = UniqueFd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE((*end)->allocate({.pattern = Pattern::kPingPong, .message_bytes = 2, .seed = 1}).is_ok());
  ASSERT_TRUE((*end)->prepare(1).is_ok());
  const char byte = 1;
  ASSERT_EQ(::send(out[0].get(), &byte, 1, 0), 1);
  Result<Timing> run = Timing();
  {
    std::jthread answers([&] { run = (*end)->run(deadline); });
    EXPECT_EQ(wait_for(in[0].get(), POLLIN, Deadline::after(std::chrono::milliseconds(100))).code(), Code::kTimeout);
    ASSERT_EQ(::send(out[1].get(), &byte, 1, 0), 1);
    for (const UniqueFd& fd : in) EXPECT_TRUE(wait_for(fd.get(), POLLIN, deadline).is_ok());
  }
  EXPECT_TRUE(run.is_ok()) << run.status().to_string();
}

TEST(Patience, EndsAtTheDeadlineOnly) {
  Patience expired("wait", Deadline::after(Duration::zero()));
  Status status;
  for (int i = 0; i < 1000 && status.is_ok(); ++i) status = expired.after_turn(false);
  EXPECT_EQ(status.code(), Code::kTimeout);
  Patience busy("wait", Deadline::after(Duration::zero()));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(busy.after_turn(true).is_ok());
}

}  // namespace
}  // namespace tcpx
