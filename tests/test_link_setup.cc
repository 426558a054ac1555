// Two endpoints' ends of a link, set up over loopback with the software plugin: what moves over it, and what each end is told
// when they do not fit or one goes away.
#include "endpoint/link_setup.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/socket_io.h"
#include "device/unpacker_factory.h"
#include "perf/pattern.h"
#include "tests/support/wait_until.h"
#include "transfer/bootstrap.h"
#include "transfer/default_endpoint.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Linked = Result<LinkParts>;

Deadline soon() {
  return Deadline::after(seconds(30));
}

template <class F>
auto in_thread(F function) {
  return std::async(std::launch::async, std::move(function));
}

/// Takes note of every frame.
class Recorder final : public ControlSink {
 public:
  Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) override {
    seen.emplace_back(static_cast<ControlType>(header.type),
                      std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    return Status::ok();
  }
  std::vector<std::pair<ControlType, std::string>> seen;
};

/// One of the two.
struct End {
  ChannelDevices devices = {0, 0};
  PipelineSettings settings;
  uint32_t max_transfers = 64;
  EndpointIdentity identity;
};

class LinkSetupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = DefaultEndpoint::create("embedded");
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    endpoint_ = std::make_unique<DefaultEndpoint>(std::move(*made));
    unpacker_ = endpoint_->make_unpacker(UnpackKind::kHost, 0).value();
    lane_ = endpoint_->memory->make_copy_lane(0).value();
    server_ = BootstrapServer::create({.host = "127.0.0.1", .stop = &stop_}).value();
    connector_.identity = {.instance = 11, .gpu_idx = 1, .inline_bytes = 4096};
    acceptor_.identity = {.instance = 22, .gpu_idx = 2, .inline_bytes = 100};
  }
  bool in_place() const { return endpoint_->memory->has_gpu(); }  // host memory is no device memory there

  /// Runs this end's part of the setup over a fresh channel of a pair.
  Linked set_up(BootstrapChannel channel, bool connector, const End& end, Deadline deadline = soon()) {
    const LinkSetup setup{
        .plugin = *endpoint_->plugin,
        .devices = end.devices,
        .receiver = {.unpacker = unpacker_.get(), .memory = endpoint_->memory.get(), .lane = in_place() ? nullptr : lane_.get()},
        .settings = end.settings,
        .max_transfers = end.max_transfers,
        .identity = end.identity};
    return set_up_link(std::move(channel), connector, setup, deadline);
  }
  /// Both ends of a bootstrap channel over loopback: the connector's, the acceptor's.
  std::pair<BootstrapChannel, BootstrapChannel> channels() {
    auto client = in_thread([&] { return bootstrap_connect("127.0.0.1", server_->port(), soon(), &stop_); });
    auto accepted = server_->accept(soon());
    auto connected = client.get();
    return {std::move(connected).value(), std::move(accepted).value()};
  }
  /// Sets up a link between `connector_` and `acceptor_`. @return what each end got
  std::pair<Linked, Linked> link(Deadline deadline = soon()) {
    auto [client, server] = channels();
    auto other = in_thread([&, channel = std::make_shared<BootstrapChannel>(std::move(server))] {
      return set_up(std::move(*channel), false, acceptor_, deadline);
    });
    Linked connected = set_up(std::move(client), true, connector_, deadline);
    return {std::move(connected), other.get()};
  }

  std::unique_ptr<DefaultEndpoint> endpoint_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<CopyLane> lane_;
  std::atomic<bool> stop_ = false;
  std::unique_ptr<BootstrapServer> server_;
  End connector_, acceptor_;
};

/// A link's both ends, driven by one thread.
struct Pair {
  LinkParts& a;
  LinkParts& b;
  Recorder at_a, at_b;

  void drive() {
    for (auto [parts, sink] : {std::pair(&a, &at_a), std::pair(&b, &at_b)}) {
      parts->stream->receive(*sink);
      parts->send->progress();
      parts->recv->progress();
      parts->stream->flush();
    }
  }
};

TEST_F(LinkSetupTest, DataMovesBothWaysWhileTheStreamCarriesFrames) {
  for (const size_t channels : {1, 2, 4}) {
    connector_.devices = acceptor_.devices = ChannelDevices(channels, 0);
    auto [connected, accepted] = link();
    ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
    ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
    Pair pair{.a = *connected, .b = *accepted, .at_a = {}, .at_b = {}};

    constexpr size_t kBytes = (5u << 20) + 1;
    MemoryOps& memory = *endpoint_->memory;
    const MemoryType type = in_place() ? MemoryType::kHost : MemoryType::kCuda;
    const MemoryBuffer sources[] = {memory.allocate_mapped(0, kBytes).value(), memory.allocate_mapped(0, kBytes).value()};
    const MemoryBuffer targets[] = {memory.allocate_mapped(0, kBytes).value(), memory.allocate_mapped(0, kBytes).value()};
    TransferId sent[2], got[2];
    for (size_t way : {0, 1}) {
      Connection& send = way == 0 ? *pair.a.send : *pair.b.send;
      Connection& recv = way == 0 ? *pair.b.recv : *pair.a.recv;
      fill_pattern({sources[way].host(), kBytes}, way + 1);
      const auto from = send.register_memory(sources[way].host(), kBytes, MemoryType::kHost).value();
      const auto into = recv.register_memory(targets[way].host(), kBytes, type).value();
      sent[way] = send.submit({.memory = from, .bytes = kBytes}).value();
      got[way] = recv.submit({.memory = into, .bytes = kBytes}).value();
    }
    pair.a.stream->send(make_header(ControlType::kNotify), std::as_bytes(std::span("to b", 4)));
    pair.b.stream->send(make_header(ControlType::kNotify), std::as_bytes(std::span("to a", 4)));
    const auto all_done = [&] {
      return pair.a.send->pending() + pair.a.recv->pending() + pair.b.send->pending() + pair.b.recv->pending() == 0;
    };
    const auto noticed = [&] { return !pair.at_a.seen.empty() && !pair.at_b.seen.empty(); };
    while (!(all_done() && noticed()) && pair.a.stream->status().is_ok() && pair.b.stream->status().is_ok()) pair.drive();
    EXPECT_TRUE(pair.a.stream->status().is_ok()) << pair.a.stream->status().to_string();
    EXPECT_TRUE(pair.b.stream->status().is_ok()) << pair.b.stream->status().to_string();
    for (size_t way : {0, 1}) {
      EXPECT_EQ((way == 0 ? pair.a : pair.b).send->poll(sent[way]).state, TransferState::kDone);
      EXPECT_EQ((way == 0 ? pair.b : pair.a).recv->poll(got[way]).state, TransferState::kDone);
      const Status same = verify_pattern({targets[way].host(), kBytes}, way + 1);
      EXPECT_TRUE(same.is_ok()) << same.to_string();
    }
    using Seen = std::vector<std::pair<ControlType, std::string>>;
    EXPECT_EQ(pair.at_b.seen, Seen({{ControlType::kNotify, "to b"}}));
    EXPECT_EQ(pair.at_a.seen, Seen({{ControlType::kNotify, "to a"}}));
  }
}

}  // namespace
}  // namespace tcpx
