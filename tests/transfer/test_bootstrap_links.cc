// Messages of pipelines beside those of the bootstrap channel itself, and ends for which the connection is set up.
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/ok.h"
#include "tests/support/wait_until.h"
#include "transfer/peer_messages.h"
#include "wire/messages.h"
#include "wire/set_up_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

class Recorder final : public PeerMessageSink {
 public:
  void on_peer_message(PeerMessage type, std::span<const std::byte> payload) override {
    seen.push_back(
        concat(static_cast<uint64_t>(type), ":", std::string(reinterpret_cast<const char*>(payload.data()), payload.size())));
  }
  std::vector<std::string> seen;
};

TEST(BootstrapLinks, LinksAreToldApartAndEverythingElseGoesOnBesideThem) {
  Ends ends = two_ends();
  const auto a0 = ends.a.mailbox_to(true), a1 = ends.a.mailbox_to(false);
  const auto b0 = ends.b.mailbox_to(false), b1 = ends.b.mailbox_to(true);
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

TEST(BootstrapLinks, APeerThatDoesNotReadBlocksNoPostAndIsGivenUpInTheEnd) {
  Ends ends = two_ends();
  const auto link = ends.a.mailbox_to(true), other = ends.b.mailbox_to(false);
  Recorder recorder;
  other->deliver_to(&recorder);
  const std::string text(kMaxPeerMessageBytes, 'g');
  size_t posted = 0;
  while (posted < 500) {
    ASSERT_TRUE(link->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
    ++posted;
  }
  while (recorder.seen.size() < posted) {
    ASSERT_TRUE(other->pump().is_ok());
    ASSERT_TRUE(link->pump().is_ok()) << "sends what the socket did not take at first";
  }
  EXPECT_EQ(recorder.seen.back(), "1:" + text);
  Status status;
  for (size_t i = 0; i < 200000 && status.is_ok(); ++i) status = link->post(PeerMessage::kGrant, bytes_of(text));
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
}

TEST(BootstrapLinks, APeerThatReadsButNeverCatchesUpIsOwedOnlyWhatItHasNotRead) {
  Ends ends = two_ends();
  const auto link = ends.a.mailbox_to(true), other = ends.b.mailbox_to(false);
  Recorder recorder;
  other->deliver_to(&recorder);
  const std::string text(kMaxPeerMessageBytes, 'g');
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(link->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
  // From here on it reads as much as is posted, several times the most that may wait.
  for (size_t posted = 1000; posted < 10000; posted += 256) {
    ASSERT_TRUE(other->pump().is_ok());
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(link->post(PeerMessage::kGrant, bytes_of(text)).is_ok()) << posted;
  }
}

TEST(BootstrapLinks, ALinkTellsAPeerThatHasFinishedFromOneThatIsGone) {
  Ends ends = two_ends();
  const auto link = ends.b.mailbox_to(false);
  EXPECT_TRUE(link->pump().value()) << "there may be more";
  auto finished = in_thread([&] { return ends.a.finish(Status::ok(), soon()); });
  while (link->pump().value()) {
  }
  EXPECT_EQ(link->post(PeerMessage::kGrant, bytes_of("x")).code(), Code::kProtocol);
  EXPECT_TRUE(ends.b.finish(Status::ok(), soon()).is_ok());
  EXPECT_TRUE(finished.get().is_ok());
}

TEST(BootstrapLinks, MessagesWaitUntilThereIsALink) {
  Ends ends = two_ends();
  EXPECT_TRUE(ends.a.mailbox_to(true)->post(PeerMessage::kGrant, bytes_of("early")).is_ok());
  while (ends.b.peer_status().is_ok()) std::this_thread::yield();
  const auto link = ends.b.mailbox_to(false);
  Recorder recorder;
  link->deliver_to(&recorder);
  EXPECT_TRUE(link->pump().is_ok());
  EXPECT_EQ(recorder.seen, std::vector<std::string>{"1:early"});
}

// Takes every frame that has come for it.
struct Frames final : ControlSink {
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
    seen += concat(name_of(static_cast<FrameType>(header.type)), " ", payload.size(), ";");
    return Status::ok();
  }
  std::string seen;
};

TEST(BootstrapHandOver, FramesOfAPeerThatHasGoneOnStayWhole) {
  std::vector<std::byte> large, small, behind;
  append_whole(SendDataFrame{.operation = 1, .data = std::vector<std::byte>(60000, std::byte{7})}, large);
  append_whole(ByeFrame{}, small);
  // A frame of the set-up behind it does not count as one.
  behind = small;
  append_whole(encode_barrier(1), behind);
  const std::vector<std::pair<std::vector<std::byte>, std::string>> all = {
      {large, "send with data 60020;"},
      {small, "bye 0;"},
      {behind, "bye 0;barrier 0;"},
      {encode_frame(encode_finish(Status(Code::kPlugin, "connect", "x"))), "finish 10;"},
      {{}, ""}};
  for (const auto& [sent, expected] : all) {
    const std::string& seen = expected;
    for (const size_t first : {size_t{0}, sent.size() / 2, sent.size()}) {
      for (const bool looks : {false, true}) {
        if (looks && seen.starts_with("finish")) continue;  // is the peer's last word for the channel then
        auto [channel, peer] = half_channel();
        ASSERT_OK(send_all(peer.get(), std::span(sent).first(first), soon()));
        if (looks) (void)channel.peer_status();
        auto stream = channel.hand_over();
        ASSERT_TRUE(stream.is_ok()) << stream.status().to_string();
        ASSERT_OK(send_all(peer.get(), std::span(sent).subspan(first), soon()));
        Frames frames;
        EXPECT_TRUE(wait_until([&] {
          (*stream)->receive(frames);
          return frames.seen == seen;
        })) << frames.seen;
        EXPECT_OK((*stream)->status());
      }
    }
  }
}

TEST(BootstrapHandOver, APeersLastFramesBeforeItGoesOnAreStillThere) {
  auto [channel, peer] = half_channel();
  auto bytes = encode_frame(encode_barrier(1));
  append_whole(ByeFrame{}, bytes);
  ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
  EXPECT_TRUE(channel.peer_status().is_ok());
  ASSERT_TRUE(channel.barrier(soon()).is_ok());
  auto stream = channel.hand_over();
  ASSERT_TRUE(stream.is_ok()) << stream.status().to_string();
  EXPECT_TRUE((*stream)->has_arrived()) << "nothing more will come over the socket";
  Frames frames;
  (*stream)->receive(frames, false);
  EXPECT_EQ(frames.seen, "bye 0;");
}

TEST(BootstrapHandOver, UnreadFramesAreAProtocolError) {
  Ends ends = two_ends();
  ASSERT_TRUE(ends.b.send_handles(some_handles(1), soon()).is_ok());
  ASSERT_TRUE(ends.a.peer_status().is_ok());
  EXPECT_EQ(ends.a.hand_over().status().code(), Code::kProtocol);
}

TEST(BootstrapHandOver, UnsentPeerMessagesAreAProtocolError) {
  Ends ends = two_ends();
  const auto link = ends.a.mailbox_to(true);
  const std::string text(kMaxPeerMessageBytes, 'g');
  // More than a socket accepts for a peer that does not read.
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(link->post(PeerMessage::kGrant, bytes_of(text)).is_ok());
  const Status status = ends.a.hand_over().status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_NE(status.detail().find(" frames and not sent "), std::string::npos) << status.to_string();
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
