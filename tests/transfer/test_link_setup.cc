// Two endpoints' ends of a link: traffic over it, and the errors of each end when they do not match or one goes away.
#include "endpoint/link_setup.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "base/socket_io.h"
#include "base/text.h"
#include "measure/pattern.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/link_setup_ends.h"
#include "tests/support/raw_frame.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(LinkSetupTest, DataMovesBothWaysWhileTheStreamCarriesFrames) {
  for (const size_t channels : {1, 2, 4}) {
    connector_.devices = acceptor_.devices = ChannelDevices(channels, 0);
    auto [connected, accepted] = link();
    ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
    ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
    LinkPair pair{.a = *connected, .b = *accepted, .at_a = {}, .at_b = {}};

    constexpr size_t kBytes = (5u << 20) + 1;
    MemoryOps& memory = *endpoint_->memory;
    const MemoryType type = in_place() ? MemoryType::kHost : MemoryType::kCuda;
    const MemoryBuffer sources[] = {memory.allocate_mapped(0, kBytes).value(), memory.allocate_mapped(0, kBytes).value()};
    const MemoryBuffer targets[] = {memory.allocate_mapped(0, kBytes).value(), memory.allocate_mapped(0, kBytes).value()};
    TransferId sent[2], got[2];
    for (size_t way : {0, 1}) {
      Pipeline& send = way == 0 ? *pair.a.send : *pair.b.send;
      Pipeline& recv = way == 0 ? *pair.b.recv : *pair.a.recv;
      fill_pattern({sources[way].host(), kBytes}, way + 1);
      const auto from = send.register_memory(sources[way].host(), kBytes, MemoryType::kHost).value();
      const auto into = recv.register_memory(targets[way].host(), kBytes, type).value();
      sent[way] = send.submit({.memory = from, .bytes = kBytes}).value();
      got[way] = recv.submit({.memory = into, .bytes = kBytes}).value();
    }
    pair.a.stream->send(testing::RawFrame{testing::make_header(FrameType::kNotify), text_bytes("to b")});
    pair.b.stream->send(testing::RawFrame{testing::make_header(FrameType::kNotify), text_bytes("to a")});
    const auto all_done = [&] {
      return pair.a.send->pending() + pair.a.recv->pending() + pair.b.send->pending() + pair.b.recv->pending() == 0;
    };
    const auto noticed = [&] { return !pair.at_a.seen.empty() && !pair.at_b.seen.empty(); };
    while (!(all_done() && noticed()) && pair.a.stream->status().is_ok() && pair.b.stream->status().is_ok()) {
      pair.drive();
      EXPECT_EQ(budget_.held() > 0, pair.a.send->in_flight() > 0) << "what that half sends, and nothing else";
    }
    ChunkBudget::Asker next;
    const ChunkBudget::Share share = budget_.take(next, 1, Clock::steady().now()).value();
    EXPECT_GT(share, 0u) << "they are numbered";
    budget_.give_back(share);
    EXPECT_TRUE(pair.a.stream->status().is_ok()) << pair.a.stream->status().to_string();
    EXPECT_TRUE(pair.b.stream->status().is_ok()) << pair.b.stream->status().to_string();
    for (size_t way : {0, 1}) {
      EXPECT_EQ((way == 0 ? pair.a : pair.b).send->poll(sent[way]).state, TransferState::kDone);
      EXPECT_EQ((way == 0 ? pair.b : pair.a).recv->poll(got[way]).state, TransferState::kDone);
      const Status same = verify_pattern({targets[way].host(), kBytes}, way + 1);
      EXPECT_TRUE(same.is_ok()) << same.to_string();
    }
    using Seen = std::vector<std::pair<FrameType, std::string>>;
    EXPECT_EQ(pair.at_b.seen, Seen({{FrameType::kNotify, "to b"}}));
    EXPECT_EQ(pair.at_a.seen, Seen({{FrameType::kNotify, "to a"}}));
  }
}

