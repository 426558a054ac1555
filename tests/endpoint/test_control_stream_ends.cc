// Ends of a control stream, its questions to the kernel, and the memory it holds.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "tests/support/ok.h"
#include "tests/support/stream_pair.h"
#include "wire/control_stream.h"
#include "wire/set_up_messages.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

constexpr size_t kSmallBuffer = 64 * 1024;

TEST(ControlStreamEnds, TheSinksErrorBreaksItForGood) {
  Streams streams(unix_pair());
  send_some(streams.a);
  streams.at_b.then = [](const FrameHeader& header) {
    return header.operation == 2 ? Status(Code::kMismatch, "test", "the second") : Status::ok();
  };
  ASSERT_TRUE(streams.run_until([&] { return !streams.b.status().is_ok(); }));
  EXPECT_EQ(streams.b.status().to_string(), "TCPX_E_MISMATCH: test: the second");
  EXPECT_EQ(streams.at_b.frames.size(), 2u);
  send_some(streams.b);
  EXPECT_EQ(streams.b.backlog(), 0u);
  EXPECT_FALSE(streams.b.flush());
  EXPECT_FALSE(streams.b.receive(streams.at_b));
  streams.b.fail(Status(Code::kTimeout, "test", "later"));
  EXPECT_EQ(streams.b.status().code(), Code::kMismatch);
}

TEST(ControlStreamEnds, TheSinkMayFailTheStream) {
  Streams streams(unix_pair());
  send_some(streams.a);
  send_some(streams.b);
  streams.at_b.then = [&](const FrameHeader&) {
    streams.b.fail(Status(Code::kCancelled, "test", "enough"));
    return Status::ok();
  };
  streams.a.flush();
  EXPECT_TRUE(streams.b.receive(streams.at_b));
  EXPECT_EQ(streams.b.status().code(), Code::kCancelled);
  EXPECT_EQ(streams.at_b.frames.size(), 1u);
  EXPECT_EQ(streams.b.backlog(), 0u);
}

TEST(ControlStreamEnds, WhatIsNoFrameBreaksIt) {
  const auto code_after = [](const std::function<void(FrameHeader&)>& change) {
    OneStream one;
    FrameHeader header = make_header(FrameType::kGo);
    change(header);
    write_raw(one.peer.get(), std::as_bytes(std::span(&header, 1)));
    EXPECT_TRUE(one.receive());
    EXPECT_TRUE(one.recorder.frames.empty());
    return one.stream.status().code();
  };
  EXPECT_EQ(code_after([](FrameHeader& header) { header.magic = 0x5448; }), Code::kProtocol);
  EXPECT_EQ(code_after([](FrameHeader& header) { header.payload_bytes = 1; }), Code::kProtocol);
  EXPECT_EQ(code_after([](FrameHeader& header) { header.version = kProtocolVersion + 1; }), Code::kUnsupported);
}

TEST(ControlStreamEnds, APeerThatClosesIsGone) {
  const Bytes bytes = wire_bytes(send_some);
  // The first frame is a header and its check, the second has one byte more.
  const std::pair<size_t, const char*> cuts[] = {{0, ""},
                                                 {1, " after 1 bytes of a frame"},
                                                 {48, ""},
                                                 {49, " after 1 bytes of a frame"},
                                                 {bytes.size() - 1, " after 4047 bytes of a frame"},
                                                 {bytes.size(), ""}};
  for (const auto& [cut, left] : cuts) {
    OneStream one(tcp_pair());
    write_raw(one.peer.get(), std::span(bytes).first(cut));
    one.peer.reset();
    const Status status = one.end();
    EXPECT_EQ(status.code(), Code::kPeerGone);
    EXPECT_EQ(status.detail(), std::string("connection closed by the peer") + left) << cut;
  }
}

