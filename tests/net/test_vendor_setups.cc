// Set-ups of GPUDirect-TCPX that are given up or fail half-way, and closes that do not return: over a library that does both as
// the original, with unstoppable threads and real sockets.
#include "net/vendor_setups.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "net/plugin_loader.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_plugins/fake_library.h"
#include "tests/support/ok.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"
#include "transfer/handshake.h"

#if defined(__SANITIZE_ADDRESS__)
// The fake leaks memory, as the plugin does: its threads that never end keep their memory.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:vendor_threads.so";
}
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>

// Access to a descriptor of another thread is a race to the thread checker; here the descriptor is checked twice
// (net/vendor_sockets.cc).
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:net/vendor_sockets.cc\n";
}
#endif

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::allow_log;
using testing::FakeLibrary;
using testing::FakeThreads;
using testing::kTestDeadline;
using testing::must;
using testing::PluginDirectory;
using testing::wait_until;

class VendorSetupsTest : public ::testing::Test {
 protected:
#if defined(__SANITIZE_THREAD__)
  // The checker keeps pipes to its symbolizer, which finds the file that is suppressed, and would open them in a case that counts descriptors.
  static void SetUpTestSuite() {
    char file[256];
    __sanitizer_symbolize_pc(__builtin_return_address(0), "%s", file, sizeof(file));
  }
#endif

  static HandshakeWait within(Duration duration) { return {.deadline = Deadline::after(duration)}; }

  Listener listener() { return must(Listener::create(*plugin_, 0)); }
  struct Connection {
    Comm sender, receiver;
  };
  Connection connect() {
    Listener end = listener();
    auto sender = connecting(end.handle(), kTestDeadline);
    Comm receiver = must(end.accept(device_handle_, within(kTestDeadline)));
    return {must(sender.get()), std::move(receiver)};
  }
  /// An accept without a client. @return the handle of its listener
  Handle abandoned_accept() {
    Listener given_up = listener();
    EXPECT_EQ(given_up.accept(device_handle_, within(milliseconds(20))).status().code(), Code::kTimeout);
    return given_up.handle();
  }
  std::future<Result<Comm>> connecting(const Handle& handle, Duration duration) {
    return std::async(std::launch::async,
                      [this, handle, duration] { return connect_comm(*plugin_, 0, handle, within(duration)); });
  }
  /// A connection to one of a handle's two ports.
  static UniqueFd client_of(const Handle& handle, size_t address_off) {
    sockaddr_in address;
    std::memcpy(&address, handle.bytes.data() + address_off, sizeof address);
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return fd;
  }
  bool all_has_ended() const {
    return threads_.accept_threads == 0 && threads_.connect_threads == 0 && threads_.open_listeners == 0 &&
           threads_.open_comms == 0 && threads_.open_registrations == 0 && plugin_->left_behind().set_ups == 0;
  }
  /// Expects that nothing is left, and that nothing was done which would crash the original.
  void expect_clean() {
    EXPECT_TRUE(wait_until([&] { return all_has_ended(); }))
        << threads_.accept_threads << " accepts, " << threads_.connect_threads << " connects, " << threads_.open_listeners
        << " listeners, " << threads_.open_comms << " comms, " << threads_.open_registrations << " registrations are left";
    EXPECT_EQ(threads_.closed_while_accepting, 0);
    EXPECT_EQ(threads_.accepts_after_end, 0);
    EXPECT_EQ(threads_.connects_after_end, 0);
    EXPECT_EQ(threads_.closed_without_peer, 0);
    EXPECT_EQ(threads_.deregistered_while_closing, 0);
    EXPECT_EQ(testing::descriptor_count(), descriptors_);
  }

  PluginDirectory directory_;
  const FakeLibrary library_{directory_.fresh_plugin("vendor_threads")};
  FakeThreads& threads_ = library_.threads();
  const std::shared_ptr<NetPlugin> plugin_ = PluginLoader::load({.path = directory_.file("vendor_threads.so")})->plugin;
  const size_t descriptors_ = testing::descriptor_count();
  DeviceHandleStorage device_handle_;
};

TEST_F(VendorSetupsTest, AConnectionIsMadeAndClosed) {
  {
    Listener end = listener();
    auto sender = connecting(end.handle(), kTestDeadline);
    auto receiver = must(end.accept(device_handle_, within(kTestDeadline)));
    auto sent = must(sender.get());
    EXPECT_TRUE(end.close().is_ok());
    EXPECT_EQ(threads_.open_comms, 2);
    EXPECT_TRUE(receiver.close().is_ok());
    EXPECT_TRUE(sent.close().is_ok());
  }
  EXPECT_EQ(plugin_->left_behind().closing_threads, 0u);
  expect_clean();
}