// Small transfers over several channels, of which the receiver takes none for a while.
// Nobody asks the software plugin meanwhile: it tells.
TEST_F(LinkSetupTest, APipelineIsToldWhenItCanGoOn) {
  for (const char* const line : {"tcpx-soft: ", "channel gives up"}) allow_log(line);
  connector_.devices = acceptor_.devices = {0};
  auto [a, b] = link();
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  std::atomic<uint64_t> told{0}, told_of_sends{0};
  a->send->tell_changes([&] { ++told, ++told_of_sends; });
  b->recv->tell_changes([&] { ++told; });
  constexpr size_t kBytes = (5u << 20) + 1;
  MemoryOps& memory = *endpoint_->memory;
  const MemoryBuffer source = memory.allocate_mapped(0, kBytes).value(), target = memory.allocate_mapped(0, kBytes).value();
  fill_pattern({source.host(), kBytes}, 1);
  const auto from = a->send->register_memory(source.host(), kBytes, MemoryType::kHost).value();
  const auto into = b->recv->register_memory(target.host(), kBytes, MemoryType::kHost).value();
  for (int i = 0; i < 20; ++i) {
    (void)b->recv->submit({.memory = into, .bytes = kBytes}).value();
    (void)a->send->submit({.memory = from, .bytes = kBytes}).value();
  }
  while (true) {
    const uint64_t seen = told;
    while (a->send->progress() || b->recv->progress()) {
    }
    if (a->send->pending() + b->recv->pending() == 0) break;
    ASSERT_TRUE(a->send->is_told() && b->recv->is_told());
    ASSERT_TRUE(wait_until([&] { return told != seen; }));
  }
  EXPECT_TRUE(std::equal(source.host(), source.host() + kBytes, target.host()));
  EXPECT_GT(told_of_sends, 0u);
  EXPECT_GT(told, told_of_sends);

  Pipeline& left = *b->recv;
  (void)left.submit({.memory = into, .bytes = kBytes}).value();
  while (left.progress()) {
  }
  const uint64_t before = told;
  a = Status(Code::kCancelled, "test", "gone");
  EXPECT_TRUE(wait_until([&] { return told != before; })) << "an end that is gone is told, too";
  EXPECT_TRUE(wait_until([&] {
    left.progress();
    return !left.status().is_ok();
  }));
  EXPECT_FALSE(left.is_told()) << "its comms are closed while it is asked";
}

TEST_F(LinkSetupTest, ASenderRunsAheadOfItsReceiverSoFarAndNoFurther) {
  connector_.max_transfers = acceptor_.max_transfers = 4 * kMaxPlacedChunks;
  auto [connected, accepted] = link();
  ASSERT_TRUE(connected.is_ok() && accepted.is_ok());
  ASSERT_TRUE(connected->eager && accepted->eager);
  LinkPair pair{.a = *connected, .b = *accepted, .at_a = {}, .at_b = {}};
  Pipeline &send = *pair.a.send, &recv = *pair.b.recv;
  constexpr size_t kMany = 2 * kMaxPlacedChunks;
  const MemoryType type = in_place() ? MemoryType::kHost : MemoryType::kCuda;
  const MemoryBuffer source = endpoint_->memory->allocate_mapped(0, kMany).value();
  const MemoryBuffer target = endpoint_->memory->allocate_mapped(0, kMany).value();
  fill_pattern({source.host(), kMany}, 1);
  const auto from = send.register_memory(source.host(), kMany, MemoryType::kHost).value();
  const auto into = recv.register_memory(target.host(), kMany, type).value();
  std::vector<TransferId> sent, got;
  for (size_t i = 0; i < kMany; ++i) sent.push_back(send.submit({.memory = from, .offset = i, .bytes = 1}).value());
  // A few, so that the sender learns how fast the channels are.
  for (size_t i = 0; i < 100; ++i) got.push_back(recv.submit({.memory = into, .offset = i, .bytes = 1}).value());
  size_t done = 0;
  const auto count_done = [&] {
    pair.drive();
    while (done < kMany && send.poll(sent[done]).state == TransferState::kDone) ++done;
    return done;
  };
  ASSERT_TRUE(wait_until([&] { return count_done() > 100 && recv.pending() == 0; }));
  for (int i = 0; i < 20000; ++i) count_done();
  EXPECT_LE(done, 100 + kMaxPlacedChunks);
  for (size_t i = 100; i < kMany; ++i) got.push_back(recv.submit({.memory = into, .offset = i, .bytes = 1}).value());
  ASSERT_TRUE(wait_until([&] { return count_done() == kMany && recv.pending() == 0; }));
  for (const TransferId id : got) EXPECT_EQ(recv.poll(id).state, TransferState::kDone);
  EXPECT_TRUE(verify_pattern({target.host(), kMany}, 1).is_ok());
}

