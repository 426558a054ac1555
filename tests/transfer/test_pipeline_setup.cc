// Two ends that open pipelines of several channels over one bootstrap channel, with the software plugin and real sockets, bare and
// with injected faults.
#include "transfer/pipeline_setup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>

#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/expect_log.h"
#include "tests/support/faulty_net_plugin.h"
#include "transfer/local_machine.h"
#include "transfer/run.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using Opened = Result<std::unique_ptr<Pipeline>>;

/// With the plugin linked in, and with the one opened as a file.
class PipelineSetup : public ::testing::TestWithParam<const char*> {
 protected:
  bool in_place() const { return machine_.memory->has_gpu(); }  // host memory does not count as device memory there

  Opened receiver(size_t channels, const PipelineOptions& options = {}, Deadline deadline = soon()) {
    return open_receiver(*receiving_plugin_, ChannelDevices(channels, 0), parts_, options, {.deadline = deadline, .peer = here_});
  }
  Opened sender(size_t channels, const PipelineOptions& options = {}) {
    return open_sender(*sending_plugin_, ChannelDevices(channels, 0), options, {.deadline = soon(), .peer = there_});
  }
  /// A pipeline from there to here, in `send_` and `recv_`.
  void open(size_t channels, const PipelineOptions& options = {}) {
    auto other = in_thread([&] { return sender(channels, options); });
    recv_ = must(receiver(channels, options));
    send_ = must(other.get());
  }
  /// Moves a transfer from host memory. @return status of the send, and of the receive: kMismatch for wrong bytes
  std::pair<Status, Status> move(Pipeline& send, Pipeline& recv, size_t bytes, uint64_t seed, MemoryType type) {
    constexpr std::byte kGuard{0xee};
    const MemoryBuffer source = must(machine_.memory->allocate_mapped(0, bytes + 1));
    const MemoryBuffer target = must(machine_.memory->allocate_mapped(0, bytes + 1));
    fill_pattern({source.host(), bytes}, seed);
    target.host()[bytes] = kGuard;
    const RegisteredMemory from = must(send.register_memory(source.host(), bytes + 1, MemoryType::kHost));
    const RegisteredMemory into = must(recv.register_memory(target.host(), bytes + 1, type));
    const TransferId sent = must(send.submit({.memory = from, .bytes = bytes}));
    const TransferId got = must(recv.submit({.memory = into, .bytes = bytes}));
    auto sending = in_thread([&] { return run_until_done(send, sent, {.deadline = soon()}).status(); });
    Status received = run_until_done(recv, got, {.deadline = soon()}).status();
    if (received.is_ok()) received = verify_pattern({target.host(), bytes}, seed);
    EXPECT_EQ(target.host()[bytes], kGuard) << "written behind the end";
    return {sending.get(), received};
  }
  void expect_moves(Pipeline& send, Pipeline& recv, size_t bytes, uint64_t seed, MemoryType type) {
    const auto [sent, received] = move(send, recv, bytes, seed, type);
    EXPECT_OK(sent);
    EXPECT_OK(received);
  }
  void expect_moves(size_t bytes, uint64_t seed) {
    expect_moves(*send_, *recv_, bytes, seed, in_place() ? MemoryType::kHost : MemoryType::kCuda);
  }

  LocalMachine machine_ = must(LocalMachine::create(GetParam()));
  std::unique_ptr<Unpacker> unpacker_ = must(machine_.make_unpacker(UnpackKind::kHost, 0));
  std::unique_ptr<CopyLane> lane_ = must(machine_.memory->make_copy_lane(0));
  const ReceiverParts parts_{
      .unpacker = unpacker_.get(), .memory = machine_.memory.get(), .lane = in_place() ? nullptr : lane_.get()};
  NetPlugin *sending_plugin_ = machine_.plugin.get(), *receiving_plugin_ = machine_.plugin.get();
  Ends ends_ = two_ends();
  BootstrapChannel *here_ = &ends_.a, *there_ = &ends_.b;
  std::unique_ptr<Pipeline> send_, recv_;
};
INSTANTIATE_TEST_SUITE_P(Plugins, PipelineSetup, ::testing::Values("embedded", TCPX_SOFT_PLUGIN),
                         [](const auto& plugin) { return std::string(plugin.index == 0 ? "Embedded" : "Library"); });

TEST_P(PipelineSetup, ConnectionsOfBothDirectionsShareABootstrapChannel) {
  for (const size_t channels : {1, 2, 4}) {
    open(channels);
    std::swap(here_, there_);
    const auto send = std::move(send_), recv = std::move(recv_);
    open(channels);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4} << 20, size_t{5000001}}) {
      expect_moves(*send, *recv, bytes, bytes + 1, in_place() ? MemoryType::kHost : MemoryType::kCuda);
      expect_moves(bytes, bytes + 2);
    }
    uint64_t chunks = 0;
    for (const ChannelCounters& channel : recv->counters()) {
      EXPECT_FALSE(channel.nic.empty());
      EXPECT_GT(channel.chunks, 0u);
      chunks += channel.chunks;
    }
    EXPECT_EQ(chunks, 1u + 1 + 8 + 10);
  }
}

