// Whose GPU is current when an endpoint calls its plugin. GPUDirect-TCPX asks for the calling thread's in listen, connect, accept
// and regMr, and takes pool, flow rules and registration of that one.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "device/unpacker_factory.h"
#include "endpoint/endpoint_parts.h"
#include "tcpx/endpoint.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr int kOwn = 1, kCallers = 0;
thread_local int current_gpu = kCallers;  // as every thread begins with CUDA

/// Host memory that passes for that of two GPUs.
class TwoGpus final : public MemoryOps {
 public:
  bool has_gpu() const override { return true; }
  int device_count() const override { return 2; }
  Result<int> current_device() const override { return current_gpu; }
  Status set_current_device(int device) override {
    current_gpu = device;
    return Status::ok();
  }
  Result<MemoryBuffer> allocate_mapped(int, size_t bytes) override { return host_->allocate_mapped(0, bytes); }
  Result<MemoryBuffer> allocate_device(int, size_t bytes) override { return host_->allocate_device(0, bytes); }
  bool host_readable(const void*) const override { return true; }
  bool is_device_memory(const void*) const override { return true; }
  std::optional<uint64_t> extent(const void* address) const override { return host_->extent(address); }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int) override { return host_->make_copy_lane(0); }

 private:
  const std::unique_ptr<MemoryOps> host_ = make_host_memory_ops();
};

/// Notes which GPU is current in the calls that ask.
class AskingPlugin final : public FakeNetPlugin {
 public:
  using FakeNetPlugin::FakeNetPlugin;
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
    seen_.emplace(call, current_gpu);
  }
  mutable std::mutex mutex_;
  std::set<std::pair<std::string, int>> seen_;
};

TEST(EndpointCurrentGpu, Trap27_ThePluginMeetsTheEndpointsGpuAndTheCallerKeepsItsOwn) {
  constexpr size_t kBytes = 256 << 10;
  FakeNetPlugin::Options options;
  options.page_count = 4096;
  auto asking = std::make_unique<AskingPlugin>(options);
  const AskingPlugin& watched = *asking;
  const std::shared_ptr<NetPlugin> plugin = std::make_shared<LockedNetPlugin>(std::move(asking));
  const auto memory = std::make_shared<TwoGpus>();
  const auto make = [&] {
    EndpointParts parts;
    parts.memory = memory;
    parts.plugin = plugin;
    parts.unpacker = make_unpacker(UnpackKind::kHost, 0, *memory).value();
    parts.lane = memory->make_copy_lane(0).value();
    parts.devices = ChannelDevices(1, 0);
    parts.settings.channels = 1;
    parts.settings.chunk_bytes = 64 << 10;
    parts.public_address = "127.0.0.1";
    parts.path = "test";
    EndpointConfig config;
    config.gpu_idx = kOwn;
    config.inline_bytes = 0;
    config.listen_address = config.public_address = "127.0.0.1";
    return EndpointMaker::make(std::move(parts), config).value();
  };
  const auto a = make(), b = make();
  EXPECT_EQ(current_gpu, kCallers);
  auto accepted = std::async(std::launch::async, [&] {
    auto conn = b->accept(kTestDeadline);
    EXPECT_EQ(current_gpu, kCallers);
    return conn;
  });
  const auto conn = a->connect("127.0.0.1", kOwn, Endpoint::read_metadata(b->get_metadata())->port, kTestDeadline);
  const auto other = accepted.get();
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  ASSERT_TRUE(other.is_ok()) << other.status().to_string();
  EXPECT_EQ(current_gpu, kCallers);

  MemoryBuffer from = memory->allocate_device(kOwn, kBytes).value(), to = memory->allocate_device(kOwn, kBytes).value();
  const LocalRange out{a->register_memory(from.device(), kBytes, MemoryType::kCuda).value(),
                       static_cast<std::byte*>(from.device()), kBytes};
  const LocalRange in{b->register_memory(to.device(), kBytes, MemoryType::kCuda).value(), static_cast<std::byte*>(to.device()),
                      kBytes};
  const auto receiving = b->recv_async(other->conn, {&in, 1});
  ASSERT_TRUE(receiving.is_ok()) << receiving.status().to_string();
  const Status sent = a->send(*conn, {&out, 1});
  EXPECT_TRUE(sent.is_ok()) << sent.to_string();
  EXPECT_TRUE(b->wait(*receiving).is_ok());
  EXPECT_EQ(current_gpu, kCallers);

  const std::set<std::pair<std::string, int>> expected = {{"listen", kOwn}, {"connect", kOwn}, {"accept", kOwn}, {"regMr", kOwn}};
  EXPECT_EQ(watched.seen(), expected);
}

}  // namespace
}  // namespace tcpx::testing