TEST_F(LinkSetupTest, EachEndLearnsWhoTheOtherIs) {
  connector_.max_transfers = 2;
  acceptor_.identity.inline_bytes = kMaxInlineBytes;
  connector_.identity.wanted_gpu_idx = 2;
  connector_.identity.wanted_instance = acceptor_.identity.instance = ~uint64_t{0};
  auto [connected, accepted] = link();
  ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
  ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
  EXPECT_EQ(connected->peer.instance, ~uint64_t{0});
  EXPECT_EQ(connected->peer.gpu_idx, 2);
  EXPECT_EQ(connected->peer.inline_bytes, kMaxInlineBytes);
  EXPECT_EQ(accepted->peer.instance, 11u);
  EXPECT_EQ(accepted->peer.gpu_idx, 1);
  EXPECT_EQ(accepted->peer.inline_bytes, 4096u);
  EXPECT_EQ(connected->peer_host, "127.0.0.1");
  EXPECT_EQ(connected->peer_name, concat("127.0.0.1:", server_->port()));
  EXPECT_EQ(accepted->peer_name, local_address(connected->stream->fd())->to_string());
  EXPECT_EQ(connected->interface, "lo");
  EXPECT_EQ(connected->send->counters().size(), 2u);
  std::byte byte{};
  const auto memory = connected->send->register_memory(&byte, 1, MemoryType::kHost).value();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(connected->send->submit({.memory = memory, .bytes = 1}).is_ok());
  EXPECT_EQ(connected->send->submit({.memory = memory, .bytes = 1}).status().code(), Code::kExhausted);
}

TEST_F(LinkSetupTest, FramesSentBehindTheSetupAreNotLost) {
  connector_.devices = acceptor_.devices = {0};
  for (int round = 0; round < 20; ++round) {
    auto [client, server] = channels();
    auto other = in_thread([&, channel = std::make_shared<BootstrapChannel>(std::move(server))] {
      Linked linked = set_up(std::move(*channel), false, acceptor_);
      if (!linked.is_ok()) return linked;
      linked->stream->send(testing::RawFrame{testing::make_header(FrameType::kNotify), text_bytes("at once")});
      linked->stream->flush();
      return linked;
    });
    Linked connected = set_up(std::move(client), true, connector_);
    const Linked accepted = other.get();
    ASSERT_TRUE(connected.is_ok() && accepted.is_ok());
    FrameRecorder recorder;
    EXPECT_TRUE(testing::wait_until([&] { return connected->stream->receive(recorder); }));
    EXPECT_EQ(recorder.seen.size(), 1u);
    EXPECT_TRUE(connected->stream->status().is_ok()) << connected->stream->status().to_string();
  }
}

class LinkMismatch : public LinkSetupTest {
 protected:
  void expect_at_both_ends(Code code, const std::string& text) {
    const TimePoint begin = Clock::steady().now();
    const auto [connected, accepted] = link();
    expect_told(connected.status(), code, text);
    expect_told(accepted.status(), code, text);
    EXPECT_LT(Clock::steady().now() - begin, seconds(5)) << "long before the deadline";
  }
};

