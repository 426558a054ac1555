// Messages of pipelines beside those of the bootstrap channel itself, and ends that detach their socket from it.
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "wire/set_up_messages.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

class Recorder final : public PeerMessageSink {
 public:
  void on_peer_message(FrameType type, std::span<const std::byte> payload) override {
    seen.push_back(concat(name_of(type), ":", std::string(reinterpret_cast<const char*>(payload.data()), payload.size())));
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
  EXPECT_TRUE(a1->post(FrameType::kGrant, bytes_of("one")).is_ok());
  auto barrier = in_thread([&] { return ends.a.barrier(soon()); });
  EXPECT_TRUE(ends.b.barrier(soon()).is_ok());
  EXPECT_TRUE(barrier.get().is_ok());
  EXPECT_EQ(second.seen, std::vector<std::string>{"grant:one"}) << "sent before the barrier, seen before its end";
  EXPECT_TRUE(a0->post(FrameType::kReceived, bytes_of("")).is_ok());
  EXPECT_TRUE(a0->post(FrameType::kChannelDown, bytes_of("x")).is_ok());
  EXPECT_TRUE(b1->pump().is_ok()) << "whoever looks takes in everything";
  EXPECT_EQ(first.seen, (std::vector<std::string>{"received:", "channel down:x"}));
  b0->deliver_to(nullptr);
  EXPECT_TRUE(a0->post(FrameType::kGrant, bytes_of("nobody listens")).is_ok());
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
    ASSERT_TRUE(flow->post(FrameType::kGrant, bytes_of(text)).is_ok());
    ++posted;
  }
  while (recorder.seen.size() < posted) {
    ASSERT_TRUE(other->pump().is_ok());
    ASSERT_TRUE(flow->pump().is_ok()) << "sends what the socket did not take at first";
  }
  EXPECT_EQ(recorder.seen.back(), "grant:" + text);
  Status status;
  for (size_t i = 0; i < 100000 && status.is_ok(); ++i) status = flow->post(FrameType::kGrant, bytes_of(text));
  EXPECT_EQ(status.code(), Code::kExhausted) << status.to_string();
}

TEST(BootstrapFlow, APeerThatReadsButNeverCatchesUpIsOwedOnlyWhatItHasNotRead) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow(), other = ends.b.open_flow();
  Recorder recorder;
  other->deliver_to(&recorder);
  const std::string text(kMaxPeerMessageBytes, 'g');
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(flow->post(FrameType::kGrant, bytes_of(text)).is_ok());
  // From here on it reads as much as is posted, several times the most that may wait.
  for (size_t posted = 1000; posted < 10000; posted += 256) {
    ASSERT_TRUE(other->pump().is_ok());
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(flow->post(FrameType::kGrant, bytes_of(text)).is_ok()) << posted;
  }
}

TEST(BootstrapFlow, AFloodOfPeerMessagesIsTakenInPartByPart) {
  auto [channel, peer] = half_channel();
  const auto flow = channel.open_flow();
  Recorder recorder;
  flow->deliver_to(&recorder);
  constexpr size_t kMessages = 1000;
  const FlowHeader front{.flow = 0, .reserved = 0};
  std::vector<std::byte> flood;
  for (size_t i = 0; i < kMessages; ++i) append_frame(flood, FrameType::kGrant, std::as_bytes(std::span(&front, 1)), {});
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
  EXPECT_EQ(flow->post(FrameType::kGrant, bytes_of("x")).code(), Code::kProtocol);
  EXPECT_TRUE(ends.b.finish(Status::ok(), soon()).is_ok());
  EXPECT_TRUE(finished.get().is_ok());
}

TEST(BootstrapFlow, APeerMessageTooShortForItsHeaderBreaksTheChannel) {
  auto [channel, peer] = half_channel();
  const auto bytes = encode_frame({.type = FrameType::kGrant, .payload = std::vector<std::byte>(7)});
  ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
  EXPECT_EQ(channel.peer_status().code(), Code::kProtocol);
}

