// A link's set-up with a peer made by hand: versions, bounds, silence.
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "tests/support/link_setup_ends.h"
#include "tests/support/raw_frame.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Parameters kIdentity = {{"role", "connect"},
                              {"instance", "18446744073709551615"},
                              {"gpu", "0"},
                              {"wanted gpu", "-1"},
                              {"wanted instance", "0"},
                              {"inline bytes", "65536"},
                              {"channels", "2"}};
const Parameters kPipeline = {
    {"half", "both"}, {"chunk bytes", "524288"}, {"longest chunk bytes", "0"}, {"failover", "off"}, {"nics", "a,b"}};

class LinkSetupByHand : public LinkSetupTest {
 protected:
  /// Starts the acceptor's end. @return the connector's channel, and the status of the acceptor
  std::pair<BootstrapChannel, std::future<Status>> acceptor(Deadline deadline = soon()) {
    auto [client, server] = channels();
    auto other = in_thread([this, deadline, channel = std::make_shared<BootstrapChannel>(std::move(server))] {
      return set_up(std::move(*channel), false, acceptor_, deadline).status();
    });
    return {std::move(client), std::move(other)};
  }
};

TEST_F(LinkSetupByHand, EveryNumberOfThePeerIsBounded) {
  const std::pair<const char*, std::vector<std::string>> bad[] = {
      {"instance", {"", "-1", "18446744073709551616", "1x", " 1", "0x1"}},
      {"gpu", {"", "-1", "2147483648", "1.0"}},
      {"wanted gpu", {"", "-2", "2147483648"}},
      {"wanted instance", {"", "-1", "18446744073709551616"}},
      {"inline bytes", {"", "-1", "65537", "4294967297"}},
      {"channels", {"", "-1", "0", "17", "18446744073709551618"}}};
  for (const auto& [name, values] : bad) {
    for (const std::string& value : values) {
      auto [peer, other] = acceptor();
      Parameters parameters = kIdentity;
      parameters[name] = value;
      ASSERT_TRUE(peer.exchange_parameters(parameters, {}, soon()).is_ok());
      const std::string text = concat("the peer's ", name, " is \"", value, '"');
      expect_told(peer.finish(Status::ok(), soon()), Code::kProtocol, text);
      expect_told(other.get(), Code::kProtocol, text);
    }
    auto [peer, other] = acceptor();
    Parameters parameters = kIdentity;
    parameters.erase(name);
    ASSERT_TRUE(peer.exchange_parameters(parameters, {}, soon()).is_ok());
    expect_told(peer.finish(Status::ok(), soon()), Code::kProtocol, concat("the peer does not tell its ", name));
    EXPECT_EQ(other.get().code(), Code::kProtocol);
  }
}

// A library that is older, or one whose word for it is another.
TEST_F(LinkSetupByHand, ChecksumsAreWithAPeerThatHasThem) {
  for (const std::string& word : {std::string(), std::string("cannot")}) {
    auto [peer, server] = channels();
    auto other = in_thread([this, channel = std::make_shared<BootstrapChannel>(std::move(server))] {
      LinkSetup setup = setup_of(false, acceptor_);
      setup.checksums = true;
      return set_up_link(std::move(*channel), false, setup, soon()).status();
    });
    Parameters parameters = kIdentity;
    if (!word.empty()) parameters.insert({{"checksums", word}, {"sum seed", "1"}});
    ASSERT_TRUE(peer.exchange_parameters(parameters, {}, soon()).is_ok());
    expect_told(peer.finish(Status::ok(), soon()), Code::kMismatch, "UCCL_TCPX_CHECKSUM is on at one end");
    expect_told(other.get(), Code::kMismatch, "UCCL_TCPX_CHECKSUM is on at one end");
  }
}

TEST_F(LinkSetupByHand, ASilentPeerIsLeftAtTheDeadline) {
  auto [peer, other] = acceptor(Deadline::after(milliseconds(50)));
  EXPECT_EQ(other.wait_for(seconds(10)), std::future_status::ready) << "it gets a second to say its verdict";
  EXPECT_EQ(other.get().code(), Code::kTimeout);
  expect_told(peer.peer_status(), Code::kTimeout, "deadline passed");
}

TEST_F(LinkSetupByHand, APeerThatNeverConnectsIsLeftAtTheDeadline) {
  auto [peer, other] = acceptor(Deadline::after(milliseconds(300)));
  ASSERT_TRUE(peer.exchange_parameters(kIdentity, {}, soon()).is_ok());
  ASSERT_TRUE(peer.exchange_parameters(kPipeline, {}, soon()).is_ok());
  ASSERT_TRUE(peer.receive_handles(2, soon()).is_ok());
  const auto listeners = listen_all(*endpoint_->plugin, acceptor_.devices).value();
  ASSERT_TRUE(peer.send_handles(handles_of(listeners), soon()).is_ok());
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("made"), "3");
  expect_told(peer.receive_parameters(soon()).status(), Code::kTimeout, "pair channels: the other end did not come until the deadline");
  (void)peer.finish(Status::ok(), soon());
  EXPECT_EQ(other.get().code(), Code::kTimeout);
}

