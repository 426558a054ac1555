// Messages of pipelines beside those of the bootstrap channel itself, and ends for which the connection is set up.
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "wire/messages.h"
#include "wire/set_up_messages.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

class Recorder final : public PeerMessageSink {
 public:
  void on_peer_message(PeerMessage type, std::span<const std::byte> payload) override {
    seen.push_back(concat(static_cast<uint64_t>(type), ":", std::string(reinterpret_cast<const char*>(payload.data()), payload.size())));
  }
  std::vector<std::string> seen;
};

TEST(BootstrapFlow, FlowsAreToldApartAndEverythingElseGoesOnBesideThem) {
  Ends ends = two_ends();
  const auto a0 = ends.a.open_flow(), a1 = ends.a.open_flow();
  const auto b0 = ends.b.open_flow(), b1 = ends.b.open_flow();
  Recorder first, second;
  b0->deliver_to(&first);
  b1->deliver_to(&second);
  EXPECT_TRUE(a1->post(PeerMessage::kGrant, bytes_of("one")).is_ok());
  auto barrier = in_thread([&] { return ends.a.barrier(soon()); });
  EXPECT_TRUE(ends.b.barrier(soon()).is_ok());
  EXPECT_TRUE(barrier.get().is_ok());
  EXPECT_EQ(second.seen, std::vector<std::string>{"1:one"}) << "sent before the barrier, seen before its end";
  EXPECT_TRUE(a0->post(PeerMessage::kReceived, bytes_of("")).is_ok());
  EXPECT_TRUE(a0->post(PeerMessage::kChannelDown, bytes_of("x")).is_ok());
  EXPECT_TRUE(b1->pump().is_ok()) << "whoever looks takes in everything";
  EXPECT_EQ(first.seen, (std::vector<std::string>{"4:", "3:x"}));
  b0->deliver_to(nullptr);
  EXPECT_TRUE(a0->post(PeerMessage::kGrant, bytes_of("nobody listens")).is_ok());
  EXPECT_TRUE(ends.b.peer_status().is_ok());
  EXPECT_EQ(first.seen.size(), 2u);
}

TEST(BootstrapFlow, APeerThatDoesNotReadBlocksNoPostAndIsGivenUpInTheEnd) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow(), other = ends.b.open_flow();
  Recorder recorder;
  other->deliver_to(&recorder);
  const std::string text(kMaxPeerMessageBytes, 'g');
  size_t posted = 0;
  while (posted < 500) {
    ASSERT_TRUE(flow->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
    ++posted;
  }
  while (recorder.seen.size() < posted) {
    ASSERT_TRUE(other->pump().is_ok());
    ASSERT_TRUE(flow->pump().is_ok()) << "sends what the socket did not take at first";
  }
  EXPECT_EQ(recorder.seen.back(), "1:" + text);
  Status status;
  for (size_t i = 0; i < 100000 && status.is_ok(); ++i) status = flow->post(PeerMessage::kGrant, bytes_of(text));
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
}

TEST(BootstrapFlow, APeerThatReadsButNeverCatchesUpIsOwedOnlyWhatItHasNotRead) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow(), other = ends.b.open_flow();
  Recorder recorder;
  other->deliver_to(&recorder);
  const std::string text(kMaxPeerMessageBytes, 'g');
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(flow->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
  // From here on it reads as much as is posted, several times the most that may wait.
  for (size_t posted = 1000; posted < 10000; posted += 256) {
    ASSERT_TRUE(other->pump().is_ok());
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(flow->post(PeerMessage::kGrant, bytes_of(text)).is_ok()) << posted;
  }
}

TEST(BootstrapFlow, AFloodOfPeerMessagesIsTakenInPartByPart) {
  auto [channel, peer] = half_channel();
  const auto flow = channel.open_flow();
  Recorder recorder;
  flow->deliver_to(&recorder);
  constexpr size_t kMessages = 1000;
  std::vector<std::byte> flood;
  for (size_t i = 0; i < kMessages; ++i) encode(LaneFrame{.what = static_cast<uint64_t>(PeerMessage::kGrant)}, flood);
  ASSERT_TRUE(send_all(peer.get(), flood, soon()).is_ok());
  EXPECT_TRUE(flow->pump().is_ok());
  EXPECT_GT(recorder.seen.size(), 0u);
  EXPECT_LT(recorder.seen.size(), kMessages) << "whoever looks has other things to do, and a deadline";
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(flow->pump().is_ok());
  EXPECT_EQ(recorder.seen.size(), kMessages);
}

TEST(BootstrapFlow, AFlowTellsAPeerThatHasFinishedFromOneThatIsGone) {
  Ends ends = two_ends();
  const auto flow = ends.b.open_flow();
  EXPECT_TRUE(flow->pump().value()) << "there may be more";
  auto finished = in_thread([&] { return ends.a.finish(Status::ok(), soon()); });
  while (flow->pump().value()) {
  }
  EXPECT_EQ(flow->post(PeerMessage::kGrant, bytes_of("x")).code(), Code::kProtocol);
  EXPECT_TRUE(ends.b.finish(Status::ok(), soon()).is_ok());
  EXPECT_TRUE(finished.get().is_ok());
}

