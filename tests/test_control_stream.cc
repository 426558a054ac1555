// The control connection's stream: frames come out whole and in order however the bytes arrive, what is wrong breaks it for good,
// and it holds no memory while nothing happens.
#include "endpoint/control_stream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>

#include "base/socket_io.h"
#include "base/text.h"
#include "tests/support/wait_until.h"
#include "transfer/peer_messages.h"

namespace tcpx {
namespace {

using testing::wait_until;

using Bytes = std::vector<std::byte>;

constexpr size_t kSmallBuffer = 64 * 1024;

Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return made;
}

struct Sockets {
  UniqueFd a, b;
};

Sockets unix_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Sockets tcp_pair() {
  const UniqueFd listener = listen_tcp(SocketAddress::loopback(0), 1).value();
  Sockets sockets;
  sockets.a = connect_tcp(*local_address(listener.get()), Deadline::after(testing::kTestDeadline)).value();
  EXPECT_TRUE(wait_until([&] {
    sockets.b = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return static_cast<bool>(sockets.b);
  }));
  return sockets;
}

struct Recorder final : ControlSink {
  struct Frame {
    ControlHeader header;
    Bytes payload;
  };
  std::vector<Frame> frames;
  std::function<Status(const ControlHeader&)> then;

  Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) override {
    frames.push_back({header, Bytes(payload.begin(), payload.end())});
    return then ? then(header) : Status::ok();
  }
};

struct PeerRecorder final : PeerMessageSink {
  std::vector<std::pair<FrameType, Bytes>> messages;
  void on_peer_message(FrameType type, std::span<const std::byte> payload) override {
    messages.emplace_back(type, Bytes(payload.begin(), payload.end()));
  }
};

struct Streams {
  ControlStream a, b;
  Recorder at_a, at_b;
  explicit Streams(Sockets sockets) {
    a.attach(std::move(sockets.a));
    b.attach(std::move(sockets.b));
  }
  void step() {
    a.flush();
    b.flush();
    a.receive(at_a);
    b.receive(at_b);
  }
  template <class Condition>
  bool run_until(Condition condition) {
    return wait_until([&] {
      step();
      return condition();
    });
  }
};

/// Notifications of 0, 1, 300 and 4000 bytes.
std::vector<Bytes> some_payloads() {
  return {pattern(0, 1), pattern(1, 2), pattern(300, 3), pattern(4000, 4)};
}

void send_some(ControlStream& stream) {
  uint64_t number = 0;
  for (const Bytes& payload : some_payloads()) stream.send(make_header(ControlType::kNotify, ++number), payload);
}

void expect_some(const Recorder& recorder) {
  const std::vector<Bytes> payloads = some_payloads();
  ASSERT_EQ(recorder.frames.size(), payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(recorder.frames[i].header.operation, i + 1);
    EXPECT_EQ(recorder.frames[i].payload, payloads[i]);
  }
}

/// What a stream puts on the wire.
Bytes wire_bytes(const std::function<void(ControlStream&)>& send) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  send(stream);
  Bytes bytes(stream.backlog());
  stream.attach(std::move(sockets.a));
  EXPECT_TRUE(stream.flush());
  EXPECT_TRUE(recv_all(sockets.b.get(), bytes, Deadline::after(testing::kTestDeadline)).is_ok());
  return bytes;
}

void write_raw(int fd, std::span<const std::byte> bytes) {
  ASSERT_TRUE(send_all(fd, bytes, Deadline::after(testing::kTestDeadline)).is_ok());
}

TEST(ControlStream, FramesGoBothWaysInOrder) {
  Streams streams(tcp_pair());
  send_some(streams.a);
  send_some(streams.b);
  ASSERT_TRUE(streams.run_until([&] { return streams.at_a.frames.size() == 4 && streams.at_b.frames.size() == 4; }));
  expect_some(streams.at_a);
  expect_some(streams.at_b);
  EXPECT_EQ(streams.a.backlog(), 0u);
  EXPECT_TRUE(streams.a.status().is_ok());
}

TEST(ControlStream, FramesAreCollectedBeforeThereIsASocket) {
  Sockets sockets = unix_pair();
  ControlStream stream, other;
  Recorder recorder;
  send_some(stream);
  EXPECT_FALSE(stream.flush());
  EXPECT_FALSE(stream.receive(recorder));
  EXPECT_GT(stream.backlog(), 4000u);
  stream.check_alive(std::chrono::seconds(2));
  stream.attach(std::move(sockets.a));
  EXPECT_TRUE(stream.flush());
  EXPECT_EQ(stream.backlog(), 0u);
  other.attach(std::move(sockets.b));
  ASSERT_TRUE(wait_until([&] {
    other.receive(recorder);
    return recorder.frames.size() == 4;
  }));
  expect_some(recorder);
}

