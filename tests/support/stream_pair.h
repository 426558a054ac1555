// Two control streams on one connection, and frames to send over it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/raw_frame.h"
#include "tests/support/socket_pair.h"
#include "tests/support/whole_frame.h"
#include "wire/control_stream.h"

namespace tcpx::testing {

using Bytes = std::vector<std::byte>;

inline Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return made;
}

struct Recorder final : ControlSink {
  struct Frame {
    FrameHeader header;
    Bytes payload;
  };
  std::vector<Frame> frames;
  std::function<Status(const FrameHeader&)> then;

  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
    frames.push_back({header, Bytes(payload.begin(), payload.end())});
    return then ? then(header) : Status::ok();
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

/// A stream whose peer is a socket of the test's.
struct OneStream {
  UniqueFd peer;
  ControlStream stream;
  Recorder recorder;
  explicit OneStream(Sockets sockets = unix_pair()) : peer(std::move(sockets.a)) { stream.attach(std::move(sockets.b)); }
  bool receive() { return stream.receive(recorder); }
  /// Reads until the stream has ended. @return its status
  Status end() {
    EXPECT_TRUE(wait_until([&] {
      receive();
      return !stream.status().is_ok();
    }));
    return stream.status();
  }
};

/// Notifications of 0, 1, 300 and 4000 bytes.
inline std::vector<Bytes> some_payloads() {
  return {pattern(0, 1), pattern(1, 2), pattern(300, 3), pattern(4000, 4)};
}

inline void send_some(ControlStream& stream) {
  uint64_t number = 0;
  for (const Bytes& payload : some_payloads()) stream.send(RawFrame{make_header(FrameType::kNotify, ++number), payload});
}

inline void expect_some(const Recorder& recorder) {
  const std::vector<Bytes> payloads = some_payloads();
  ASSERT_EQ(recorder.frames.size(), payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(recorder.frames[i].header.operation, i + 1);
    EXPECT_EQ(recorder.frames[i].payload, payloads[i]);
  }
}

/// The bytes that a stream puts on the wire.
inline Bytes wire_bytes(const std::function<void(ControlStream&)>& send) {
  Sockets sockets = unix_pair();
  ControlStream stream;
  send(stream);
  Bytes bytes(stream.backlog());
  stream.attach(std::move(sockets.a));
  EXPECT_TRUE(stream.flush());
  EXPECT_TRUE(recv_all(sockets.b.get(), bytes, Deadline::after(kTestDeadline)).is_ok());
  return bytes;
}

inline void write_raw(int fd, std::span<const std::byte> bytes) {
  ASSERT_TRUE(send_all(fd, bytes, Deadline::after(kTestDeadline)).is_ok());
}

}  // namespace tcpx::testing
