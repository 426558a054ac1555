// Ends of a control stream, its questions to the kernel, and the memory it holds.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "endpoint/control_stream.h"
#include "tests/support/stream_pair.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

constexpr size_t kSmallBuffer = 64 * 1024;

TEST(ControlStreamEnds, TheSinksErrorBreaksItForGood) {
  Streams streams(unix_pair());
  send_some(streams.a);
  streams.at_b.then = [](const ControlHeader& header) {
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
  streams.at_b.then = [&](const ControlHeader&) {
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
  const auto status_after = [](const std::function<void(ControlHeader&)>& change) {
    Sockets sockets = unix_pair();
    ControlStream stream;
    Recorder recorder;
    stream.attach(std::move(sockets.b));
    ControlHeader header = make_header(ControlType::kGo);
    change(header);
    write_raw(sockets.a.get(), std::as_bytes(std::span(&header, 1)));
    EXPECT_TRUE(stream.receive(recorder));
    EXPECT_TRUE(recorder.frames.empty());
    return stream.status();
  };
  EXPECT_EQ(status_after([](ControlHeader& header) { header.magic = 0x5448; }).code(), Code::kProtocol);
  EXPECT_EQ(status_after([](ControlHeader& header) { header.payload_bytes = 1; }).code(), Code::kProtocol);
  EXPECT_EQ(status_after([](ControlHeader& header) { header.version = 9; }).code(), Code::kUnsupported);
}

TEST(ControlStreamEnds, APeerThatClosesIsGone) {
  const Bytes bytes = wire_bytes(send_some);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{40}, size_t{41}, bytes.size() - 1, bytes.size()}) {
    Sockets sockets = tcp_pair();
    ControlStream stream;
    Recorder recorder;
    stream.attach(std::move(sockets.b));
    write_raw(sockets.a.get(), std::span(bytes).first(cut));
    sockets.a.reset();
    ASSERT_TRUE(wait_until([&] {
      stream.receive(recorder);
      return !stream.status().is_ok();
    }));
    EXPECT_EQ(stream.status().code(), Code::kPeerGone);
    // The first frame is a header alone, the second has one byte more.
    const std::string left = cut == 0 || cut == 40 || cut == bytes.size() ? ""
                             : cut == bytes.size() - 1                    ? " after 4039 bytes of a frame"
                                                                          : " after 1 bytes of a frame";
    EXPECT_EQ(stream.status().detail(), "connection closed by the peer" + left) << cut;
  }
}

TEST(ControlStreamEnds, AResetIsALostPeerWithItsNumber) {
  Sockets sockets = tcp_pair();
  ControlStream stream;
  Recorder recorder;
  stream.attach(std::move(sockets.b));
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(sockets.a.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  sockets.a.reset();
  ASSERT_TRUE(wait_until([&] {
    stream.receive(recorder);
    return !stream.status().is_ok();
  }));
  EXPECT_EQ(stream.status().code(), Code::kPeerGone);
  EXPECT_EQ(stream.status().domain(), Domain::kErrno);
  EXPECT_EQ(stream.status().native(), ECONNRESET);
}

TEST(ControlStreamEnds, WhatThePeerSaidBeforeItLeftIsHeard) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  Recorder recorder;
  stream.attach(std::move(sockets.a));
  {
    ControlStream peer;
    peer.attach(std::move(sockets.b));
    const Status reason(Code::kCancelled, "close", "no longer needed");
    peer.send(RawFrame{make_header(ControlType::kBye, 0, static_cast<uint64_t>(reason.code())),
                       payload_of(DoneFrame{.status = reason})});
    EXPECT_TRUE(peer.flush());
  }
  send_some(stream);
  EXPECT_FALSE(stream.flush());
  EXPECT_TRUE(stream.status().is_ok()) << "before it has heard the peer";
  send_some(stream);
  EXPECT_EQ(stream.backlog(), 0u) << "frames for nobody are not collected";
  stream.receive(recorder);
  ASSERT_EQ(recorder.frames.size(), 1u);
  EXPECT_EQ(recorder.frames[0].header.type, static_cast<uint8_t>(ControlType::kBye));
  stream.receive(recorder);
  EXPECT_EQ(stream.status().code(), Code::kPeerGone);
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
  Sockets sockets = unix_pair();
  ControlStream stream;
  stream.attach(std::move(sockets.a));
  const Bytes payload(512 * 1024);
  size_t frames = 0;
  while (stream.status().is_ok() && frames < 1000) {
    stream.send(RawFrame{make_header(ControlType::kSend), payload});
    stream.flush();
    EXPECT_LE(stream.backlog(), kMaxBacklogBytes + payload.size() + sizeof(ControlHeader));
    ++frames;
  }
  EXPECT_EQ(stream.status().code(), Code::kExhausted);
  EXPECT_GT(frames, kMaxBacklogBytes / payload.size());
  EXPECT_EQ(stream.backlog(), 0u);
}

TEST(ControlStreamEnds, AnIdleStreamHoldsNoMemory) {
  constexpr auto kSilence = std::chrono::seconds(2);
  Streams streams(unix_pair());
  for (int i = 0; i < 10; ++i) streams.step();
  EXPECT_EQ(streams.a.buffer_bytes() + streams.b.buffer_bytes(), 0u);
  const auto move = [&](size_t payload_bytes) {
    const size_t frames = streams.at_b.frames.size();
    streams.a.send(RawFrame{make_header(ControlType::kSend), Bytes(payload_bytes)});
    EXPECT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() > frames; }));
  };
  const auto check = [&] {
    streams.a.check_alive(kSilence);
    streams.b.check_alive(kSilence);
  };
  move(600 * 1024);
  check();
  EXPECT_GE(streams.a.buffer_bytes(), 600u * 1024) << "used a moment ago";
  EXPECT_GE(streams.b.buffer_bytes(), 600u * 1024);
  move(100);
  check();
  EXPECT_LE(streams.a.buffer_bytes(), kSmallBuffer) << "larger than what it is used for";
  EXPECT_LE(streams.b.buffer_bytes(), kSmallBuffer);
  move(100);
  const size_t small = streams.a.buffer_bytes() + streams.b.buffer_bytes();
  check();
  EXPECT_EQ(streams.a.buffer_bytes() + streams.b.buffer_bytes(), small) << "small ones stay while they are used";
  check();
  EXPECT_EQ(streams.a.buffer_bytes() + streams.b.buffer_bytes(), 0u);
  move(100);
  EXPECT_EQ(streams.at_b.frames.back().payload.size(), 100u);
}

TEST(ControlStreamEnds, ABufferThatHoldsPartOfAFrameStays) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  Recorder recorder;
  stream.attach(std::move(sockets.b));
  const Bytes bytes = wire_bytes(send_some);
  write_raw(sockets.a.get(), std::span(bytes).first(2000));
  stream.receive(recorder);
  for (int i = 0; i < 3; ++i) stream.check_alive(std::chrono::seconds(2));
  EXPECT_GT(stream.buffer_bytes(), 0u);
  write_raw(sockets.a.get(), std::span(bytes).subspan(2000));
  stream.receive(recorder);
  expect_some(recorder);
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