TEST(ControlStreamEnds, AResetIsALostPeerWithItsNumber) {
  OneStream one(tcp_pair());
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(one.peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  one.peer.reset();
  const Status status = one.end();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_EQ(status.domain(), Domain::kErrno);
  EXPECT_EQ(status.native(), ECONNRESET);
}

TEST(ControlStreamEnds, WhatThePeerSaidBeforeItLeftIsHeard) {
  OneStream one;
  {
    ControlStream peer;
    peer.attach(std::move(one.peer));
    const Status reason(Code::kCancelled, "close", "no longer needed");
    peer.send(RawFrame{make_header(FrameType::kBye, 0, static_cast<uint64_t>(reason.code())),
                       payload_of(DoneFrame{.status = reason})});
    EXPECT_TRUE(peer.flush());
  }
  send_some(one.stream);
  EXPECT_FALSE(one.stream.flush());
  EXPECT_TRUE(one.stream.status().is_ok()) << "before it has heard the peer";
  send_some(one.stream);
  EXPECT_EQ(one.stream.backlog(), 0u) << "frames for nobody are not collected";
  one.receive();
  ASSERT_EQ(one.recorder.frames.size(), 1u);
  EXPECT_EQ(one.recorder.frames[0].header.type, static_cast<uint8_t>(FrameType::kBye));
  one.receive();
  EXPECT_EQ(one.stream.status().code(), Code::kPeerGone);
}

TEST(ControlStreamEnds, AFailedSendBreaksItWhenNothingIsLeftToHear) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  Recorder recorder;
  ASSERT_EQ(::shutdown(sockets.a.get(), SHUT_WR), 0);
  stream.attach(std::move(sockets.a));
  send_some(stream);
  EXPECT_FALSE(stream.flush());
  EXPECT_FALSE(stream.receive(recorder));
  EXPECT_EQ(stream.status().code(), Code::kPeerGone);
  EXPECT_EQ(stream.status().native(), EPIPE);
}

TEST(ControlStreamEnds, APeerThatDoesNotReadIsBounded) {
  OneStream one;
  ControlStream& stream = one.stream;
  const Bytes payload(512 * 1024);
  size_t frames = 0;
  while (stream.status().is_ok() && frames < 1000) {
    stream.send(RawFrame{make_header(FrameType::kSend), payload});
    stream.flush();
    EXPECT_LE(stream.backlog(), kMaxBacklogBytes + payload.size() + sizeof(FrameHeader));
    ++frames;
  }
  EXPECT_EQ(stream.status().code(), Code::kExhausted);
  EXPECT_GT(frames, kMaxBacklogBytes / payload.size());
  EXPECT_EQ(stream.backlog(), 0u);
}

void move(Streams& streams, size_t payload_bytes) {
  const size_t frames = streams.at_b.frames.size();
  streams.a.send(RawFrame{make_header(FrameType::kSend), Bytes(payload_bytes)});
  EXPECT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() > frames; }));
}

TEST(ControlStreamEnds, AnIdleStreamHoldsNoMemory) {
  constexpr auto kSilence = std::chrono::seconds(2);
  Streams streams(unix_pair());
  for (int i = 0; i < 10; ++i) streams.step();
  const auto held = [&] { return streams.a.buffer_bytes() + streams.b.buffer_bytes(); };
  EXPECT_EQ(held(), 0u);
  const auto check = [&] {
    streams.a.check_alive(kSilence);
    streams.b.check_alive(kSilence);
  };
  move(streams, 600 * 1024);
  check();
  EXPECT_GE(streams.a.buffer_bytes(), 600u * 1024) << "used a moment ago";
  EXPECT_GE(streams.b.buffer_bytes(), 600u * 1024);
  move(streams, 100);
  check();
  EXPECT_LE(streams.a.buffer_bytes(), kSmallBuffer) << "larger than what it is used for";
  EXPECT_LE(streams.b.buffer_bytes(), kSmallBuffer);
  move(streams, 100);
  const size_t small = held();
  check();
  EXPECT_EQ(held(), small) << "small ones stay while they are used";
  check();
  EXPECT_EQ(held(), 0u);
  move(streams, 100);
  EXPECT_EQ(streams.at_b.frames.back().payload.size(), 100u);
}

TEST(ControlStreamEnds, ABusyStreamGivesTheRoomOfALongFrameBack) {
  Streams streams(unix_pair());
  move(streams, kMaxPayloadBytes);
  EXPECT_EQ(streams.b.buffer_bytes(), sizeof(FrameHeader) + kMaxPayloadBytes + sizeof(FrameCheck));
  streams.b.check_alive(std::chrono::seconds(2));
  for (int i = 0; i < 20; ++i) move(streams, 200 * 1024);
  streams.b.check_alive(std::chrono::seconds(2));
  move(streams, 200 * 1024);
  EXPECT_LE(streams.b.buffer_bytes(), 256u * 1024);
}

TEST(ControlStreamEnds, AnotherVersionIsNamed) {
  OneStream one;
  FrameHeader header = make_header(FrameType::kBye);
  header.version = 1;
  write_raw(one.peer.get(), std::as_bytes(std::span(&header, 1)));
  const Status end = one.end();
  EXPECT_EQ(end.code(), Code::kUnsupported);
  EXPECT_EQ(end.detail(), "the peer speaks version 1 of the protocol, this build speaks 14");
}