TEST(ControlStream, AFrameMayBeMadeInParts) {
  const Bytes at_once = wire_bytes([](ControlStream& s) { s.send(make_header(ControlType::kNotify, 5), pattern(700, 1)); });
  const Bytes in_parts = wire_bytes([](ControlStream& s) {
    const Bytes payload = pattern(700, 1);
    std::vector<std::byte>& out = s.begin_frame(make_header(ControlType::kNotify, 5));
    out.insert(out.end(), payload.begin(), payload.begin() + 100);
    out.insert(out.end(), payload.begin() + 100, payload.end());
    s.end_frame();
  });
  EXPECT_EQ(in_parts, at_once);
}

TEST(ControlStream, FramesCutAnywhereComeOutWhole) {
  const Bytes bytes = wire_bytes(send_some);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Sockets sockets = unix_pair();
    ControlStream stream;
    Recorder recorder;
    stream.attach(std::move(sockets.b));
    write_raw(sockets.a.get(), std::span(bytes).first(cut));
    stream.receive(recorder);
    write_raw(sockets.a.get(), std::span(bytes).subspan(cut));
    while (stream.receive(recorder)) continue;
    expect_some(recorder);
    ASSERT_FALSE(HasFailure()) << "cut after " << cut << " bytes";
  }
}

TEST(ControlStream, AByteAtATimeIsEnough) {
  const Bytes bytes = wire_bytes(send_some);
  Sockets sockets = unix_pair();
  ControlStream stream;
  Recorder recorder;
  stream.attach(std::move(sockets.b));
  for (const std::byte& byte : bytes) {
    write_raw(sockets.a.get(), {&byte, 1});
    EXPECT_TRUE(stream.receive(recorder));
  }
  expect_some(recorder);
}

TEST(ControlStream, ThousandsOfSmallFramesTakeFewReads) {
  Streams streams(unix_pair());
  constexpr uint64_t kFrames = 20'000;
  for (uint64_t i = 0; i < kFrames; ++i) streams.a.send(make_header(ControlType::kNotify, i), pattern(16, 1));
  int reads = 0;
  ASSERT_TRUE(wait_until([&] {
    streams.a.flush();
    reads += streams.b.receive(streams.at_b) ? 1 : 0;
    return streams.at_b.frames.size() == kFrames;
  }));
  EXPECT_LT(reads, 100);
  for (uint64_t i = 0; i < kFrames; ++i) ASSERT_EQ(streams.at_b.frames[i].header.operation, i);
}

TEST(ControlStream, ALongFrameArrivesAmongShortOnes) {
  Streams streams(tcp_pair());
  const Bytes longest = pattern(kMaxControlPayloadBytes, 5);
  send_some(streams.a);
  streams.a.send(make_header(ControlType::kSend, 5), longest);
  streams.a.send(make_header(ControlType::kNotify, 6), pattern(10, 6));
  streams.a.send(make_header(ControlType::kWrite, 7), pattern(600 * 1024, 7));
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == 7; })) << streams.b.status().to_string();
  EXPECT_EQ(streams.at_b.frames[4].payload, longest);
  EXPECT_EQ(streams.at_b.frames[5].payload, pattern(10, 6));
  EXPECT_EQ(streams.at_b.frames[6].payload, pattern(600 * 1024, 7));
  EXPECT_LE(streams.b.buffer_bytes(), sizeof(ControlHeader) + kMaxControlPayloadBytes);
}

