// Two ends that open pipelines of several channels over one bootstrap channel, with the software plugin and real sockets.
#include "transfer/pipeline_setup.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>
#include <utility>

#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "tests/support/expect_log.h"
#include "transfer/local_machine.h"
#include "transfer/run.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Opened = Result<std::unique_ptr<Pipeline>>;

Deadline soon() {
  return Deadline::after(seconds(50));
}

class PipelineSetup : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = LocalMachine::create("embedded");
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    endpoint_ = std::make_unique<LocalMachine>(std::move(*made));
    unpacker_ = endpoint_->make_unpacker(UnpackKind::kHost, 0).value();
    lane_ = endpoint_->memory->make_copy_lane(0).value();
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    here_.emplace(UniqueFd(fds[0]), SocketAddress::loopback(1), "test");
    there_.emplace(UniqueFd(fds[1]), SocketAddress::loopback(1), "test");
  }
  bool in_place() const { return endpoint_->memory->has_gpu(); }  // host memory does not count as device memory there

  Opened receiver(BootstrapChannel& peer, size_t channels, const PipelineOptions& options = {}, Deadline deadline = soon()) {
    const ReceiverParts parts{
        .unpacker = unpacker_.get(), .memory = endpoint_->memory.get(), .lane = in_place() ? nullptr : lane_.get()};
    return open_receiver(*endpoint_->plugin, ChannelDevices(channels, 0), parts, options, {.deadline = deadline, .peer = &peer});
  }
  Opened sender(BootstrapChannel& peer, size_t channels, const PipelineOptions& options = {}, Deadline deadline = soon()) {
    return open_sender(*endpoint_->plugin, ChannelDevices(channels, 0), options, {.deadline = deadline, .peer = &peer});
  }
  template <class F>
  static auto in_thread(F function) {
    return std::async(std::launch::async, std::move(function));
  }

  /// Moves a transfer and compares every byte. @return errors of either end
  Status move(Pipeline& send, Pipeline& recv, size_t bytes, uint64_t seed) {
    MemoryOps& memory = *endpoint_->memory;
    const MemoryBuffer source = memory.allocate_mapped(0, bytes + 1).value(),
                       target = memory.allocate_mapped(0, bytes + 1).value();
    const MemoryType type = in_place() ? MemoryType::kHost : MemoryType::kCuda;
    fill_pattern({source.host(), bytes}, seed);
    const RegisteredMemory from = send.register_memory(source.host(), bytes + 1, MemoryType::kHost).value();
    const RegisteredMemory into = recv.register_memory(target.host(), bytes + 1, type).value();
    const TransferId sent = send.submit({.memory = from, .bytes = bytes}).value();
    const TransferId got = recv.submit({.memory = into, .bytes = bytes}).value();
    auto sending = in_thread([&] { return run_until_done(send, sent, {.deadline = soon()}).status(); });
    const Status received = run_until_done(recv, got, {.deadline = soon()}).status();
    TCPX_RETURN_IF_ERROR(sending.get());
    TCPX_RETURN_IF_ERROR(received);
    return verify_pattern({target.host(), bytes}, seed);
  }

  std::unique_ptr<LocalMachine> endpoint_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<CopyLane> lane_;
  std::optional<BootstrapChannel> here_, there_;
};

TEST_F(PipelineSetup, ConnectionsOfBothDirectionsShareABootstrapChannel) {
  for (const size_t channels : {1, 2, 4}) {
    auto other = in_thread([&] {
      Opened first = sender(*there_, channels);
      Opened second = receiver(*there_, channels);
      return std::pair(std::move(first), std::move(second));
    });
    Opened recv = receiver(*here_, channels), send = sender(*here_, channels);
    auto [other_send, other_recv] = other.get();
    for (const Opened* opened : {&recv, &send, &other_send, &other_recv})
      ASSERT_TRUE(opened->is_ok()) << opened->status().to_string();
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4} << 20, size_t{5000001}}) {
      const Status one_way = move(**other_send, **recv, bytes, bytes + 1);
      const Status back = move(**send, **other_recv, bytes, bytes + 2);
      EXPECT_TRUE(one_way.is_ok()) << one_way.to_string();
      EXPECT_TRUE(back.is_ok()) << back.to_string();
    }
    uint64_t chunks = 0;
    for (const ChannelCounters& channel : (*recv)->counters()) {
      EXPECT_FALSE(channel.nic.empty());
      EXPECT_GT(channel.chunks, 0u);
      chunks += channel.chunks;
    }
    EXPECT_EQ(chunks, 1u + 1 + 8 + 10);
  }
}

