// The whole path from the loader on: the software plugin, linked in and opened as a file, driven through NetPlugin alone.
// Device memory is host memory here, so the test may gather the fragments itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "net/plugin_loader.h"
#include "tests/support/exported_symbols.h"

namespace tcpx {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

class PluginMessage : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (make_machine_memory_ops()->has_gpu()) GTEST_SKIP() << "the bounce pool is GPU memory here: covered by the gpu tests";
    auto loaded = PluginLoader::load({.path = GetParam()});
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
    plugin_ = loaded->plugin;
    connect();
  }
  void TearDown() override {
    if (plugin_ == nullptr) return;
    EXPECT_TRUE(plugin_->deregister_memory(send_, send_memory_).is_ok());
    EXPECT_TRUE(plugin_->deregister_memory(recv_, recv_memory_).is_ok());
    EXPECT_TRUE(plugin_->close(send_).is_ok());
    EXPECT_TRUE(plugin_->close(recv_).is_ok());
    EXPECT_TRUE(plugin_->close(listener_).is_ok());
  }

  void connect() {
    Handle handle;
    listener_ = plugin_->listen(0, handle).value();
    const Deadline deadline = Deadline::after(kPatience);
    std::optional<SendComm> send;
    std::optional<RecvComm> recv;
    while ((!send || !recv) && !deadline.expired()) {
      if (!send) send = plugin_->try_connect(0, handle).value();
      if (!recv) recv = plugin_->try_accept(listener_, device_handle_).value();
    }
    ASSERT_TRUE(send && recv) << "no connection within the deadline";
    send_ = *send;
    recv_ = *recv;
    send_buffer_ = memory_->allocate_device(0, kBytes).value();
    recv_buffer_ = memory_->allocate_device(0, kBytes).value();
    send_memory_ = plugin_->register_memory(send_, send_buffer_.device(), kBytes, MemoryType::kCuda).value();
    recv_memory_ = plugin_->register_memory(recv_, recv_buffer_.device(), kBytes, MemoryType::kCuda).value();
  }

  /// Sends the first `bytes` bytes of the send buffer; @return the finished, unconsumed receive.
  Request move(size_t bytes) {
    const Deadline deadline = Deadline::after(kPatience);
    std::optional<Request> send, recv;
    bool sent = false, arrived = false;
    while ((!sent || !arrived) && !deadline.expired()) {
      if (!recv) recv = plugin_->try_recv(recv_, recv_buffer_.device(), kBytes, 7, recv_memory_).value();
      if (!send) send = plugin_->try_send(send_, send_buffer_.device(), bytes, 9, send_memory_).value();
      if (send && !sent) sent = plugin_->test(*send)->done;
      if (recv && !arrived) arrived = plugin_->test(*recv)->done;
    }
    EXPECT_TRUE(sent && arrived) << "nothing moved within the deadline";
    return recv.value();
  }

  static constexpr size_t kBytes = 1u << 20;
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  std::shared_ptr<NetPlugin> plugin_;
  ListenComm listener_{};
  SendComm send_{};
  RecvComm recv_{};
  DeviceHandleStorage device_handle_;
  MemoryBuffer send_buffer_, recv_buffer_;
  MemoryHandle send_memory_{}, recv_memory_{};
};

TEST_P(PluginMessage, ScatterListAndPoolLeadToTheBytesSent) {
  const auto lane = memory_->make_copy_lane(0).value();
  const BouncePool pool = plugin_->bounce_pool(device_handle_, *memory_, *lane).value();
  for (size_t i = 0; i < kBytes; ++i) send_buffer_.host()[i] = static_cast<std::byte>(i * 131 + (i >> 12));
  // More messages than queue slots, empty ones among them.
  const size_t sizes[] = {1, 4096, 4097, 0, 100000, kBytes};
  for (int round = 0; round < 4; ++round) {
    for (const size_t bytes : sizes) {
      std::fill_n(recv_buffer_.host(), kBytes, std::byte{0xee});
      const Request request = move(bytes);
      const auto message = plugin_->received(request);
      ASSERT_TRUE(message.is_ok()) << message.status().to_string();
      ASSERT_EQ(message->bytes, bytes);
      ASSERT_FALSE(message->in_place);
      ASSERT_EQ(message->fragment_count == 0, bytes == 0);
      for (uint64_t i = 0; i < message->fragment_count; ++i) {
        const Fragment& fragment = message->fragments[i];
        ASSERT_TRUE(fragment.dst_off <= bytes && fragment.len <= bytes - fragment.dst_off);
        ASSERT_TRUE(fragment.src_off <= pool.bytes && fragment.len <= pool.bytes - fragment.src_off);
        std::memcpy(recv_buffer_.host() + fragment.dst_off, pool.base + fragment.src_off, fragment.len);
      }
      EXPECT_EQ(std::memcmp(recv_buffer_.host(), send_buffer_.host(), bytes), 0);
      EXPECT_EQ(std::count(recv_buffer_.host() + bytes, recv_buffer_.host() + kBytes, std::byte{0xee}),
                static_cast<std::ptrdiff_t>(kBytes - bytes));
      EXPECT_TRUE(plugin_->consumed(recv_, request).is_ok());
    }
  }
}

TEST(SoftPluginLibrary, Trap29_OnlyTheVersion7TableIsExported) {
  if (std::string(TCPX_NM).empty()) GTEST_SKIP() << "nm (binutils) was not found when this was built";
  EXPECT_EQ(testing::dynamic_symbols(TCPX_NM, "--defined-only", TCPX_SOFT_PLUGIN), std::set<std::string>{"ncclNetPlugin_v7"});
}

INSTANTIATE_TEST_SUITE_P(Plugins, PluginMessage, ::testing::Values("embedded", TCPX_SOFT_PLUGIN),
                         [](const auto& plugin) { return std::string(plugin.index == 0 ? "Embedded" : "Library"); });

}  // namespace
}  // namespace tcpx
