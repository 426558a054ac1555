// Two ends on a bootstrap channel: their messages, their parting, and the status of each when the other dies.
#include "transfer/bootstrap_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <future>

#include "base/fork.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "transfer/bootstrap.h"
#include "transfer/bootstrap_message.h"
#include "transfer/peer_messages.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline soon() {
  return Deadline::after(seconds(10));
}

struct Sockets {
  UniqueFd a, b;
};

Sockets socket_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

BootstrapChannel channel_on(UniqueFd fd) {
  return {std::move(fd), SocketAddress::loopback(1), "test"};
}

struct Ends {
  BootstrapChannel a, b;
};

Ends two_ends() {
  Sockets sockets = socket_pair();
  return {channel_on(std::move(sockets.a)), channel_on(std::move(sockets.b))};
}

std::vector<Handle> some_handles(size_t count) {
  std::vector<Handle> handles(count);
  for (size_t i = 0; i < count; ++i) handles[i].bytes.fill(static_cast<std::byte>(i + 1));
  return handles;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <class F>
auto in_thread(F function) {
  return std::async(std::launch::async, std::move(function));
}

TEST(BootstrapChannel, HandlesGoBothWaysInOrder) {
  Ends ends = two_ends();
  ASSERT_TRUE(ends.a.send_handles(some_handles(1), soon()).is_ok());
  ASSERT_TRUE(ends.a.send_handles(some_handles(kMaxHandlesPerFrame), soon()).is_ok());
  ASSERT_TRUE(ends.b.send_handles(some_handles(3), soon()).is_ok());
  EXPECT_EQ(ends.b.receive_handles(1, soon()).value(), some_handles(1));
  EXPECT_EQ(ends.b.receive_handles(1000, soon()).value(), some_handles(kMaxHandlesPerFrame));
  EXPECT_EQ(ends.a.receive_handles(3, soon()).value(), some_handles(3));
}

TEST(BootstrapChannel, MoreHandlesThanAskedForIsAnErrorThatSticks) {
  Ends ends = two_ends();
  ASSERT_TRUE(ends.a.send_handles(some_handles(3), soon()).is_ok());
  const Status first = ends.b.receive_handles(2, soon()).status();
  EXPECT_EQ(first.code(), Code::kProtocol);
  EXPECT_EQ(ends.b.barrier(soon()).to_string(), first.to_string());
  EXPECT_EQ(ends.b.peer_status().to_string(), first.to_string());
  // Its own verdict still reaches the peer.
  EXPECT_EQ(ends.b.finish(first, soon()).to_string(), first.to_string());
  EXPECT_EQ(ends.a.receive_handles(1, soon()).status().code(), Code::kProtocol);
}

TEST(BootstrapChannel, EqualParametersAreExchanged) {
  Ends ends = two_ends();
  constexpr std::string_view kMustMatch[] = {"bytes", "memory"};
  auto other = in_thread([&] {
    return ends.b.exchange_parameters({{"bytes", "10"}, {"memory", "host"}, {"dev", "1"}}, kMustMatch, soon());
  });
  const auto theirs = ends.a.exchange_parameters({{"bytes", "10"}, {"memory", "host"}, {"dev", "0"}}, kMustMatch, soon());
  ASSERT_TRUE(theirs.is_ok()) << theirs.status().to_string();
  EXPECT_EQ(theirs->at("dev"), "1");
  EXPECT_EQ(other.get()->at("dev"), "0");
}

TEST(BootstrapChannel, BothEndsNameTheParametersThatDiffer) {
  Ends ends = two_ends();
  constexpr std::string_view kMustMatch[] = {"bytes", "memory", "tag"};
  auto other = in_thread([&] {
    return ends.b.exchange_parameters({{"bytes", "20"}, {"memory", "host"}}, kMustMatch, soon()).status();
  });
  const Status here =
      ends.a.exchange_parameters({{"bytes", "10"}, {"memory", "host"}, {"tag", "42"}}, kMustMatch, soon()).status();
  EXPECT_EQ(here.code(), Code::kMismatch);
  EXPECT_EQ(here.detail(), "bytes is 10 here and 20 at the peer; tag is 42 here and not given at the peer");
  EXPECT_EQ(other.get().detail(), "bytes is 20 here and 10 at the peer; tag is not given here and 42 at the peer");
}

TEST(BootstrapChannel, BarrierWaitsForTheOther) {
  Ends ends = two_ends();
  EXPECT_EQ(ends.a.barrier(Deadline::after(milliseconds(20))).code(), Code::kTimeout);
  Ends fresh = two_ends();
  auto other = in_thread([&] { return fresh.b.barrier(soon()).is_ok() && fresh.b.barrier(soon()).is_ok(); });
  EXPECT_TRUE(fresh.a.barrier(soon()).is_ok());
  EXPECT_TRUE(fresh.a.barrier(soon()).is_ok());
  EXPECT_TRUE(other.get());
}

TEST(BootstrapChannel, ABarrierOfAnotherNumberIsAnErrorThatSticks) {
  for (const uint64_t number : {0, 1, 3}) {
    Sockets sockets = socket_pair();
    BootstrapChannel channel = channel_on(std::move(sockets.a));
    for (const uint64_t at : {uint64_t{1}, number}) {
      ASSERT_TRUE(send_all(sockets.b.get(), encode_frame(encode_barrier(at)), soon()).is_ok());
    }
    ASSERT_TRUE(channel.barrier(soon()).is_ok());
    const Status status = channel.barrier(soon());
    EXPECT_EQ(status.to_string(), concat("TCPX_E_PROTOCOL: bootstrap barrier: this end is at barrier 2, the peer at ", number));
    const auto last_word = encode_frame(encode_finish(Status(Code::kMismatch, "verify", "byte 3")));
    ASSERT_TRUE(send_all(sockets.b.get(), last_word, soon()).is_ok());
    EXPECT_EQ(channel.peer_status().to_string(), status.to_string()) << "whatever comes behind it";
  }
}

TEST(BootstrapChannel, APeerThatIsFarAheadWaitsInTheSocket) {
  Sockets sockets = socket_pair();
  const UniqueFd a(::dup(sockets.a.get()));
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  const auto frame = encode_frame(*encode_handles(some_handles(2)));
  constexpr int kFrames = 20, kStored = 8;
  for (int i = 0; i < kFrames; ++i) ASSERT_TRUE(send_all(sockets.b.get(), frame, soon()).is_ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(channel.peer_status().is_ok());
  int unread = 0;
  ASSERT_EQ(::ioctl(a.get(), FIONREAD, &unread), 0);
  EXPECT_EQ(unread, (kFrames - kStored) * static_cast<int>(frame.size())) << "what it can make us store is bounded";
  for (int i = 0; i < kFrames; ++i) EXPECT_EQ(channel.receive_handles(2, soon()).value(), some_handles(2)) << i;
}

TEST(BootstrapChannel, WhatNobodyAskedForDoesNotKeepTheLastWordBack) {
  Ends ends = two_ends();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ends.b.send_handles(some_handles(1), soon()).is_ok());
  auto other = in_thread([&] { return ends.b.finish(Status::ok(), soon()); });
  const Status status = ends.a.finish(Status::ok(), soon());
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_TRUE(other.get().is_ok());
}

TEST(BootstrapChannel, AFrameOfAnotherKindThanWasDueIsAnErrorThatSticks) {
  enum class Due { kHandles, kParameters, kBarrier };
  for (const Due due : {Due::kHandles, Due::kParameters, Due::kBarrier}) {
    Sockets sockets = socket_pair();
    BootstrapChannel channel = channel_on(std::move(sockets.a));
    ASSERT_TRUE(send_all(sockets.b.get(), encode_frame(encode_hello("x")), soon()).is_ok());
    const Status status = due == Due::kHandles      ? channel.receive_handles(1, soon()).status()
                          : due == Due::kParameters ? channel.exchange_parameters({}, {}, soon()).status()
                                                    : channel.barrier(soon());
    EXPECT_EQ(status.code(), Code::kProtocol);
    EXPECT_EQ(channel.peer_status().to_string(), status.to_string());
  }
}

TEST(BootstrapChannel, WhoCannotSendSaysWhyThePeerHasGone) {
  for (const bool as_peer_message : {false, true}) {
    Sockets sockets = socket_pair();
    BootstrapChannel channel = channel_on(std::move(sockets.a));
    const auto flow = channel.open_flow();
    const auto last_word = encode_frame(encode_finish(Status(Code::kPlugin, "listen", "no device")));
    ASSERT_TRUE(send_all(sockets.b.get(), last_word, soon()).is_ok());
    sockets.b.reset();
    const Status status =
        as_peer_message ? flow->post(FrameType::kGrant, bytes_of("x")) : channel.send_handles(some_handles(1), soon());
    EXPECT_EQ(status.to_string(), "TCPX_E_PLUGIN: peer reported: listen: no device");
  }
}

// Half of a frame may have been sent, and the next bytes would be read as its other half.
TEST(BootstrapChannel, ASendThatWasGivenUpBreaksTheChannel) {
  Sockets sockets = socket_pair();
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  Status status;
  for (int i = 0; i < 1000 && status.is_ok(); ++i) {
    status = channel.send_handles(some_handles(kMaxHandlesPerFrame), Deadline::after(milliseconds(1)));
  }
  ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
  std::array<std::byte, 4096> read;
  while (::recv(sockets.b.get(), read.data(), read.size(), MSG_DONTWAIT) > 0) continue;
  EXPECT_EQ(channel.send_handles(some_handles(1), soon()).to_string(), status.to_string());
  EXPECT_EQ(channel.peer_status().to_string(), status.to_string());
  EXPECT_EQ(::recv(sockets.b.get(), read.data(), read.size(), MSG_DONTWAIT), -1) << "nothing more is said";
}

TEST(BootstrapChannel, NothingIsReadBehindAPeersLastWord) {
  Sockets sockets = socket_pair();
  const UniqueFd a(::dup(sockets.a.get()));
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  auto bytes = encode_frame(encode_finish(Status::ok()));
  const auto behind = encode_frame(encode_finish(Status(Code::kMismatch, "verify", "byte 3")));
  bytes.insert(bytes.end(), behind.begin(), behind.end());
  ASSERT_TRUE(send_all(sockets.b.get(), bytes, soon()).is_ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(channel.peer_status().detail(), "the peer has finished, this end has not");
  int unread = 0;
  ASSERT_EQ(::ioctl(a.get(), FIONREAD, &unread), 0);
  EXPECT_EQ(unread, static_cast<int>(behind.size()));
  EXPECT_TRUE(channel.finish(Status::ok(), soon()).is_ok());
}

TEST(BootstrapChannel, ReceiveMayBeRepeatedAfterADeadlineEvenAmidAFrame) {
  Sockets sockets = socket_pair();
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  const auto bytes = encode_frame(*encode_handles(some_handles(2)));
  size_t at = 0;
  for (const size_t upto : {size_t{0}, size_t{20}, size_t{100}}) {
    ASSERT_TRUE(send_all(sockets.b.get(), std::span(bytes).subspan(at, upto - at), soon()).is_ok());
    at = upto;
    EXPECT_EQ(channel.receive_handles(2, Deadline::after(milliseconds(10))).status().code(), Code::kTimeout);
  }
  ASSERT_TRUE(send_all(sockets.b.get(), std::span(bytes).subspan(at), soon()).is_ok());
  EXPECT_EQ(channel.receive_handles(2, soon()).value(), some_handles(2));
}

TEST(BootstrapChannel, StopFlagEndsAWaitButNotTheFarewell) {
  Sockets sockets = socket_pair();
  std::atomic<bool> stop = false;
  BootstrapChannel here(std::move(sockets.a), SocketAddress::loopback(1), "test", &stop);
  BootstrapChannel there = channel_on(std::move(sockets.b));
  auto waiting = in_thread([&] { return here.barrier(soon()); });
  EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout);
  stop = true;
  const Status status = waiting.get();
  EXPECT_EQ(status.detail(), "interrupted");
  auto other = in_thread([&] { return there.finish(Status::ok(), soon()); });
  EXPECT_EQ(here.finish(status, soon()).detail(), "interrupted");
  EXPECT_EQ(other.get().to_string(), "TCPX_E_CANCELLED: peer reported: wait for the peer: interrupted");
}

TEST(BootstrapChannel, StopFlagCutsTheFarewellToASilentPeerShort) {
  for (const bool before : {true, false}) {
    Sockets sockets = socket_pair();
    std::atomic<bool> stop = before;
    BootstrapChannel here(std::move(sockets.a), SocketAddress::loopback(1), "test", &stop);
    auto waiting = in_thread([&] { return here.finish(Status::ok(), soon()); });
    EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout) << "the peer gets some time";
    stop = true;
    EXPECT_EQ(waiting.wait_for(seconds(5)), std::future_status::ready);
    EXPECT_EQ(waiting.get().code(), Code::kTimeout);
  }
}