TEST_P(PipelineSetup, EverySizeAroundChunkAndPageArrivesExactly) {
  open(1, {.chunk_bytes = 65536});
  uint64_t seed = 1;
  for (const size_t bytes : {0u, 1u, 15u, 4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 1000003u, 4u << 20}) {
    expect_moves(bytes, seed++);
    expect_moves(*send_, *recv_, bytes, seed++, MemoryType::kHost);
  }
  EXPECT_OK(send_->close());
  EXPECT_OK(recv_->close());
}

TEST_P(PipelineSetup, LongTransfersHaveLongerChunks) {
  open(2, {.chunk_bytes = 4096, .longest_chunk_bytes = 65536});
  const std::pair<size_t, uint64_t> transfers[] = {{65536, 16},  {262143, 64},         {262144, 32},
                                                   {400001, 49}, {(2u << 20) + 1, 33}, {4u << 20, 64}};
  uint64_t before = 0;
  for (const auto& [bytes, chunks] : transfers) {
    expect_moves(bytes, bytes);
    uint64_t all = 0;
    for (const ChannelCounters& channel : recv_->counters()) all += channel.chunks;
    EXPECT_EQ(all - before, chunks) << bytes;
    before = all;
  }
  EXPECT_OK(send_->close());
  EXPECT_OK(recv_->close());
}

TEST_P(PipelineSetup, ChunksGrowToTheSmallerOfBothEndsWords) {
  for (const auto& [mine, theirs, chunks] : {std::tuple{8192u, 65536u, 128u}, {65536u, 8192u, 128u}, {0u, 65536u, 256u}}) {
    const PipelineOptions here{.chunk_bytes = 4096, .longest_chunk_bytes = mine};
    const PipelineOptions there{.chunk_bytes = 4096, .longest_chunk_bytes = theirs};
    auto other = in_thread([&] { return sender(1, there); });
    recv_ = must(receiver(1, here));
    send_ = must(other.get());
    expect_moves(1u << 20, mine);
    EXPECT_EQ(recv_->counters().front().chunks, chunks) << mine << " here and " << theirs << " there";
    send_.reset(), recv_.reset();
  }
}

TEST_P(PipelineSetup, DelaysDoNotShowInTheData) {
  FaultyNetPlugin sending(*machine_.plugin, {.seed = 3, .delay_percent = 60});
  FaultyNetPlugin receiving(*machine_.plugin, {.seed = 4, .delay_percent = 60});
  sending_plugin_ = &sending, receiving_plugin_ = &receiving;
  open(1, {.chunk_bytes = 4096});
  for (uint64_t seed = 1; seed <= 5; ++seed) expect_moves((1u << 20) - seed, seed);
  EXPECT_GT(sending.delays(), 0u);
  EXPECT_GT(receiving.delays(), 0u);
  send_.reset(), recv_.reset();
}

TEST_P(PipelineSetup, Trap36_ABreakAtEitherEndEndsBoth) {
  // The plugin logs what it sees; the pipeline broken on purpose closes, and the other end notices.
  allow_log("PEER_GONE");
  for (const bool sender_breaks : {true, false}) {
    for (const uint64_t at : {1u, 2u, 20u, 60u}) {
      FaultyNetPlugin sending(*machine_.plugin, {.break_at = sender_breaks ? at : 0});
      FaultyNetPlugin receiving(*machine_.plugin, {.break_at = sender_breaks ? 0 : at});
      sending_plugin_ = &sending, receiving_plugin_ = &receiving;
      open(1, {.chunk_bytes = 4096});
      const TimePoint begin = Clock::steady().now();
      const auto [send_status, recv_status] =
          move(*send_, *recv_, 4u << 20, at, in_place() ? MemoryType::kHost : MemoryType::kCuda);
      EXPECT_EQ(recv_status.code(), Code::kPeerGone) << "break at " << at;
      // A sender whose bytes all fit the sockets' buffers is done before it can notice (36).
      EXPECT_TRUE(send_status.code() == Code::kPeerGone || (send_status.is_ok() && !sender_breaks)) << send_status.to_string();
      EXPECT_LT(Clock::steady().now() - begin, std::chrono::seconds(10));
      send_.reset(), recv_.reset();
    }
  }
}