TEST(ControlStream, TheSinksErrorBreaksItForGood) {
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

TEST(ControlStream, TheSinkMayFailTheStream) {
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

TEST(ControlStream, TheSinkMaySend) {
  Streams streams(tcp_pair());
  constexpr uint64_t kFrames = 3000;
  streams.at_b.then = [&](const ControlHeader& header) {
    streams.b.send(make_header(ControlType::kNotify, header.operation), pattern(header.operation % 999, 1));
    return Status::ok();
  };
  for (uint64_t i = 0; i < kFrames; ++i) streams.a.send(make_header(ControlType::kNotify, i), pattern(i % 777, 1));
  ASSERT_TRUE(streams.run_until([&] { return streams.at_a.frames.size() == kFrames; }));
  for (uint64_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(streams.at_b.frames[i].payload, pattern(i % 777, 1));
    ASSERT_EQ(streams.at_a.frames[i].payload, pattern(i % 999, 1));
  }
}

TEST(ControlStream, WhatIsNoFrameBreaksIt) {
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

TEST(ControlStream, APeerThatClosesIsGone) {
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

TEST(ControlStream, AResetIsALostPeerWithItsNumber) {
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

TEST(ControlStream, WhatThePeerSaidBeforeItLeftIsHeard) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  Recorder recorder;
  stream.attach(std::move(sockets.a));
  {
    ControlStream peer;
    peer.attach(std::move(sockets.b));
    const Status reason(Code::kCancelled, "close", "no longer needed");
    peer.send(make_header(ControlType::kBye, 0, static_cast<uint64_t>(reason.code())), encode_status(reason));
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

TEST(ControlStream, AFailedSendBreaksItWhenNothingIsLeftToHear) {
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

TEST(ControlStream, APeerThatDoesNotReadIsBounded) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  stream.attach(std::move(sockets.a));
  const Bytes payload(512 * 1024);
  size_t frames = 0;
  while (stream.status().is_ok() && frames < 1000) {
    stream.send(make_header(ControlType::kSend), payload);
    stream.flush();
    EXPECT_LE(stream.backlog(), kMaxBacklogBytes + payload.size() + sizeof(ControlHeader));
    ++frames;
  }
  EXPECT_EQ(stream.status().code(), Code::kExhausted);
  EXPECT_GT(frames, kMaxBacklogBytes / payload.size());
  EXPECT_EQ(stream.backlog(), 0u);
}

TEST(ControlStream, FlowsReachTheirSinks) {
  Streams streams(unix_pair());
  PeerRecorder first, second;
  const auto a_first = streams.a.open_flow(), a_second = streams.a.open_flow(), a_third = streams.a.open_flow();
  const auto b_first = streams.b.open_flow();
  auto b_second = streams.b.open_flow();
  b_first->deliver_to(&first);
  b_second->deliver_to(&second);
  EXPECT_TRUE(a_first->post(FrameType::kGrant, pattern(5, 1)).is_ok());
  EXPECT_TRUE(a_second->post(FrameType::kSubmitted, pattern(kMaxPeerMessageBytes, 2)).is_ok());
  EXPECT_TRUE(a_third->post(FrameType::kGrant, {}).is_ok());  // the peer has no third
  streams.a.send(make_header(ControlType::kGo, 9));
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == 1; })) << streams.b.status().to_string();
  using Messages = std::vector<std::pair<FrameType, Bytes>>;
  EXPECT_EQ(first.messages, (Messages{{FrameType::kGrant, pattern(5, 1)}}));
  EXPECT_EQ(second.messages, (Messages{{FrameType::kSubmitted, pattern(kMaxPeerMessageBytes, 2)}}));

  // Nobody listens any more, then the flow is gone.
  b_first->deliver_to(nullptr);
  b_second.reset();
  EXPECT_TRUE(a_first->post(FrameType::kGrant, {}).is_ok());
  EXPECT_TRUE(a_second->post(FrameType::kGrant, {}).is_ok());
  streams.a.send(make_header(ControlType::kGo, 10));
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == 2; }));
  EXPECT_EQ(first.messages.size() + second.messages.size(), 2u);
}

TEST(ControlStream, FlowsTellHowTheStreamIs) {
  Streams streams(unix_pair());
  const auto flow = streams.a.open_flow();
  EXPECT_TRUE(flow->pump().value());
  streams.a.fail(Status(Code::kPeerGone, "test", "gone"));
  EXPECT_EQ(flow->pump().status().detail(), "gone");
  EXPECT_EQ(flow->post(FrameType::kGrant, {}).detail(), "gone");
}

TEST(ControlStream, PeerMessagesOfOtherTypesBreakIt) {
  for (const uint64_t type : {uint64_t{0}, static_cast<uint64_t>(FrameType::kFinish),
                              static_cast<uint64_t>(FrameType::kSubmitted) + 1, uint64_t{0x10006}}) {
    Streams streams(unix_pair());
    PeerRecorder recorder;
    const auto flow = streams.b.open_flow();
    flow->deliver_to(&recorder);
    streams.a.send(make_header(ControlType::kPeer, 0, type));
    streams.step();
    EXPECT_EQ(streams.b.status().code(), Code::kProtocol) << type;
    EXPECT_TRUE(recorder.messages.empty() && streams.at_b.frames.empty());
  }
}

TEST(ControlStream, AnIdleStreamHoldsNoMemory) {
  constexpr auto kSilence = std::chrono::seconds(2);
  Streams streams(unix_pair());
  for (int i = 0; i < 10; ++i) streams.step();
  EXPECT_EQ(streams.a.buffer_bytes() + streams.b.buffer_bytes(), 0u);
  const auto move = [&](size_t payload_bytes) {
    const size_t frames = streams.at_b.frames.size();
    streams.a.send(make_header(ControlType::kSend), Bytes(payload_bytes));
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

TEST(ControlStream, ABufferThatHoldsPartOfAFrameStays) {
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

TEST(ControlStream, TheKernelIsToldToAskOnceASecond) {
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
