// The other end of an endpoint's connection, controlled by a test: set up properly, it then sends whatever the test writes. And an
// endpoint that has such a connection, and a good one that must not suffer.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "endpoint/endpoint_parts.h"
#include "endpoint/link_setup.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/stream_pair.h"
#include "transfer/bootstrap.h"

namespace tcpx::testing {

/// The other end of one connection, whose frames the test writes itself.
class Peer final : public ControlSink {
 public:
  static constexpr uint32_t kInlineBytes = 1024;  ///< longest inline message, as it announces
  explicit Peer(uint16_t port) : parts_(make_default_parts(loopback_config()).value()) {
    const Deadline deadline = Deadline::after(kTestDeadline);
    auto channel = bootstrap_connect("127.0.0.1", port, deadline).value();
    const LinkSetup setup{
        .plugin = *parts_.plugin,
        .devices = parts_.devices,
        .receiver = {.unpacker = parts_.unpacker.get(), .memory = parts_.memory.get(), .lane = parts_.lane.get()},
        .settings = parts_.settings,
        .identity = {.instance = 7, .inline_bytes = kInlineBytes},
        .eager = false};
    link_ = set_up_link(std::move(channel), true, setup, deadline).value();
  }
  ~Peer() override {
    link_.send.reset();
    link_.recv.reset();
  }

  void say(FrameType type, uint64_t operation = 0, uint64_t value = 0, uint64_t bytes = 0, Packing packing = Packing::kWhole,
           const OperationPayload* payload = nullptr) {
    std::vector<std::byte> encoded;
    if (payload != nullptr) append_operation_payload(encoded, *payload);
    say_raw(make_header(type, operation, value, bytes, packing), encoded);
  }
  void say_raw(const FrameHeader& header, std::span<const std::byte> payload) {
    link_.stream->send(RawFrame{header, payload});
    (void)link_.stream->flush();
  }
  /// Waits for the next frame of that type, and drops others.
  std::optional<FrameHeader> hear(FrameType type) {
    std::optional<FrameHeader> found;
    const bool came = wait_until([&] {
      advance();
      while (!heard_.empty() && !found) {
        if (heard_.front().header.type == static_cast<uint8_t>(type)) found = heard_.front().header;
        heard_.erase(heard_.begin());
      }
      return found || !link_.stream->status().is_ok();
    });
    EXPECT_TRUE(came) << "no " << name_of(type);
    return found;
  }
  /// Frames that have arrived and were not heard.
  std::vector<Recorder::Frame> take() {
    advance();
    return std::exchange(heard_, {});
  }
  /// Drops arrived frames. @return false when the endpoint has ended the connection
  bool goes_on() {
    advance();
    heard_.clear();
    return link_.stream->status().is_ok();
  }
  /// Bytes that the endpoint has not taken.
  size_t backlog() const { return link_.stream->backlog(); }
  /// True when the end has been read.
  bool has_ended() const { return !link_.stream->status().is_ok(); }
  /// True when the endpoint has ended the connection.
  bool hears_the_end() {
    return wait_until([&] {
      advance();
      return !link_.stream->status().is_ok();
    });
  }

 private:
  void advance() {
    (void)link_.stream->receive(*this);
    (void)link_.stream->flush();
  }
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
    heard_.push_back({header, {payload.begin(), payload.end()}});
    return Status::ok();
  }
  EndpointParts parts_;
  LinkParts link_;
  std::vector<Recorder::Frame> heard_;
};

class HostilePeerTest : public ::testing::Test {
 protected:
  static constexpr size_t kBulk = 256 * 1024;

  explicit HostilePeerTest(const EndpointConfig& config = loopback_config()) : endpoint_(make_endpoint(config)) {
    allow_broken_connections();
    std::tie(good_conn_, to_good_) = connect_pair(*good_, *endpoint_);
  }
  ~HostilePeerTest() override {
    EXPECT_TRUE(moves(*good_, good_conn_, *endpoint_, to_good_, 100)) << "the other connection";
    EXPECT_TRUE(moves(*endpoint_, to_good_, *good_, good_conn_, kBulk)) << "the other connection";
  }
  /// A new connection, to a peer whose frames are the test's.
  void meet() {
    auto accepted = std::async(std::launch::async, [&] { return endpoint_->accept(kCallTime); });
    peer_.emplace(port_of(*endpoint_));
    conn_ = accepted.get().value().conn;
  }
  bool alive() const { return is_alive(*endpoint_, conn_); }

  std::unique_ptr<Endpoint> good_ = make_endpoint(), endpoint_;
  ConnId good_conn_{}, to_good_{}, conn_{};
  std::optional<Peer> peer_;
};

}  // namespace tcpx::testing