TEST(BootstrapFlow, MessagesWaitUntilThereIsAFlow) {
  Ends ends = two_ends();
  EXPECT_TRUE(ends.a.open_flow()->post(PeerMessage::kGrant, bytes_of("early")).is_ok());
  while (ends.b.peer_status().is_ok()) std::this_thread::yield();
  const auto flow = ends.b.open_flow();
  Recorder recorder;
  flow->deliver_to(&recorder);
  EXPECT_TRUE(flow->pump().is_ok());
  EXPECT_EQ(recorder.seen, std::vector<std::string>{"1:early"});
}

// The remaining bytes in a socket.
std::vector<std::byte> rest_of(int fd) {
  std::vector<std::byte> all;
  std::byte buffer[256];
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) return all;
    all.insert(all.end(), buffer, buffer + n);
  }
}

TEST(BootstrapHandOver, FramesOfAPeerThatHasGoneOnStayWhole) {
  std::vector<std::byte> large, small, behind;
  encode(SendDataFrame{.operation = 1, .data = std::vector<std::byte>(60000, std::byte{7})}, large);
  encode(ByeFrame{}, small);
  // A frame of the set-up behind it does not count as one.
  behind = small;
  const auto barrier = encode_frame(encode_barrier(1));
  behind.insert(behind.end(), barrier.begin(), barrier.end());
  for (const auto& sent : {large, small, behind, encode_frame(encode_finish(Status(Code::kPlugin, "connect", "x"))), {}}) {
    for (const bool in_parts : {false, true}) {
      auto [channel, peer] = half_channel();
      const size_t first = in_parts ? sent.size() / 2 : sent.size();
      ASSERT_TRUE(send_all(peer.get(), std::span(sent).first(first), soon()).is_ok());
      auto handed_over = channel.hand_over();
      if (sent.size() > 40 && sent[5] == std::byte{5} && !in_parts) {
        EXPECT_EQ(handed_over.status().detail(), "connect: x");
        continue;
      }
      ASSERT_TRUE(handed_over.is_ok()) << handed_over.status().to_string();
      ASSERT_TRUE(send_all(peer.get(), std::span(sent).subspan(first), soon()).is_ok());
      EXPECT_LE(handed_over->begun.size(), 64u);
      std::vector<std::byte> got = handed_over->begun;
      const auto rest = rest_of(handed_over->socket.get());
      got.insert(got.end(), rest.begin(), rest.end());
      EXPECT_EQ(got, sent);
    }
  }
}

TEST(BootstrapHandOver, APeersLastFramesBeforeItGoesOnAreStillThere) {
  auto [channel, peer] = half_channel();
  auto bytes = encode_frame(encode_barrier(1));
  encode(ByeFrame{}, bytes);
  ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
  EXPECT_TRUE(channel.peer_status().is_ok());
  ASSERT_TRUE(channel.barrier(soon()).is_ok());
  EXPECT_TRUE(channel.hand_over().is_ok());
}

TEST(BootstrapHandOver, UnreadFramesAreAProtocolError) {
  Ends ends = two_ends();
  ASSERT_TRUE(ends.b.send_handles(some_handles(1), soon()).is_ok());
  ASSERT_TRUE(ends.a.peer_status().is_ok());
  EXPECT_EQ(ends.a.hand_over().status().code(), Code::kProtocol);
}

TEST(BootstrapHandOver, UnsentPeerMessagesAreAProtocolError) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow();
  const std::string text(kMaxPeerMessageBytes, 'g');
  // More than a socket accepts for a peer that does not read.
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(flow->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
  const Status status = ends.a.hand_over().status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_NE(status.detail().find("bytes of peer messages"), std::string::npos) << status.to_string();
}

TEST(BootstrapHandOver, APeerThatHasGoneOnWhileThisEndExpectsMoreIsAProtocolError) {
  auto [channel, peer] = half_channel();
  std::vector<std::byte> bye;
  encode(ByeFrame{}, bye);
  ASSERT_TRUE(send_all(peer.get(), bye, soon()).is_ok());
  const Status status = channel.receive_handles(1, soon()).status();
  EXPECT_EQ(status.to_string(), "TCPX_E_PROTOCOL: bootstrap: for the peer the connection is set up, for this end it is not");
  EXPECT_EQ(channel.barrier(soon()).to_string(), status.to_string());
  EXPECT_EQ(channel.peer_status().to_string(), status.to_string());
  EXPECT_EQ(channel.finish(Status::ok(), soon()).to_string(), status.to_string()) << "without waiting for a verdict";
}

}  // namespace
}  // namespace tcpx::testing
