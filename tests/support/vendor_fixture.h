// A receiving connection over the loadable fake that has the name and the habits of GPUDirect-TCPX.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure/pattern.h"
#include "net/abi/nccl_net_v7.h"
#include "net/plugin_loader.h"
#include "tests/support/fake_plugins/fake_library.h"
#include "tests/support/fake_unpacker.h"
#include "transfer/handshake.h"
#include "transfer/pipeline.h"

namespace tcpx::testing {

/// One transfer of kFakeMessageBytes bytes is in progress on it, of bytes that this fixture puts into the fake's pool.
class VendorReceive {
 public:
  VendorReceive(const std::string& path, const Clock& clock)
      : library_(path), plugin_(PluginLoader::load({.path = path})->plugin), memory_(make_host_memory_ops()) {
    auto listener = Listener::create(*plugin_, 0);
    auto comm = listener->try_accept(device_handle_);
    const auto lane = memory_->make_copy_lane(0).value();
    const BouncePool pool = plugin_->bounce_pool(device_handle_, *memory_, *lane).value();
    // The fake lists its pool from the first byte on, in order, as two fragments.
    fill_pattern({const_cast<std::byte*>(pool.base), kFakeMessageBytes}, kSeed);
    connection_ = Pipeline::create(std::move(comm->value()), {.unpacker = &unpacker_, .pool = pool}, clock).value();
    const auto memory = connection_->register_memory(target_.data(), target_.size(), MemoryType::kCuda).value();
    transfer_ = connection_->submit({.memory = memory, .bytes = kFakeMessageBytes}).value();
  }

  ~VendorReceive() {
    connection_.reset();
    EXPECT_EQ(control().open_registrations, 0) << "(39)";
  }
  VendorReceive(const VendorReceive&) = delete;

  Pipeline& connection() { return *connection_; }
  FakeControl& control() { return library_.control(); }
  TransferAnswer answer() { return connection_->poll(transfer_); }
  Status verify() const { return verify_pattern(std::span(target_).first(kFakeMessageBytes), kSeed); }

 private:
  static constexpr uint64_t kSeed = 7;

  FakeLibrary library_;
  std::shared_ptr<NetPlugin> plugin_;
  std::unique_ptr<MemoryOps> memory_;
  FakeUnpacker unpacker_;
  DeviceHandleStorage device_handle_;
  std::vector<std::byte> target_ = std::vector<std::byte>(2 * kPageBytes);
  std::unique_ptr<Pipeline> connection_;
  TransferId transfer_{};
};

}  // namespace tcpx::testing