TEST(BootstrapChannel, FinishTellsBothEndsHowTheOtherFared) {
  const Status failure(Code::kCuda, "unpack", "out of memory");
  const std::string passed_on = "TCPX_E_CUDA: peer reported: unpack: out of memory";
  for (const bool a_fails : {false, true}) {
    for (const bool b_fails : {false, true}) {
      Ends ends = two_ends();
      auto b = in_thread([&] { return ends.b.finish(b_fails ? failure : Status::ok(), soon()); });
      const Status a = ends.a.finish(a_fails ? failure : Status::ok(), soon());
      EXPECT_EQ(a.to_string(), a_fails ? failure.to_string() : b_fails ? passed_on : "TCPX_OK");
      EXPECT_EQ(b.get().to_string(), b_fails ? failure.to_string() : a_fails ? passed_on : "TCPX_OK");
    }
  }
}

TEST(BootstrapChannel, FailureOfOneEndWakesTheOtherFromItsWait) {
  Ends ends = two_ends();
  const TimePoint begin = Clock::steady().now();
  auto waiting = in_thread([&] {
    const Status status = ends.b.receive_handles(1, soon()).status();
    return ends.b.finish(status, soon());
  });
  const Status failure(Code::kPlugin, "listen", "no device", Domain::kNccl, 3);
  EXPECT_EQ(ends.a.finish(failure, soon()).to_string(), failure.to_string());
  EXPECT_EQ(waiting.get().to_string(), "TCPX_E_PLUGIN: peer reported: listen: no device (plugin rc 3)");
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
}