// The remaining bytes in a socket, as text.
std::string rest_of(int fd) {
  std::string text;
  char buffer[256];
  for (;;) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

TEST(BootstrapDetach, BothEndsDetachAndGoOnWithTheSocket) {
  Ends ends = two_ends();
  auto other = in_thread([&] { return ends.b.detach(soon()); });
  auto a = ends.a.detach(soon());
  auto b = other.get();
  ASSERT_TRUE(a.is_ok()) << a.status().to_string();
  ASSERT_TRUE(b.is_ok()) << b.status().to_string();
  ASSERT_TRUE(send_all(a->get(), bytes_of("to b"), soon()).is_ok());
  ASSERT_TRUE(send_all(b->get(), bytes_of("to a"), soon()).is_ok());
  EXPECT_EQ(rest_of(a->get()), "to a");
  EXPECT_EQ(rest_of(b->get()), "to b");
}

TEST(BootstrapDetach, BytesBehindAPeersDetachStayInTheSocket) {
  // A whole frame of ours after it does not count as a frame either.
  const auto frame = encode_frame(encode_barrier(1));
  const std::string like_a_frame(reinterpret_cast<const char*>(frame.data()), frame.size());
  for (const std::string& raw : {std::string("x"), std::string(100000, 'r'), like_a_frame}) {
    auto [channel, peer] = half_channel();
    auto bytes = encode_frame(encode_detach());
    const auto behind = bytes_of(raw);
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
    const auto socket = channel.detach(soon());
    ASSERT_TRUE(socket.is_ok()) << socket.status().to_string();
    EXPECT_EQ(rest_of(socket->get()), raw);
  }
}

TEST(BootstrapDetach, APeersLastFramesBeforeItsDetachAreStillThere) {
  Ends ends = two_ends();
  auto other = in_thread([&] {
    TCPX_RETURN_IF_ERROR(ends.b.barrier(soon()));
    return ends.b.detach(soon()).status();
  });
  // Late enough for the detach frame to have arrived together with the barrier.
  ASSERT_TRUE(ends.a.barrier(soon()).is_ok());
  EXPECT_TRUE(ends.a.detach(soon()).is_ok());
  EXPECT_TRUE(other.get().is_ok());
}

TEST(BootstrapDetach, DetachingWithUnreadFramesIsAProtocolError) {
  Ends before = two_ends();
  ASSERT_TRUE(before.b.send_handles(some_handles(1), soon()).is_ok());
  ASSERT_TRUE(before.a.peer_status().is_ok());
  EXPECT_EQ(before.a.detach(soon()).status().code(), Code::kProtocol);

  Ends meanwhile = two_ends();
  auto detaching = in_thread([&] { return meanwhile.a.detach(soon()).status(); });
  EXPECT_EQ(detaching.wait_for(milliseconds(20)), std::future_status::timeout);
  ASSERT_TRUE(meanwhile.b.send_handles(some_handles(1), soon()).is_ok());
  EXPECT_EQ(detaching.get().code(), Code::kProtocol);
}

TEST(BootstrapDetach, DetachingWithUnsentPeerMessagesIsAProtocolError) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow();
  const std::string text(kMaxPeerMessageBytes, 'g');
  // More than a socket accepts for a peer that does not read.
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(flow->post(FrameType::kGrant, bytes_of(text)).is_ok());
  const Status status = ends.a.detach(soon()).status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_NE(status.detail().find("bytes of peer messages"), std::string::npos) << status.to_string();
}

TEST(BootstrapDetach, APeerThatFinishesInsteadOfDetachingSaysWhy) {
  const Status failure(Code::kPlugin, "connect", "no device");
  for (const bool finish_first : {true, false}) {
    Ends ends = two_ends();
    auto finishing = [&] { return ends.b.finish(failure, soon()); };
    auto detaching = [&] {
      const Status status = ends.a.detach(soon()).status();
      return ends.a.finish(status, soon());
    };
    std::future<Status> finished, detached;
    if (finish_first) finished = in_thread(finishing);
    detached = in_thread(detaching);
    if (!finish_first) finished = in_thread(finishing);
    EXPECT_EQ(finished.get().to_string(), failure.to_string()) << "at once, without waiting for a verdict that cannot come";
    EXPECT_EQ(detached.get().to_string(), "TCPX_E_PLUGIN: peer reported: connect: no device");
  }
}

TEST(BootstrapDetach, APeerThatDetachesWhileThisEndExpectsMoreIsAProtocolError) {
  Ends ends = two_ends();
  auto detaching = in_thread([&] { return ends.b.detach(soon()).status(); });
  const Status status = ends.a.receive_handles(1, soon()).status();
  EXPECT_EQ(status.to_string(), "TCPX_E_PROTOCOL: bootstrap: the peer has detached its socket, this end has not");
  EXPECT_EQ(ends.a.barrier(soon()).to_string(), status.to_string());
  EXPECT_EQ(ends.a.peer_status().to_string(), status.to_string());
  EXPECT_EQ(ends.a.finish(Status::ok(), soon()).to_string(), status.to_string()) << "without waiting for a verdict";
  EXPECT_EQ(detaching.get().detail(), "the peer has finished, this end has not");
}

TEST(BootstrapDetach, DetachEndsAtItsDeadlineWhenStoppedAndWhenThePeerDies) {
  Ends ends = two_ends();
  EXPECT_EQ(ends.a.detach(Deadline::after(milliseconds(20))).status().code(), Code::kTimeout);
  EXPECT_EQ(ends.a.finish(Status::ok(), soon()).code(), Code::kTimeout) << "nothing more can be said";

  std::atomic<bool> stop = false;
  HalfChannel stopped = half_channel(&stop), alone = half_channel();
  auto detaching = in_thread([&] { return stopped.channel.detach(soon()).status(); });
  stop = true;
  EXPECT_EQ(detaching.get().detail(), "interrupted");
  auto waiting = in_thread([&] { return alone.channel.detach(soon()).status(); });
  alone.peer.reset();
  EXPECT_EQ(waiting.get().code(), Code::kPeerGone);
}

}  // namespace
}  // namespace tcpx::testing
