// Whose GPU is current when an endpoint calls its plugin. GPUDirect-TCPX asks for the calling thread's in listen, connect, accept
// and regMr, and takes pool, flow rules and registration of that one.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/support/endpoint_fixture.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/several_gpus.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr int kOwn = 1, kCallers = 0;
/// Notes which GPU is current in the calls that ask.
class AskingPlugin final : public FakeNetPlugin {
 public:
  AskingPlugin(const MemoryOps& memory, Options options) : FakeNetPlugin(std::move(options)), memory_(memory) {}
  Result<ListenComm> listen(int dev, Handle& handle) override {
    ask("listen");
    return FakeNetPlugin::listen(dev, handle);
  }
  Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) override {
    ask("connect");
    return FakeNetPlugin::try_connect(dev, handle);
  }
  Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) override {
    ask("accept");
    return FakeNetPlugin::try_accept(comm, device_handle);
  }
  Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) override {
    ask("regMr");
    return FakeNetPlugin::register_memory(comm, data, bytes, type);
  }
  Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) override {
    ask("regMr");
    return FakeNetPlugin::register_memory(comm, data, bytes, type);
  }
  std::set<std::pair<std::string, int>> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void ask(const char* call) {
    const std::lock_guard lock(mutex_);
    seen_.emplace(call, memory_.current_device().value());
  }
  const MemoryOps& memory_;
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, int>> seen_;
};

class EndpointCurrentGpu : public EndpointTest {};

TEST_F(EndpointCurrentGpu, Trap27_ThePluginMeetsTheEndpointsGpuAndTheCallerKeepsItsOwn) {
  constexpr size_t kBytes = 256 << 10;
  set_up({.plugin = PluginKind::kFake, .memory = MemoryType::kCuda});
  memory_ = std::make_shared<SeveralGpus>(2);
  auto asking = std::make_unique<AskingPlugin>(*memory_, FakeNetPlugin::Options{.page_count = 4096});
  const AskingPlugin& watched = *asking;
  plugin_ = std::make_shared<LockedNetPlugin>(std::move(asking));
  const EndpointConfig config{.gpu_idx = kOwn, .inline_bytes = 0};
  a_ = make(config);
  b_ = make(config);
  EXPECT_EQ(memory_->current_device().value(), kCallers);
  auto accepted = std::async(std::launch::async, [&] {
    auto conn = b_->accept(kTestDeadline);
    EXPECT_EQ(memory_->current_device().value(), kCallers);
    return conn;
  });
  const auto conn = a_->connect("127.0.0.1", kOwn, Endpoint::read_metadata(b_->get_metadata())->port, kTestDeadline);
  const auto other = accepted.get();
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  ASSERT_TRUE(other.is_ok()) << other.status().to_string();
  EXPECT_EQ(memory_->current_device().value(), kCallers);

  MemoryBuffer from = memory_->allocate_device(kOwn, kBytes).value(), to = memory_->allocate_device(kOwn, kBytes).value();
  const auto receiving = b_->recv_async(other->conn, range(b_, {to.device(), kBytes}));
  EXPECT_TRUE(done(a_, a_->send_async(*conn, range(a_, {from.device(), kBytes}))));
  EXPECT_TRUE(done(b_, receiving));
  EXPECT_EQ(memory_->current_device().value(), kCallers);

  const std::set<std::pair<std::string, int>> expected = {{"listen", kOwn}, {"connect", kOwn}, {"accept", kOwn}, {"regMr", kOwn}};
  EXPECT_EQ(watched.seen(), expected);
}

}  // namespace
}  // namespace tcpx::testing