TEST_F(PipelineSetup, SettingsThatDifferAreNamedAtBothEnds) {
  const auto expect_difference = [&](auto&& here, auto&& there, const std::string& text) {
    auto other = in_thread(there);
    const Status mine = here().status(), theirs = other.get().status();
    for (const Status& status : {mine, theirs}) {
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
      EXPECT_NE(status.detail().find(text), std::string::npos) << status.to_string();
    }
  };
  expect_difference([&] { return receiver(*here_, 4); }, [&] { return sender(*there_, 2); }, "channels is ");
  expect_difference([&] { return receiver(*here_, 2, {.chunk_bytes = 4096}); }, [&] { return sender(*there_, 2); },
                    "chunk bytes is ");
  expect_difference([&] { return receiver(*here_, 2, {.failover = true}); }, [&] { return sender(*there_, 2); }, "failover is o");
  expect_difference([&] { return sender(*here_, 2); }, [&] { return sender(*there_, 2); }, "both ends want to send");
  expect_difference([&] { return receiver(*here_, 2); }, [&] { return receiver(*there_, 2); }, "both ends want to receive");
}

TEST_F(PipelineSetup, APeerThatLeavesEndsTheWait) {
  auto other = in_thread([&] { return receiver(*there_, 2, {}, Deadline::after(milliseconds(200))); });
  // This end agrees to everything and then leaves.
  const Parameters parameters{
      {"pipeline version", "1"}, {"half", "send"}, {"channels", "2"}, {"chunk bytes", "524288"}, {"failover", "off"}};
  ASSERT_TRUE(here_->exchange_parameters(parameters, {}, soon()).is_ok());
  here_.reset();
  EXPECT_EQ(other.get().status().code(), Code::kPeerGone);
}

TEST_F(PipelineSetup, WhatCannotBeOpenedIsRefused) {
  EXPECT_EQ(sender(*here_, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sender(*here_, kMaxChannels + 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(open_sender(*endpoint_->plugin, {0}, {}, {.deadline = soon()}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sender(*here_, 1, {.chunk_bytes = 0}).status().code(), Code::kInvalidArgument);
}

TEST(PipelineSettings, ComeFromTheEnvironment) {
  const auto defaults = PipelineSettings::from_environment();
  ASSERT_TRUE(defaults.is_ok());
  EXPECT_EQ(defaults->channels, 0u);
  EXPECT_EQ(defaults->options(Direction::kRecv).limits.window, 16u);
  EXPECT_EQ(defaults->options(Direction::kSend).limits.window, 12u);
  EXPECT_EQ(defaults->chunk_bytes, 512u * 1024);
  EXPECT_FALSE(defaults->failover);
  const std::pair<const char*, const char*> values[] = {{"UCCL_TCPX_NUM_CHANNELS", "3"},
                                                        {"UCCL_TCPX_RECV_WINDOW", "5"},
                                                        {"UCCL_TCPX_SEND_WINDOW", "7"},
                                                        {"UCCL_TCPX_CHUNK_BYTES", "4194304"},
                                                        {"UCCL_TCPX_FAILOVER", "1"}};
  for (const auto& [name, value] : values) ::setenv(name, value, 1);
  const auto set = PipelineSettings::from_environment();
  for (const auto& [name, value] : values) ::unsetenv(name);
  ASSERT_TRUE(set.is_ok());
  EXPECT_EQ(set->channels, 3u);
  EXPECT_EQ(set->options(Direction::kRecv).limits.window, 5u);
  EXPECT_EQ(set->options(Direction::kSend).limits.window, 7u);
  EXPECT_EQ(set->chunk_bytes, 4u << 20);
  EXPECT_TRUE(set->options(Direction::kSend).failover);
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
}  // namespace tcpx