TEST_F(LinkSetupByHand, TheStopFlagEndsEveryWait) {
  for (const int steps : {0, 1, 2}) {
    auto [peer, other] = acceptor();
    if (steps >= 1) {
      ASSERT_TRUE(peer.exchange_parameters(kIdentity, {}, soon()).is_ok());
    }
    if (steps >= 2) {
      ASSERT_TRUE(peer.exchange_parameters(kPipeline, {}, soon()).is_ok());
      ASSERT_TRUE(peer.receive_handles(2, soon()).is_ok());
    }
    EXPECT_EQ(other.wait_for(milliseconds(20)), std::future_status::timeout);
    stop_ = true;
    EXPECT_TRUE(testing::wait_until([&peer = peer] { return !peer.peer_status().is_ok(); }));
    expect_told(peer.finish(Status::ok(), soon()), Code::kCancelled, "interrupted");
    expect_told(other.get(), Code::kCancelled, "interrupted");
    stop_ = false;
  }
}

// What the ends say without having heard anything since decides how many round trips a connection takes: one of TCP, the two
// first words, then connect and hello of the data sockets, beside which both tell what stands.

TEST_F(LinkSetupByHand, TheConnectorSaysAllItCanBehindItsHello) {
  auto listener = listen_tcp(SocketAddress::loopback(0), 4).value();
  const uint16_t port = local_address(listener.get()).value().port();
  auto other = in_thread(
      [&] { return connect_link("127.0.0.1", port, setup_of(true, connector_), soon(), &stop_).status(); });
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()).is_ok());
  BootstrapChannel peer(accept_tcp(listener.get()), SocketAddress::loopback(port), "");
  EXPECT_TRUE(peer.hear_hello(soon()).is_ok());
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("role"), "connect");
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("half"), "both");
  EXPECT_EQ(peer.receive_handles(kMaxChannels, soon()).value().size(), 2u);
  stop_ = true;
  EXPECT_EQ(other.get().code(), Code::kCancelled);
}

TEST_F(LinkSetupByHand, TheAcceptorAnswersAtOnceAndTellsWhatStandsUnasked) {
  auto [peer, other] = acceptor();
  auto listeners = listen_all(*endpoint_->plugin, acceptor_.devices).value();
  ASSERT_TRUE(peer.send_parameters(kIdentity, soon()).is_ok());
  ASSERT_TRUE(peer.send_parameters(kPipeline, soon()).is_ok());
  ASSERT_TRUE(peer.send_handles(handles_of(listeners), soon()).is_ok());
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("role"), "accept");
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("half"), "both");
  const auto handles = peer.receive_handles(2, soon()).value();
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("made"), "3");
  const auto comms = connect_all(*endpoint_->plugin, acceptor_.devices, handles, {.deadline = soon()}, {.for_first = soon()});
  ASSERT_TRUE(comms.is_ok());
  EXPECT_EQ(peer.receive_parameters(soon()).value().at("accepted"), "3");
  (void)peer.finish(Status::ok(), soon());
  EXPECT_FALSE(other.get().is_ok());
}

TEST_F(LinkSetupByHand, TheConnectorIsDoneWithoutAWordOfWhetherTheAcceptorIs) {
  for (const bool fails : {false, true}) {
    auto [client, peer] = channels();
    auto other = in_thread([this, channel = std::make_shared<BootstrapChannel>(std::move(client))] {
      return set_up(std::move(*channel), true, connector_);
    });
    auto listeners = listen_all(*endpoint_->plugin, acceptor_.devices).value();
    Parameters identity = kIdentity;
    identity["role"] = "accept";
    ASSERT_TRUE(peer.exchange_parameters(identity, {}, soon()).is_ok());
    ASSERT_TRUE(peer.exchange_parameters(kPipeline, {}, soon()).is_ok());
    ASSERT_TRUE(peer.send_handles(handles_of(listeners), soon()).is_ok());
    const auto handles = peer.receive_handles(2, soon()).value();
    const auto comms = connect_all(*endpoint_->plugin, acceptor_.devices, handles, {.deadline = soon()}, {.for_first = soon()});
    ASSERT_TRUE(peer.send_parameters({{"made", "3"}, {"again", "0"}}, soon()).is_ok());
    ASSERT_TRUE(peer.send_parameters({{"accepted", "3"}}, soon()).is_ok());
    const auto linked = other.get();
    ASSERT_TRUE(linked.is_ok()) << linked.status().to_string();
    if (!fails) continue;
    peer.leave(Status(Code::kExhausted, "set up link", "no room after all"));
    FrameRecorder recorder;
    EXPECT_TRUE(testing::wait_until([&] {
      (void)linked->stream->receive(recorder);
      return !linked->stream->status().is_ok();
    }));
    using Seen = std::vector<std::pair<FrameType, std::string>>;
    EXPECT_EQ(recorder.seen, Seen({{FrameType::kFinish, "set up link: no room after all"}}));
  }
}

}  // namespace
}  // namespace tcpx::testing
