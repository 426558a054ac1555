// LockedNetPlugin: serialises the calls of several endpoints' threads to a single-threaded plugin.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "net/net_plugin.h"

namespace tcpx::testing {

class LockedNetPlugin final : public NetPlugin {
 public:
  explicit LockedNetPlugin(std::unique_ptr<NetPlugin> plugin) : plugin_(std::move(plugin)) {}

  const std::string& name() const override { return plugin_->name(); }
  int abi_version() const override { return plugin_->abi_version(); }
  std::optional<MessageCut> message_cut() const override { return plugin_->message_cut(); }
  uint32_t queue_depth() const override { return plugin_->queue_depth(); }
  bool steers_flows() const override { return plugin_->steers_flows(); }
  Result<int> device_count() override {
    return locked([&] { return plugin_->device_count(); });
  }
  Result<DeviceProperties> properties(int dev) override {
    return locked([&] { return plugin_->properties(dev); });
  }
  Result<ListenComm> listen(int dev, Handle& handle) override {
    return locked([&] { return plugin_->listen(dev, handle); });
  }
  Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) override {
    return locked([&] { return plugin_->try_connect(dev, handle); });
  }
  Status give_up_connect(int dev, std::unique_ptr<Handle> handle) override {
    return locked([&] { return plugin_->give_up_connect(dev, std::move(handle)); });
  }
  Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) override {
    return locked([&] { return plugin_->try_accept(comm, device_handle); });
  }
  Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) override {
    return locked([&] { return plugin_->register_memory(comm, data, bytes, type); });
  }
  Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) override {
    return locked([&] { return plugin_->register_memory(comm, data, bytes, type); });
  }
  Status deregister_memory(SendComm comm, MemoryHandle handle) override {
    return locked([&] { return plugin_->deregister_memory(comm, handle); });
  }
  Status deregister_memory(RecvComm comm, MemoryHandle handle) override {
    return locked([&] { return plugin_->deregister_memory(comm, handle); });
  }
  Result<std::optional<Request>> try_send(SendComm comm, const void* data, size_t bytes, int tag, MemoryHandle handle) override {
    return locked([&] { return plugin_->try_send(comm, data, bytes, tag, handle); });
  }
  Result<std::optional<Request>> try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) override {
    return locked([&] { return plugin_->try_recv(comm, data, bytes, tag, handle); });
  }
  Result<Completion> test(Request request) override {
    return locked([&] { return plugin_->test(request); });
  }
  Result<ReceivedMessage> received(Request request) override {
    return locked([&] { return plugin_->received(request); });
  }
  Status consumed(RecvComm comm, Request request) override {
    return locked([&] { return plugin_->consumed(comm, request); });
  }
  Result<BouncePool> bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) override {
    return locked([&] { return plugin_->bounce_pool(device_handle, memory, lane); });
  }
  Status close(SendComm comm) override {
    return locked([&] { return plugin_->close(comm); });
  }
  Status close(RecvComm comm) override {
    return locked([&] { return plugin_->close(comm); });
  }
  Status close(ListenComm comm) override {
    return locked([&] { return plugin_->close(comm); });
  }

 private:
  template <class Call>
  auto locked(Call call) -> decltype(call()) {
    const std::lock_guard lock(mutex_);
    return call();
  }

  std::unique_ptr<NetPlugin> plugin_;
  std::mutex mutex_;
};

}  // namespace tcpx::testing
