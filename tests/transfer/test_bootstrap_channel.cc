// Two ends on a bootstrap channel: their messages and their parting.
#include "wire/bootstrap_channel.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <array>

#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "wire/set_up_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
    auto [channel, peer] = half_channel();
    for (const uint64_t at : {uint64_t{1}, number}) {
      ASSERT_TRUE(send_all(peer.get(), encode_frame(encode_barrier(at)), soon()).is_ok());
    }
    ASSERT_TRUE(channel.barrier(soon()).is_ok());
    const Status status = channel.barrier(soon());
    EXPECT_EQ(status.to_string(), concat("TCPX_E_PROTOCOL: bootstrap barrier: this end is at barrier 2, the peer at ", number));
    const auto last_word = encode_frame(encode_finish(Status(Code::kMismatch, "verify", "byte 3")));
    ASSERT_TRUE(send_all(peer.get(), last_word, soon()).is_ok());
    EXPECT_EQ(channel.peer_status().to_string(), status.to_string()) << "whatever comes behind it";
  }
}

TEST(BootstrapChannel, APeerThatIsFarAheadWaitsInTheSocket) {
  auto [channel, peer] = half_channel();
  constexpr int kFrames = 400;
  std::vector<std::byte> bytes;
  for (int i = 0; i < kFrames; ++i) append_whole(*encode_handles(some_handles(2)), bytes);
  ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(channel.peer_status().is_ok());
  EXPECT_LE(channel.stream().buffer_bytes(), 64u << 10) << "what it can make us store is bounded";
  int unread = 0;
  ASSERT_EQ(::ioctl(channel.stream().fd(), FIONREAD, &unread), 0);
  EXPECT_GE(unread, static_cast<int>(bytes.size()) - (64 << 10));
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
    auto [channel, peer] = half_channel();
    ASSERT_TRUE(send_all(peer.get(), encode_frame(encode_hello("x")), soon()).is_ok());
    const Status status = due == Due::kHandles      ? channel.receive_handles(1, soon()).status()
                          : due == Due::kParameters ? channel.exchange_parameters({}, {}, soon()).status()
                                                    : channel.barrier(soon());
    EXPECT_EQ(status.code(), Code::kProtocol);
    EXPECT_EQ(channel.peer_status().to_string(), status.to_string());
  }
}

TEST(BootstrapChannel, WhoCannotSendSaysWhyThePeerHasGone) {
  for (const bool as_peer_message : {false, true}) {
    auto [channel, peer] = half_channel();
    const auto link = channel.mailbox_to(true);
    const auto last_word = encode_frame(encode_finish(Status(Code::kPlugin, "listen", "no device")));
    ASSERT_TRUE(send_all(peer.get(), last_word, soon()).is_ok());
    peer.reset();
    const Status status =
        as_peer_message ? link->post(PeerMessage::kGrant, bytes_of("x")) : channel.send_handles(some_handles(1), soon());
    EXPECT_EQ(status.to_string(), "TCPX_E_PLUGIN: peer reported: listen: no device");
  }
}

// Half of a frame may have been sent, and the next bytes would be read as its other half.
TEST(BootstrapChannel, ASendThatWasGivenUpBreaksTheChannel) {
  auto [channel, peer] = half_channel();
  Status status;
  for (int i = 0; i < 1000 && status.is_ok(); ++i) {
    status = channel.send_handles(some_handles(kMaxHandlesPerFrame), Deadline::after(milliseconds(1)));
  }
  ASSERT_EQ(status.code(), Code::kTimeout) << status.to_string();
  std::array<std::byte, 4096> read;
  while (::recv(peer.get(), read.data(), read.size(), MSG_DONTWAIT) > 0) continue;
  EXPECT_EQ(channel.send_handles(some_handles(1), soon()).to_string(), status.to_string());
  EXPECT_EQ(channel.peer_status().to_string(), status.to_string());
  EXPECT_EQ(::recv(peer.get(), read.data(), read.size(), MSG_DONTWAIT), -1) << "nothing more is said";
}

TEST(BootstrapChannel, NothingCountsBehindAPeersLastWord) {
  auto [channel, peer] = half_channel();
  auto bytes = encode_frame(encode_finish(Status::ok()));
  append_whole(encode_finish(Status(Code::kMismatch, "verify", "byte 3")), bytes);
  ASSERT_TRUE(send_all(peer.get(), bytes, soon()).is_ok());
  peer.reset();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(channel.peer_status().detail(), "the peer has finished, this end has not");
  EXPECT_TRUE(channel.finish(Status::ok(), soon()).is_ok());
}

TEST(BootstrapChannel, ReceiveMayBeRepeatedAfterADeadlineEvenAmidAFrame) {
  auto [channel, peer] = half_channel();
  const auto bytes = encode_frame(*encode_handles(some_handles(2)));
  size_t at = 0;
  for (const size_t upto : {size_t{0}, size_t{20}, size_t{100}}) {
    ASSERT_TRUE(send_all(peer.get(), std::span(bytes).subspan(at, upto - at), soon()).is_ok());
    at = upto;
    EXPECT_EQ(channel.receive_handles(2, Deadline::after(milliseconds(10))).status().code(), Code::kTimeout);
  }
  ASSERT_TRUE(send_all(peer.get(), std::span(bytes).subspan(at), soon()).is_ok());
  EXPECT_EQ(channel.receive_handles(2, soon()).value(), some_handles(2));
}

TEST(BootstrapChannel, StopFlagEndsAWaitButNotTheFarewell) {
  std::atomic<bool> stop = false;
  auto [here, peer] = half_channel(&stop);
  BootstrapChannel there = channel_on(std::move(peer));
  auto waiting = in_thread([&here = here] { return here.barrier(soon()); });
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
    std::atomic<bool> stop = before;
    auto [here, peer] = half_channel(&stop);
    auto waiting = in_thread([&here = here] { return here.finish(Status::ok(), soon()); });
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

TEST(BootstrapChannel, NeitherSilenceNorAFloodFromThePeerOutlastsTheDeadline) {
  Ends ends = two_ends();
  EXPECT_EQ(ends.a.finish(Status::ok(), Deadline::after(milliseconds(20))).code(), Code::kTimeout);
  auto [channel, peer] = half_channel();
  auto flood = in_thread([fd = std::move(peer)] {
    const auto frame = encode_frame(encode_barrier(1));
    while (send_all(fd.get(), frame, soon()).is_ok()) {
    }
  });
  EXPECT_EQ(channel.finish(Status::ok(), Deadline::after(milliseconds(100))).code(), Code::kTimeout);
}

}  // namespace
}  // namespace tcpx::testing