TEST_F(LinkMismatch, AnotherGpuIsWanted) {
  connector_.identity.wanted_gpu_idx = 5;
  expect_at_both_ends(Code::kMismatch, "GPU 5 is wanted, the endpoint that listens has GPU 2");
}

TEST_F(LinkMismatch, AnotherInstanceIsWanted) {
  connector_.identity.wanted_instance = 21;
  expect_at_both_ends(Code::kPeerGone, "another endpoint listens there now (restarted?)");
}

TEST_F(LinkSetupTest, TheEndWithFewerDevicesGoesRoundThem) {
  for (const bool more_here : {true, false}) {
    (more_here ? connector_ : acceptor_).devices = {0, 0, 0};
    (more_here ? acceptor_ : connector_).devices = {0, 0};
    const auto [connected, accepted] = link();
    ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
    ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
    for (const Pipeline* half : {connected->send.get(), connected->recv.get(), accepted->send.get(), accepted->recv.get()})
      EXPECT_EQ(half->counters().size(), 3u);
  }
}

TEST_F(LinkSetupTest, AChannelThatStandsOnlyOneWayIsLeftOutOfTheOther) {
  testing::allow_log("is left out: no way");
  testing::FaultyNetPlugin connecting(*endpoint_->plugin, {.connects_that_fail = 1});
  connector_.plugin = &connecting;
  const auto [connected, accepted] = link();
  ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
  ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
  for (const Pipeline* half : {connected->send.get(), accepted->recv.get()}) EXPECT_EQ(half->counters().size(), 1u);
  for (const Pipeline* half : {connected->recv.get(), accepted->send.get()}) EXPECT_EQ(half->counters().size(), 2u);
}

TEST_F(LinkMismatch, NumbersOfChannelsDifferWhereFlowsAreSteered) {
  testing::FaultyNetPlugin steered(*endpoint_->plugin, {.vendor_rules = true});
  connector_.plugin = acceptor_.plugin = &steered;
  acceptor_.devices = {0, 0, 0, 0};
  expect_at_both_ends(Code::kMismatch, "at the peer: set UCCL_TCPX_NUM_CHANNELS to the same number at both ends");
}

TEST_F(LinkMismatch, SettingsOfThePipelineDiffer) {
  acceptor_.settings.chunk_bytes = 4096;
  expect_at_both_ends(Code::kMismatch, "chunk bytes is ");
  acceptor_.settings = {.failover = true};
  expect_at_both_ends(Code::kMismatch, "failover is o");
}

TEST_F(LinkMismatch, BothEndsMeanToDoTheSame) {
  for (const bool connector : {true, false}) {
    auto [a, b] = channels();
    auto other = in_thread([&, channel = std::make_shared<BootstrapChannel>(std::move(b))] {
      return set_up(std::move(*channel), connector, acceptor_).status();
    });
    const Status mine = set_up(std::move(a), connector, connector_).status();
    for (const Status& status : {mine, other.get()})
      expect_told(status, Code::kMismatch, connector ? "the peer does not mean to accept" : "the peer does not mean to connect");
  }
}

TEST_F(LinkMismatch, WhatThePluginRefusesAtOneEndIsToldAtTheOther) {
  testing::allow_log("listen");
  acceptor_.devices = {99, 99};
  const auto [connected, accepted] = link();
  ASSERT_FALSE(accepted.is_ok());
  EXPECT_EQ(connected.status().code(), accepted.status().code());
  EXPECT_EQ(connected.status().operation(), "peer reported");
  EXPECT_NE(connected.status().detail().find(accepted.status().detail()), std::string::npos) << connected.status().to_string();
}

enum class Cut { kBetweenFrames, kAmidAFrame };

/// Relays frames between the two ends, until the `frame`-th of one side; then both connections are closed.
struct Relay {
  bool of_connector = false;
  int frame = 0;
  Cut cut = Cut::kBetweenFrames;