/// Takes no frames but those of the set-up, and only as many as it has room for.
struct TakesSetUp final : ControlSink {
  size_t room = 2;
  size_t taken = 0;
  bool takes(const FrameHeader& header) override { return is_of_set_up(static_cast<FrameType>(header.type)) && taken < room; }
  Status on_frame(const FrameHeader& /*header*/, std::span<const std::byte> /*payload*/) override {
    ++taken;
    return Status::ok();
  }
};

// Everything but the user's data counts.
TEST(ControlStreamEnds, AFlippedBitBreaksIt) {
  const Bytes data = pattern(100, 3);
  const Bytes bytes = wire_bytes([&](ControlStream& stream) { stream.send(SendDataFrame{.operation = 9, .data = data}); });
  const size_t data_end = bytes.size() - sizeof(FrameCheck), data_begin = data_end - data.size();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    OneStream one;
    write_raw(one.peer.get(), flipped);
    (void)one.receive();
    const bool counts = bit / 8 < data_begin || bit / 8 >= data_end;
    // A longer frame waits for its end.
    ASSERT_EQ(one.recorder.frames.empty(), counts) << "bit " << bit;
  }
}

TEST(ControlStreamEnds, AFrameThatASinkDoesNotTakeWaitsForOneThatDoes) {
  OneStream one;
  Bytes bytes;
  for (int i = 0; i < 3; ++i) append_whole(RawFrame{make_header(FrameType::kBarrier, 1)}, bytes);
  const Bytes data = pattern(kMaxInlineBytes, 3);
  append_whole(SendDataFrame{.operation = 9, .data = data}, bytes);
  const size_t rest = data.size() + sizeof(FrameCheck);
  write_raw(one.peer.get(), std::span(bytes).first(bytes.size() - rest));
  TakesSetUp set_up;
  EXPECT_TRUE(one.stream.receive(set_up));
  EXPECT_EQ(set_up.taken, 2u);
  EXPECT_TRUE(one.stream.has_arrived());
  write_raw(one.peer.get(), std::span(bytes).last(rest));
  EXPECT_FALSE(one.stream.receive(set_up)) << "it reads nothing while a frame waits";
  set_up.room = 4;
  EXPECT_FALSE(one.stream.receive(set_up)) << "another frame waits";
  EXPECT_EQ(set_up.taken, 3u);
  const size_t held = one.stream.buffer_bytes();
  EXPECT_LE(held, 128u << 10) << "no room for a payload that nobody takes";
  ASSERT_TRUE(wait_until([&] { return one.receive(), !one.recorder.frames.empty(); }));
  EXPECT_EQ(one.recorder.frames.front().header.operation, 9u);
  EXPECT_OK(one.stream.status());
  EXPECT_FALSE(one.stream.has_arrived());
}

TEST(ControlStreamEnds, LastWordsReachThePeerOfABrokenStream) {
  for (const bool wanted : {false, true}) {
    OneStream one;
    one.stream.set_last_words(wanted);
    write_raw(one.peer.get(), pattern(64, 1));
    EXPECT_EQ(one.end().code(), Code::kProtocol);
    one.stream.close_with(encode_finish(Status(Code::kProtocol, "read", "nonsense")));
    Bytes got(1000);
    const ssize_t n = ::recv(one.peer.get(), got.data(), got.size(), 0);
    EXPECT_EQ(n > 0, wanted);
  }
}

TEST(ControlStreamEnds, ABufferThatHoldsPartOfAFrameStays) {
  OneStream one;
  const Bytes bytes = wire_bytes(send_some);
  write_raw(one.peer.get(), std::span(bytes).first(2000));
  one.receive();
  for (int i = 0; i < 3; ++i) one.stream.check_alive(std::chrono::seconds(2));
  EXPECT_GT(one.stream.buffer_bytes(), 0u);
  write_raw(one.peer.get(), std::span(bytes).subspan(2000));
  one.receive();
  expect_some(one.recorder);
}

TEST(ControlStreamEnds, TheKernelIsToldToAskOnceASecond) {
  Streams streams(tcp_pair());
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(streams.a.fd(), level, name, &value, &length), 0);
    return value;
  };
  EXPECT_NE(option(SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_NE(option(IPPROTO_TCP, TCP_NODELAY), 0);
}

}  // namespace
}  // namespace tcpx