TEST_F(VendorSetupsTest, A4_AListenerThatStillAcceptsIsClosedWhenItsAcceptHasEnded) {
  allow_log("accept: GPUDirectTCPX_v7 answered ncclSystemError");
  const TimePoint start = Clock::steady().now();
  abandoned_accept();
  EXPECT_LT(Clock::steady().now() - start, seconds(5)) << "nobody waits for it";
  expect_clean();
  EXPECT_TRUE(testing::logged("an accept was given up and is kept until it has ended, 1 of at most 256"));
}

TEST_F(VendorSetupsTest, A4_LateClientsOfAbandonedAcceptsNeverMeetANewConnection) {
  allow_log("answered ncclSystemError");
  threads_.refused_retries = 100;
  threads_.failed_connects_close = true;  // another process may listen there by now, and resets them
  std::vector<Handle> old;
  for (int i = 0; i < 4; ++i) old.push_back(abandoned_accept());
  {
    std::vector<std::future<Result<Comm>>> late;
    for (const Handle& handle : old) late.push_back(connecting(handle, seconds(5)));
    const Connection connection = connect();
    for (auto& client : late) EXPECT_FALSE(client.get().is_ok());
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, A4_ClientsThatVanishHalfWayLeaveNoSocketsAndNoThreads) {
  allow_log("answered ncclSystemError");
  for (int i = 0; i < 6; ++i) {
    Listener end = listener();
    auto accepting =
        std::async(std::launch::async, [&] { return end.accept(device_handle_, within(milliseconds(200))).status(); });
    UniqueFd control = client_of(end.handle(), 48), data;
    ASSERT_TRUE(control);
    int32_t state = 1;
    ASSERT_EQ(::recv(control.get(), &state, sizeof state, MSG_WAITALL), static_cast<ssize_t>(sizeof state));
    const int32_t words[] = {0, 1};  // valid so far; this is the control connection
    const size_t said = i % 3 == 0 ? 0 : sizeof words;
    ASSERT_EQ(::send(control.get(), words, said, MSG_NOSIGNAL), static_cast<ssize_t>(said));
    if (i % 3 == 2) data = client_of(end.handle(), 0);
    // Some die, some hang.
    if (i < 3) control.reset();
    EXPECT_FALSE(accepting.get().is_ok());
    ASSERT_TRUE(end.close().is_ok());
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, A4_AConnectThatWasGivenUpIsAskedForUntilItHasEnded) {
  allow_log("connect: GPUDirectTCPX_v7 answered ncclSystemError");
  for (const int step_us : {0, 200'000}) {  // given up after its first socket has connected, and before
    threads_.step_us = step_us;
    const Listener nobody_accepts = listener();
    EXPECT_EQ(connecting(nobody_accepts.handle(), milliseconds(50)).get().status().code(), Code::kTimeout);
    EXPECT_TRUE(wait_until([&] { return threads_.connect_threads == 0 && plugin_->left_behind().set_ups == 0; }))
        << "although the other end is there";
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, A4_AConnectAndAnAcceptThatAreGivenUpAtOnceEnd) {
  allow_log("answered ncclSystemError");
  threads_.refused_retries = 100;
  threads_.failed_connects_close = true;  // a socket that its peer has reset is not found again
  for (int i = 0; i < 10; ++i) {
    // They are abandoned at whatever step they have reached.
    threads_.step_us = 500 * i;
    Listener end = listener();
    auto sender = connecting(end.handle(), milliseconds(2 * i));
    (void)end.accept(device_handle_, within(milliseconds(2 * i)));
    (void)sender.get();
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, A4_OneThatFailedIsNotAskedForAgain) {
  allow_log("answered ncclSystemError");
  allow_log("takes one connection, and this one's accept has ended");
  {
    Listener end = listener();
    auto accepting = std::async(std::launch::async, [&] { return end.accept(device_handle_, within(kTestDeadline)).status(); });
    ASSERT_TRUE(client_of(end.handle(), 48)) << "and it goes at once";
    EXPECT_EQ(accepting.get().code(), Code::kPeerGone);
    EXPECT_EQ(end.try_accept(device_handle_).status().code(), Code::kPlugin);
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, WhatFailsInAThreadOfThePluginSaysWhy) {
  allow_log("plugin: ");
  allow_log("answered");
  threads_.has_no_rxdm = true;
  threads_.failed_connects_close = true;  // a socket that its peer has reset is not found again
  {
    Listener end = listener();
    auto sender = connecting(end.handle(), kTestDeadline);
    const Status status = end.accept(device_handle_, within(kTestDeadline)).status();
    EXPECT_NE(status.detail().find("no receive-datapath-manager; failed accept socket"), std::string::npos) << status.to_string();
    EXPECT_OK(end.close());
    EXPECT_FALSE(sender.get().is_ok());
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, Trap38_AnAcceptIsGivenUpAfterItsClientHasGone) {
  for (const bool client_goes_first : {true, false}) {
    Listener end = listener();
    auto sender = connecting(end.handle(), kTestDeadline);
    ASSERT_FALSE(must(end.try_accept(device_handle_)).has_value()) << "it works on it, and nobody asks for the end";
    Comm sent = must(sender.get());
    ASSERT_TRUE(wait_until([&] { return threads_.accept_threads == 0; }));
    if (client_goes_first) {
      EXPECT_OK(sent.close());
    }
    EXPECT_OK(end.close());
    if (!client_goes_first) {
      EXPECT_TRUE(wait_until([&] { return threads_.open_comms == 1; }));
      EXPECT_OK(sent.close());
    }
  }
  expect_clean();
}

TEST_F(VendorSetupsTest, Trap38_ACommWhoseDataSocketWasResetIsLeftBehind) {
  allow_log("a data socket of the comm was reset, and GPUDirectTCPX_v7 would end the process");
  std::vector<std::byte> memory(kPageBytes);
  Listener end = listener();
  auto sender = connecting(end.handle(), kTestDeadline);
  Comm receiver = must(end.accept(device_handle_, within(kTestDeadline)));
  EXPECT_OK(receiver.register_memory(memory.data(), kPageBytes, MemoryType::kCuda).status());
  const auto left = accepted_sockets(end.handle());
  ASSERT_EQ(left.size(), 2u);
  for (const VendorSocket& socket : connected_sockets(end.handle())) {
    const linger reset{.l_onoff = 1, .l_linger = 0};
    if (!socket.is_data) continue;
    ASSERT_EQ(::setsockopt(socket.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  }
  EXPECT_OK(must(sender.get()).close());
  EXPECT_EQ(receiver.close().code(), Code::kPeerGone);
  EXPECT_EQ(threads_.open_comms, 1);
  close_forgotten(left);  // for the next tests
  threads_.open_comms = 0;
  EXPECT_OK(end.close());
  expect_clean();
}

TEST_F(VendorSetupsTest, Trap39_WhatIsRegisteredWithACommGoesWithIt) {
  std::vector<std::byte> memory(4 * kPageBytes);
  const auto register_some = [&](Comm& comm) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_OK(comm.register_memory(memory.data() + i * kPageBytes, kPageBytes, MemoryType::kCuda).status());
    }
  };
  for (const bool in_order : {true, false}) {
    Connection connection = connect();
    for (Comm* const comm : {&connection.sender, &connection.receiver}) {
      register_some(*comm);
      EXPECT_OK(comm->deregister_memory(must(comm->register_memory(memory.data(), kPageBytes, MemoryType::kCuda))));
    }
    EXPECT_EQ(threads_.open_registrations, 8);
    for (Comm* const comm : {&connection.receiver, &connection.sender}) EXPECT_OK(in_order ? comm->close() : comm->abort());
    EXPECT_EQ(threads_.open_registrations, 0) << in_order;
  }
  expect_clean();
}

// The first close takes the 5 s that every close has, so all that hangs is in one test.
TEST_F(VendorSetupsTest, A7_Trap39_ACloseThatNeverReturnsIsLeftBehindWithItsMemoryAndTold) {
  allow_log("its thread is left behind");
  allow_log("closeRecv: GPUDirectTCPX_v7 has returned after");
  allow_log("closeSend: GPUDirectTCPX_v7 has returned after");
  std::vector<std::byte> memory(kPageBytes);
  std::vector<Connection> connections;
  for (int i = 0; i < 2; ++i) connections.push_back(connect());
  threads_.close_recv_hangs = true;
  const TimePoint start = Clock::steady().now();
  for (Connection& connection : connections) {
    const Status closed = connection.receiver.close();
    EXPECT_EQ(closed.code(), Code::kTimeout) << closed.to_string();
    EXPECT_TRUE(connection.receiver.close().is_ok()) << "it is used up";
  }
  EXPECT_LT(Clock::steady().now() - start, seconds(8)) << "5 s for the first, 250 ms for the other";
  EXPECT_EQ(plugin_->left_behind().closing_threads, 2u);
  Comm &left = connections[0].sender, &closed = connections[1].sender;
  EXPECT_OK(left.register_memory(memory.data(), kPageBytes, MemoryType::kCuda).status());
  EXPECT_TRUE(closed.close().is_ok());
  threads_.close_send_hangs = true;
  EXPECT_EQ(left.abort().code(), Code::kTimeout);
  EXPECT_EQ(threads_.open_registrations, 1) << "its threads may still send from there";
  EXPECT_EQ(plugin_->left_behind().closing_threads, 3u);
  threads_.close_send_hangs = threads_.close_recv_hangs = false;
  EXPECT_TRUE(wait_until([&] { return plugin_->left_behind().closing_threads == 0; }));
  expect_clean();
}

}  // namespace
}  // namespace tcpx
