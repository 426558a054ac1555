// Both ends of a link, set up over loopback with the software plugin.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "device/unpacker_factory.h"
#include "endpoint/link_setup.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"
#include "tests/support/threads.h"
#include "transfer/bootstrap.h"
#include "transfer/local_machine.h"

namespace tcpx::testing {

using Linked = Result<LinkParts>;

/// Records every frame, except the messages of the pipelines that it knows, which it delivers.
class FrameRecorder final : public ControlSink {
 public:
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
    if (send != nullptr && header.type == static_cast<uint8_t>(FrameType::kLane)) {
      LaneFrame frame;
      TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
      (frame.to_sender ? send : recv)->on_peer_message(static_cast<PeerMessage>(frame.what), frame.words);
      return Status::ok();
    }
    seen.emplace_back(static_cast<FrameType>(header.type),
                      std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    return Status::ok();
  }
  std::vector<std::pair<FrameType, std::string>> seen;
  Pipeline *send = nullptr, *recv = nullptr;
};

inline std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// One of the two ends.
struct LinkEnd {
  ChannelDevices devices = {0, 0};
  PipelineSettings settings;
  uint32_t max_transfers = 64;
  EndpointIdentity identity;
  bool same_host = false;
  std::string boot_id = {};
  bool checksums = false;
  NetPlugin* plugin = nullptr;  ///< null: the software plugin
};

class LinkSetupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = LocalMachine::create("embedded");
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    endpoint_ = std::make_unique<LocalMachine>(std::move(*made));
    unpacker_ = endpoint_->make_unpacker(UnpackKind::kHost, 0).value();
    lane_ = endpoint_->memory->make_copy_lane(0).value();
    server_ = BootstrapServer::create({.host = "127.0.0.1", .stop = &stop_}).value();
    connector_.identity = {.instance = 11, .gpu_idx = 1, .inline_bytes = 4096};
    acceptor_.identity = {.instance = 22, .gpu_idx = 2, .inline_bytes = 100};
  }
  bool in_place() const { return endpoint_->memory->has_gpu(); }  // host memory does not count as device memory there

  /// Runs this end's part of the setup over a fresh channel of a pair.
  Linked set_up(BootstrapChannel channel, bool connector, const LinkEnd& end, Deadline deadline = soon()) {
    return set_up_link(std::move(channel), connector, setup_of(connector, end), deadline);
  }
  LinkSetup setup_of(bool connector, const LinkEnd& end) {
    return {
        .plugin = end.plugin != nullptr ? *end.plugin : *endpoint_->plugin,
        .devices = end.devices,
        .receiver = {.unpacker = unpacker_.get(), .memory = endpoint_->memory.get(), .lane = in_place() ? nullptr : lane_.get()},
        .settings = end.settings,
        .max_transfers = end.max_transfers,
        .budget = connector ? &budget_ : nullptr,
        .identity = end.identity,
        .same_host = end.same_host,
        .boot_id = end.boot_id,
        .checksums = end.checksums};
  }
  /// Both ends of a bootstrap channel over loopback: the connector's, the acceptor's.
  std::pair<BootstrapChannel, BootstrapChannel> channels() {
    auto client = in_thread([&] { return bootstrap_connect("127.0.0.1", server_->port(), soon(), &stop_); });
    auto accepted = server_->accept(soon());
    auto connected = client.get();
    return {std::move(connected).value(), std::move(accepted).value()};
  }
  /// Sets up a link between `connector_` and `acceptor_`. @return the result of each end
  std::pair<Linked, Linked> link(Deadline deadline = soon()) {
    auto [client, server] = channels();
    auto other = in_thread([&, channel = std::make_shared<BootstrapChannel>(std::move(server))] {
      return set_up(std::move(*channel), false, acceptor_, deadline);
    });
    Linked connected = set_up(std::move(client), true, connector_, deadline);
    return {std::move(connected), other.get()};
  }

  std::unique_ptr<LocalMachine> endpoint_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<CopyLane> lane_;
  std::atomic<bool> stop_ = false;
  std::unique_ptr<BootstrapServer> server_;
  LinkEnd connector_, acceptor_;
  ChunkBudget budget_{{.patience = std::chrono::seconds(60)}};  // for the connector's sends
};

/// Both ends of a link, driven by one thread.
struct LinkPair {
  LinkParts& a;
  LinkParts& b;
  FrameRecorder at_a, at_b;

  void drive() {
    for (auto [parts, sink] : {std::pair(&a, &at_a), std::pair(&b, &at_b)}) {
      sink->send = parts->send.get(), sink->recv = parts->recv.get();
      parts->stream->receive(*sink);
      parts->send->progress();
      parts->recv->progress();
      parts->stream->flush();
    }
  }
};

inline void expect_told(const Status& status, Code code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.detail().find(text), std::string::npos) << status.to_string();
}

}  // namespace tcpx::testing