  Status run(int connector, int acceptor) const {
    FrameAssembler assemblers[2];
    const int fds[] = {connector, acceptor};
    for (int count = 0;;) {
      pollfd events[] = {{connector, POLLIN, 0}, {acceptor, POLLIN, 0}};
      if (::poll(events, 2, 20000) <= 0) return Status(Code::kTimeout, "relay", "nothing comes any more");
      for (const int from : {0, 1}) {
        TCPX_ASSIGN_OR_RETURN(const auto whole, read_frame_part(fds[from], assemblers[from]));
        if (!whole) continue;
        const auto bytes = encode_frame(assemblers[from].take());
        const bool last = of_connector == (from == 0) && ++count == frame;
        const size_t passed = !last ? bytes.size() : cut == Cut::kAmidAFrame ? bytes.size() / 2 : 0;
        TCPX_RETURN_IF_ERROR(send_all(fds[1 - from], std::span(bytes).first(passed), soon()));
        if (last) return Status::ok();
      }
    }
  }
};

// Hello, identity, settings, handles, what it has accepted and what it has connected.
constexpr int kFramesBeforeComms = 4, kFramesOfAnEnd = 6;

TEST_F(LinkSetupTest, AConnectionThatBreaksAtAnyStepEndsBothEndsAtOnce) {
  testing::allow_log("TCPX_E_PEER_GONE: connect");
  testing::allow_log("TCPX_E_PEER_GONE: getpeername");
  auto listener = listen_tcp(SocketAddress::loopback(0), 4).value();
  const SocketAddress address = local_address(listener.get()).value();
  for (const bool of_connector : {true, false}) {
    for (int frame = 2; frame <= kFramesOfAnEnd; ++frame) {
      for (const Cut cut : {Cut::kBetweenFrames, Cut::kAmidAFrame}) {
        SCOPED_TRACE(
            concat(of_connector ? "connector" : "acceptor", "'s frame ", frame, cut == Cut::kAmidAFrame ? ", half of it" : ""));
        auto connected = in_thread([&] {
          auto channel = bootstrap_connect("127.0.0.1", address.port(), soon());
          return channel.is_ok() ? set_up(std::move(*channel), true, connector_) : Linked(channel.status());
        });
        auto accepted = in_thread([&] {
          auto channel = server_->accept(soon());
          return channel.is_ok() ? set_up(std::move(*channel), false, acceptor_) : Linked(channel.status());
        });
        ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()).is_ok());
        UniqueFd near(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        UniqueFd far = connect_tcp(server_->address(), soon()).value();
        const Relay relay{.of_connector = of_connector, .frame = frame, .cut = cut};
        const Status relayed = relay.run(near.get(), far.get());
        EXPECT_TRUE(relayed.is_ok()) << relayed.to_string();
        near.reset();
        far.reset();
        const TimePoint begin = Clock::steady().now();
        const Linked ends[] = {connected.get(), accepted.get()};
        EXPECT_LT(Clock::steady().now() - begin, seconds(5)) << "long before the deadline";
        // An end that has got all it needs may consider the link set up; its stream then ends.
        EXPECT_TRUE(frame > kFramesBeforeComms || (!ends[0].is_ok() && !ends[1].is_ok()));
        for (const Linked& end : ends) {
          FrameRecorder recorder;
          if (!end.is_ok()) continue;
          EXPECT_TRUE(testing::wait_until([&] {
            (void)end->stream->receive(recorder);
            return !end->stream->status().is_ok();
          }));
          EXPECT_EQ(end->stream->status().code(), Code::kPeerGone) << end->stream->status().to_string();
        }
        for (const Linked& end : ends)
          EXPECT_TRUE(end.is_ok() || end.status().code() == Code::kPeerGone) << end.status().to_string();
      }
    }
  }
}

}  // namespace
}  // namespace tcpx::testing