TEST(BootstrapChannel, PeerStatusSeesAFailureBehindUnreadFrames) {
  Ends ends = two_ends();
  EXPECT_TRUE(ends.b.peer_status().is_ok());
  ASSERT_TRUE(ends.a.send_handles(some_handles(1), soon()).is_ok());
  EXPECT_TRUE(ends.b.peer_status().is_ok());
  EXPECT_EQ(ends.a.finish(Status(Code::kMismatch, "verify", "byte 3"), Deadline::after(milliseconds(1))).code(), Code::kMismatch);
  EXPECT_EQ(ends.b.peer_status().to_string(), "TCPX_E_MISMATCH: peer reported: verify: byte 3");
  EXPECT_TRUE(ends.b.receive_handles(1, soon()).is_ok()) << "what was sent before the end is still there";
  EXPECT_EQ(ends.b.send_handles(some_handles(1), soon()).code(), Code::kMismatch);
}

TEST(BootstrapChannel, PeerThatFinishesEarlyIsAProtocolError) {
  Ends ends = two_ends();
  auto early = in_thread([&] { return ends.a.finish(Status::ok(), soon()); });
  const Status status = ends.b.receive_handles(1, soon()).status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_EQ(ends.b.finish(status, soon()).code(), Code::kProtocol);
  EXPECT_EQ(early.get().code(), Code::kProtocol);
}

