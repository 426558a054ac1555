// The control connection's stream: frames come out whole and in order however the bytes arrive.
#include "wire/control_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/support/ok.h"
#include "tests/support/stream_pair.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

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

TEST(ControlStream, FramesCutAnywhereComeOutWhole) {
  const Bytes bytes = wire_bytes(send_some);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    OneStream one;
    write_raw(one.peer.get(), std::span(bytes).first(cut));
    one.receive();
    write_raw(one.peer.get(), std::span(bytes).subspan(cut));
    while (one.receive()) continue;
    expect_some(one.recorder);
    ASSERT_FALSE(HasFailure()) << "cut after " << cut << " bytes";
  }
}

TEST(ControlStream, AByteAtATimeIsEnough) {
  const Bytes bytes = wire_bytes(send_some);
  OneStream one;
  for (const std::byte& byte : bytes) {
    write_raw(one.peer.get(), {&byte, 1});
    EXPECT_TRUE(one.receive());
  }
  expect_some(one.recorder);
}

TEST(ControlStream, ThousandsOfSmallFramesTakeFewReads) {
  Streams streams(unix_pair());
  constexpr uint64_t kFrames = 20'000;
  for (uint64_t i = 0; i < kFrames; ++i) streams.a.send(RawFrame{make_header(FrameType::kNotify, i), pattern(16, 1)});
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
  const Bytes longest = pattern(kMaxPayloadBytes, 5);
  send_some(streams.a);
  streams.a.send(RawFrame{make_header(FrameType::kSend, 5), longest});
  streams.a.send(RawFrame{make_header(FrameType::kNotify, 6), pattern(10, 6)});
  streams.a.send(RawFrame{make_header(FrameType::kWrite, 7), pattern(600 * 1024, 7)});
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == 7; })) << streams.b.status().to_string();
  EXPECT_EQ(streams.at_b.frames[4].payload, longest);
  EXPECT_EQ(streams.at_b.frames[5].payload, pattern(10, 6));
  EXPECT_EQ(streams.at_b.frames[6].payload, pattern(600 * 1024, 7));
  EXPECT_LE(streams.b.buffer_bytes(), sizeof(FrameHeader) + kMaxPayloadBytes + sizeof(FrameCheck));
}

TEST(ControlStream, LongDataLeavesAtOnceBehindWhatWaits) {
  Streams streams(tcp_pair());
  const Bytes data = pattern(kMaxInlineBytes, 1);
  send_some(streams.a);
  streams.a.send(ReadDataFrame{.operation = 5, .data = data});
  EXPECT_EQ(streams.a.backlog(), 0u);
  EXPECT_LT(streams.a.buffer_bytes(), data.size()) << "it was copied";
  ASSERT_TRUE(wait_until([&] {
    streams.b.receive(streams.at_b);
    return streams.at_b.frames.size() == 5;
  }));
  EXPECT_EQ(streams.at_b.frames.back().payload, data);
}

// A socket that has little room takes a part of the backlog, or of the data.
TEST(ControlStream, WhatLongDataLeavesBehindComesInOrder) {
  Sockets sockets = unix_pair();
  const int small = 4096;
  ASSERT_EQ(::setsockopt(sockets.a.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  Streams streams(std::move(sockets));
  constexpr uint64_t kFrames = 60;
  const auto bytes_of = [](uint64_t number) { return number % 3 == 0 ? size_t{number} : kLongDataBytes + number * 10; };
  for (uint64_t i = 0; i < kFrames; ++i) {
    streams.a.send(ReadDataFrame{.operation = i, .data = pattern(bytes_of(i), static_cast<unsigned>(i))});
    if (i % 2 != 0) continue;
    ASSERT_TRUE(streams.run_until([&] { return streams.a.backlog() == 0; }));
  }
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == kFrames; })) << streams.b.status().to_string();
  for (uint64_t i = 0; i < kFrames; ++i) {
    EXPECT_EQ(streams.at_b.frames[i].header.operation, i);
    EXPECT_EQ(streams.at_b.frames[i].payload, pattern(bytes_of(i), static_cast<unsigned>(i)));
  }
}

TEST(ControlStream, TheSinkMaySend) {
  Streams streams(tcp_pair());
  constexpr uint64_t kFrames = 3000;
  streams.at_b.then = [&](const FrameHeader& header) {
    streams.b.send(RawFrame{make_header(FrameType::kNotify, header.operation), pattern(header.operation % 999, 1)});
    return Status::ok();
  };
  for (uint64_t i = 0; i < kFrames; ++i) streams.a.send(RawFrame{make_header(FrameType::kNotify, i), pattern(i % 777, 1)});
  ASSERT_TRUE(streams.run_until([&] { return streams.at_a.frames.size() == kFrames; }));
  for (uint64_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(streams.at_b.frames[i].payload, pattern(i % 777, 1));
    ASSERT_EQ(streams.at_a.frames[i].payload, pattern(i % 999, 1));
  }
}

TEST(ControlStream, LinksOfPipelinesSendFramesOfTheNetworksLanes) {
  Streams streams(unix_pair());
  const auto to_sender = streams.a.mailbox_to(true), to_receiver = streams.a.mailbox_to(false);
  EXPECT_OK(to_sender->post(PeerMessage::kGrant, pattern(5, 1)));
  EXPECT_OK(to_receiver->post(PeerMessage::kSubmitted, pattern(kMaxPeerMessageBytes, 2)));
  ASSERT_TRUE(streams.run_until([&] { return streams.at_b.frames.size() == 2; })) << streams.b.status().to_string();
  LaneFrame grant, submitted;
  ASSERT_OK(decode(streams.at_b.frames[0].header, streams.at_b.frames[0].payload, grant));
  ASSERT_OK(decode(streams.at_b.frames[1].header, streams.at_b.frames[1].payload, submitted));
  EXPECT_EQ(grant.way, Way::kNetwork);
  EXPECT_TRUE(grant.to_sender);
  EXPECT_EQ(grant.what, static_cast<uint64_t>(PeerMessage::kGrant));
  EXPECT_EQ(streams.at_b.frames[0].payload, pattern(5, 1));
  EXPECT_FALSE(submitted.to_sender);
  EXPECT_EQ(submitted.what, static_cast<uint64_t>(PeerMessage::kSubmitted));
  EXPECT_EQ(streams.at_b.frames[1].payload, pattern(kMaxPeerMessageBytes, 2));
}

TEST(ControlStream, LinksOfPipelinesTellHowTheStreamIs) {
  Streams streams(unix_pair());
  streams.a.fail(Status(Code::kPeerGone, "test", "gone"));
  EXPECT_EQ(streams.a.mailbox_to(true)->post(PeerMessage::kGrant, {}).detail(), "gone");
}

}  // namespace
}  // namespace tcpx