TEST_P(PipelineSetup, SettingsThatDifferAreNamedAtBothEnds) {
  const auto expect_difference = [&](auto&& here, auto&& there, const std::string& text) {
    ends_ = two_ends();
    auto other = in_thread(there);
    const Status mine = here().status(), theirs = other.get().status();
    for (const Status& status : {mine, theirs}) {
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
      EXPECT_NE(status.detail().find(text), std::string::npos) << status.to_string();
    }
  };
  const auto sends = [&] { return sender(2); };
  const auto receives = [&] { return receiver(2); };
  expect_difference([&] { return receiver(4); }, sends, "channels is ");
  expect_difference([&] { return receiver(2, {.chunk_bytes = 4096}); }, sends, "chunk bytes is ");
  expect_difference([&] { return receiver(2, {.failover = true}); }, sends, "failover is o");
  const HandshakeWait as_a{.deadline = soon(), .peer = &ends_.a}, as_b{.deadline = soon(), .peer = &ends_.b};
  expect_difference([&] { return open_sender(*machine_.plugin, {0, 0}, {}, as_a); }, sends, "both ends want to send");
  expect_difference(
      receives,
      [&] {
        return open_receiver(*machine_.plugin, {0, 0}, parts_, {}, as_b);
      },
      "both ends want to receive");
}

TEST_P(PipelineSetup, APeerThatLeavesEndsTheWait) {
  auto other = in_thread([&] { return receiver(2, {}, Deadline::after(milliseconds(200))).status(); });
  // The peer agrees to everything and then leaves.
  const Parameters parameters{
      {"half", "send"}, {"channels", "2"}, {"chunk bytes", "524288"}, {"longest chunk bytes", "0"}, {"failover", "off"}};
  ASSERT_OK(ends_.b.exchange_parameters(parameters, {}, soon()));
  { const BootstrapChannel gone = std::move(ends_.b); }
  EXPECT_EQ(other.get().code(), Code::kPeerGone);
}

TEST_P(PipelineSetup, WhatCannotBeOpenedIsRefused) {
  EXPECT_EQ(sender(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sender(kMaxChannels + 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(open_sender(*machine_.plugin, {0}, {}, {.deadline = soon()}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sender(1, {.chunk_bytes = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sender(1, {.longest_chunk_bytes = kMaxRequestBytes + 1}).status().code(), Code::kInvalidArgument);
}

TEST(PipelineSettings, ComeFromTheEnvironment) {
  const auto defaults = must(PipelineSettings::from_environment());
  EXPECT_EQ(defaults.channels, 0u);
  EXPECT_EQ(defaults.options(Direction::kRecv).limits.window, 0u) << "as many as suit the plugin";
  EXPECT_EQ(defaults.options(Direction::kSend).limits.window, 0u);
  EXPECT_EQ(defaults.chunk_bytes, 512u * 1024);
  EXPECT_EQ(defaults.options(Direction::kSend).longest_chunk_bytes, 2u << 20);
  EXPECT_FALSE(defaults.failover);
  ::setenv("UCCL_TCPX_SOFT_POOL_BYTES", "1048576", 1);
  EXPECT_EQ(must(PipelineSettings::from_environment()).longest_chunk_bytes, 1u << 20) << "each chunk fits into the pool";
  ::unsetenv("UCCL_TCPX_SOFT_POOL_BYTES");
  const std::pair<const char*, const char*> values[] = {{"UCCL_TCPX_NUM_CHANNELS", "3"},
                                                        {"UCCL_TCPX_RECV_WINDOW", "5"},
                                                        {"UCCL_TCPX_SEND_WINDOW", "7"},
                                                        {"UCCL_TCPX_CHUNK_BYTES", "4194304"},
                                                        {"UCCL_TCPX_FAILOVER", "1"}};
  for (const auto& [name, value] : values) ::setenv(name, value, 1);
  const auto set = must(PipelineSettings::from_environment());
  for (const auto& [name, value] : values) ::unsetenv(name);
  EXPECT_EQ(set.channels, 3u);
  EXPECT_EQ(set.options(Direction::kRecv).limits.window, 5u);
  EXPECT_EQ(set.options(Direction::kSend).limits.window, 7u);
  EXPECT_EQ(set.chunk_bytes, 4u << 20);
  EXPECT_EQ(set.options(Direction::kSend).longest_chunk_bytes, 0u) << "the user's size holds for all";
  EXPECT_TRUE(set.options(Direction::kSend).failover);
  for (const auto& [name, value] : values) {
    for (const char* bad : {"-1", "x", "99999999", "1x"}) {
      ::setenv(name, bad, 1);
      const Status refused = PipelineSettings::from_environment().status();
      ::unsetenv(name);
      EXPECT_EQ(refused.code(), Code::kBadConfig) << name << "=" << bad;
      EXPECT_NE(refused.detail().find(name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tcpx::testing