TEST(BootstrapChannel, FinishWithASilentPeerEndsAtTheDeadline) {
  Ends ends = two_ends();
  EXPECT_EQ(ends.a.finish(Status::ok(), Deadline::after(milliseconds(20))).code(), Code::kTimeout);
}

TEST(BootstrapChannel, FloodFromThePeerDoesNotOutlastTheDeadline) {
  Sockets sockets = socket_pair();
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  auto flood = in_thread([fd = std::move(sockets.b)] {
    const auto frame = encode_frame(encode_barrier(1));
    while (send_all(fd.get(), frame, soon()).is_ok()) {
    }
  });
  EXPECT_EQ(channel.finish(Status::ok(), Deadline::after(milliseconds(100))).code(), Code::kTimeout);
}

class Recorder final : public PeerMessageSink {
 public:
  void on_peer_message(FrameType type, std::span<const std::byte> payload) override {
    seen.push_back(concat(name_of(type), ":", std::string(reinterpret_cast<const char*>(payload.data()), payload.size())));
  }
  std::vector<std::string> seen;
};

TEST(BootstrapChannel, FlowsAreToldApartAndEverythingElseGoesOnBesideThem) {
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

TEST(BootstrapChannel, APeerThatDoesNotReadBlocksNoPostAndIsGivenUpInTheEnd) {
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

TEST(BootstrapChannel, APeerThatReadsButNeverCatchesUpIsOwedOnlyWhatItHasNotRead) {
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

TEST(BootstrapChannel, AFloodOfPeerMessagesIsTakenInPartByPart) {
  Sockets sockets = socket_pair();
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  const auto flow = channel.open_flow();
  Recorder recorder;
  flow->deliver_to(&recorder);
  constexpr size_t kMessages = 1000;
  const FlowHeader front{.flow = 0, .reserved = 0};
  std::vector<std::byte> flood;
  for (size_t i = 0; i < kMessages; ++i) append_frame(flood, FrameType::kGrant, std::as_bytes(std::span(&front, 1)), {});
  ASSERT_TRUE(send_all(sockets.b.get(), flood, soon()).is_ok());
  EXPECT_TRUE(flow->pump().is_ok());
  EXPECT_GT(recorder.seen.size(), 0u);
  EXPECT_LT(recorder.seen.size(), kMessages) << "whoever looks has other things to do, and a deadline";
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(flow->pump().is_ok());
  EXPECT_EQ(recorder.seen.size(), kMessages);
}

TEST(BootstrapChannel, AFlowTellsAPeerThatHasFinishedFromOneThatIsGone) {
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

TEST(BootstrapChannel, APeerMessageTooShortForItsHeaderBreaksTheChannel) {
  Sockets sockets = socket_pair();
  BootstrapChannel channel = channel_on(std::move(sockets.a));
  const auto bytes = encode_frame({.type = FrameType::kGrant, .payload = std::vector<std::byte>(7)});
  ASSERT_TRUE(send_all(sockets.b.get(), bytes, soon()).is_ok());
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

TEST(BootstrapChannel, BothEndsDetachAndGoOnWithTheSocket) {
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

TEST(BootstrapChannel, BytesBehindAPeersDetachStayInTheSocket) {
  // A whole frame of ours after it does not count as a frame either.
  const auto frame = encode_frame(encode_barrier(1));
  const std::string like_a_frame(reinterpret_cast<const char*>(frame.data()), frame.size());
  for (const std::string& raw : {std::string("x"), std::string(100000, 'r'), like_a_frame}) {
    Sockets sockets = socket_pair();
    BootstrapChannel channel = channel_on(std::move(sockets.a));
    auto bytes = encode_frame(encode_detach());
    const auto behind = bytes_of(raw);
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    ASSERT_TRUE(send_all(sockets.b.get(), bytes, soon()).is_ok());
    const auto socket = channel.detach(soon());
    ASSERT_TRUE(socket.is_ok()) << socket.status().to_string();
    EXPECT_EQ(rest_of(socket->get()), raw);
  }
}

TEST(BootstrapChannel, APeersLastFramesBeforeItsDetachAreStillThere) {
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

TEST(BootstrapChannel, DetachingWithUnreadFramesIsAProtocolError) {
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

TEST(BootstrapChannel, DetachingWithUnsentPeerMessagesIsAProtocolError) {
  Ends ends = two_ends();
  const auto flow = ends.a.open_flow();
  const std::string text(kMaxPeerMessageBytes, 'g');
  // More than a socket accepts for a peer that does not read.
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(flow->post(FrameType::kGrant, bytes_of(text)).is_ok());
  const Status status = ends.a.detach(soon()).status();
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_NE(status.detail().find("bytes of peer messages"), std::string::npos) << status.to_string();
}

TEST(BootstrapChannel, APeerThatFinishesInsteadOfDetachingSaysWhy) {
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

TEST(BootstrapChannel, APeerThatDetachesWhileThisEndExpectsMoreIsAProtocolError) {
  Ends ends = two_ends();
  auto detaching = in_thread([&] { return ends.b.detach(soon()).status(); });
  const Status status = ends.a.receive_handles(1, soon()).status();
  EXPECT_EQ(status.to_string(), "TCPX_E_PROTOCOL: bootstrap: the peer has detached its socket, this end has not");
  EXPECT_EQ(ends.a.barrier(soon()).to_string(), status.to_string());
  EXPECT_EQ(ends.a.peer_status().to_string(), status.to_string());
  EXPECT_EQ(ends.a.finish(Status::ok(), soon()).to_string(), status.to_string()) << "without waiting for a verdict";
  EXPECT_EQ(detaching.get().detail(), "the peer has finished, this end has not");
}

TEST(BootstrapChannel, DetachEndsAtItsDeadlineWhenStoppedAndWhenThePeerDies) {
  Ends ends = two_ends();
  EXPECT_EQ(ends.a.detach(Deadline::after(milliseconds(20))).status().code(), Code::kTimeout);
  EXPECT_EQ(ends.a.finish(Status::ok(), soon()).code(), Code::kTimeout) << "nothing more can be said";

  Sockets sockets = socket_pair();
  std::atomic<bool> stop = false;
  BootstrapChannel stopped(std::move(sockets.a), SocketAddress::loopback(1), "test", &stop);
  auto detaching = in_thread([&] { return stopped.detach(soon()).status(); });
  stop = true;
  EXPECT_EQ(detaching.get().detail(), "interrupted");

  Sockets others = socket_pair();
  BootstrapChannel alone = channel_on(std::move(others.a));
  auto waiting = in_thread([&] { return alone.detach(soon()).status(); });
  others.b.reset();
  EXPECT_EQ(waiting.get().code(), Code::kPeerGone);
}

TEST(BootstrapChannel, NothingSentIsLostWhenBothLeaveWithoutSleeping) {
  auto server = BootstrapServer::create({.host = "127.0.0.1"});
  ASSERT_TRUE(server.is_ok());
  for (int round = 0; round < 100; ++round) {
    auto client = in_thread([&] {
      TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect("127.0.0.1", (*server)->port(), soon()));
      TCPX_RETURN_IF_ERROR(channel.send_handles(some_handles(kMaxHandlesPerFrame), soon()));
      return channel.finish(Status::ok(), soon());
    });
    auto channel = (*server)->accept(soon());
    ASSERT_TRUE(channel.is_ok());
    EXPECT_EQ(channel->receive_handles(kMaxHandlesPerFrame, soon()).value(), some_handles(kMaxHandlesPerFrame));
    const Status mine = channel->finish(Status::ok(), soon());
    EXPECT_TRUE(mine.is_ok()) << mine.to_string();
    const Status theirs = client.get();
    EXPECT_TRUE(theirs.is_ok()) << theirs.to_string();
  }
}

// The whole conversation of a set-up. Before step `die_before` the process is killed (-1: never).
constexpr int kSteps = 5;
Status converse(BootstrapChannel& channel, bool server, int die_before) {
  Status status = Status::ok();
  for (int step = 0; step < kSteps && status.is_ok(); ++step) {
    if (step == die_before) ::raise(SIGKILL);
    switch (step) {
      case 0:
        status = channel.exchange_parameters({{"bytes", "1"}}, {}, soon()).status();
        break;
      case 1:
        status = server ? channel.send_handles(some_handles(2), soon()) : channel.receive_handles(2, soon()).status();
        break;
      case 2:
        status = server ? channel.receive_handles(2, soon()).status() : channel.send_handles(some_handles(2), soon());
        break;
      case 3:
        status = channel.barrier(soon());
        break;
      case 4:
        return channel.finish(Status::ok(), soon());
    }
  }
  return channel.finish(status, soon());
}

struct Death {
  bool server_dies;
  int step;
};

class BootstrapPeerKilled : public ::testing::TestWithParam<Death> {};

TEST_P(BootstrapPeerKilled, OtherEndGetsAnErrorWithinASecond) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  // Sockets are not inherited by a child (base/fork.h): the server tells the other the port.
  std::unique_ptr<BootstrapServer> server;
  const auto open = [&](bool as_server) -> Result<BootstrapChannel> {
    uint16_t port = 0;
    if (!as_server) {
      EXPECT_EQ(::read(read_end.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
      return bootstrap_connect("127.0.0.1", port, soon());
    }
    TCPX_ASSIGN_OR_RETURN(server, BootstrapServer::create({.host = "127.0.0.1"}));
    port = server->port();
    EXPECT_EQ(::write(write_end.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
    return server->accept(soon());
  };
  const bool child_is_server = GetParam().server_dies;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto channel = open(child_is_server);
    if (channel.is_ok()) (void)converse(*channel, child_is_server, GetParam().step);
    ::_exit(1);
  }
  auto channel = open(!child_is_server);
  ASSERT_TRUE(channel.is_ok()) << channel.status().to_string();
  const TimePoint begin = Clock::steady().now();
  const Status status = converse(*channel, !child_is_server, -1);
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << how;
}

std::vector<Death> all_deaths() {
  std::vector<Death> deaths;
  for (const bool server_dies : {false, true}) {
    for (int step = 0; step < kSteps; ++step) deaths.push_back({server_dies, step});
  }
  return deaths;
}

INSTANTIATE_TEST_SUITE_P(EveryStep, BootstrapPeerKilled, ::testing::ValuesIn(all_deaths()), [](const auto& test) {
  return std::string(test.param.server_dies ? "Server" : "Client") + "BeforeStep" + std::to_string(test.param.step);
});

TEST(BootstrapPeerKilled, ServerKilledBeforeItAnswersTheHello) {
  auto listener = listen_tcp(SocketAddress::loopback(0), 4);
  ASSERT_TRUE(listener.is_ok());
  const uint16_t port = local_address(listener->get())->port();
  keep_in_child(listener->get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)wait_for(listener->get(), POLLIN, soon());
    ::raise(SIGKILL);
  }
  listener->reset();
  const TimePoint begin = Clock::steady().now();
  const auto channel = bootstrap_connect("127.0.0.1", port, Deadline::after(milliseconds(900)));
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
  EXPECT_FALSE(channel.is_ok());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace tcpx
