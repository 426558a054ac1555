// Habits of GPUDirect-TCPX that span more than one call, tested from a connection down to a library that has them: variables it
// needs before its init, its single accept per listener, its transient "peer gone", the pages it loses.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/environment.h"
#include "measure/end.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/vendor_fixture.h"
#include "transfer/pipeline_setup.h"
#include "transfer/run.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::allow_log;
using testing::FakeControl;
using testing::FakeLibrary;
using testing::FakeNetPlugin;
using testing::kFakeMessageBytes;
using testing::LockedNetPlugin;
using testing::ManualClock;
using testing::PluginDirectory;
using testing::VendorReceive;

constexpr Variable kPresets[] = {Variable::kDynamicChunkSize, Variable::kFlowSteeringWaitUs, Variable::kUnixClientPrefix};
constexpr Variable kSockets[] = {Variable::kNsocksPerThread, Variable::kSocketNthreads};

class VendorHabits : public ::testing::Test {
 protected:
  void SetUp() override { forget(); }
  void TearDown() override { forget(); }
  static void forget() {
    for (const Variable id : kPresets) ::unsetenv(environment_info(id).name);
    for (const Variable id : kSockets) ::unsetenv(environment_info(id).name);
  }
  static void set(Variable id, const char* value) { ::setenv(environment_info(id).name, value, 1); }
  static std::string value_of(Variable id) { return environment_is_set(id) ? environment_text(id) : "unset"; }

  PluginDirectory directory_;
};

// Variable that the plugin reads in its init; one at a time, because the init of a table takes no context.
std::string seen_by_init;

int init_that_looks(abi::NcclLogger) {
  seen_by_init.clear();
  for (const Variable id : kPresets) seen_by_init += (environment_is_set(id) ? environment_text(id) : "unset") + " ";
  return 0;
}

TEST_F(VendorHabits, Trap06_Trap07_Trap33_WhatItNeedsIsSetBeforeItsInit) {
  const auto load = [] {
    const PluginDirectory directory;
    const std::string path = directory.fresh_plugin("vendor");
    const FakeLibrary library(path);
    library.symbol<abi::NetTable_v7>(abi::kNetPluginV7Symbol)->init = init_that_looks;
    ASSERT_TRUE(PluginLoader::load({.path = path}).is_ok());
  };
  set(Variable::kDynamicChunkSize, "131072");
  set(Variable::kUnixClientPrefix, "/somewhere");
  load();
  EXPECT_EQ(seen_by_init, "131072 1000000 /somewhere ") << "what the user has set stays";
  EXPECT_TRUE(testing::logged("nobody did: NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=1000000"));
  EXPECT_FALSE(testing::logged("NCCL_DYNAMIC_CHUNK_SIZE="));
  forget();
  load();
  EXPECT_EQ(seen_by_init, "524288 1000000 /run/tcpx ");
  EXPECT_TRUE(
      testing::logged("set for the net plugin, because nobody did: NCCL_DYNAMIC_CHUNK_SIZE=524288, "
                      "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=1000000, "
                      "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx"));
}

TEST_F(VendorHabits, NothingIsSetForAnyOtherPlugin) {
  ASSERT_TRUE(PluginLoader::load({.path = directory_.fresh_plugin("v7")}).is_ok());
  ASSERT_TRUE(PluginLoader::load({.path = "embedded"}).is_ok());
  for (const Variable id : kPresets) EXPECT_EQ(value_of(id), "unset") << environment_info(id).name;
  EXPECT_FALSE(testing::logged("set for the net plugin"));
}

TEST_F(VendorHabits, Trap07_AValueThatItWouldSilentlyReplaceIsRefusedBeforeItsInit) {
  allow_log("expected");
  allow_log("GPUDirect-TCPX takes at most 8");
  const std::string path = directory_.fresh_plugin("vendor");
  const FakeLibrary library(path);
  const std::pair<Variable, const char*> malformed[] = {{Variable::kDynamicChunkSize, "0"},
                                                        {Variable::kDynamicChunkSize, "512K"},
                                                        {Variable::kFlowSteeringWaitUs, "-1"},
                                                        {Variable::kNsocksPerThread, "9"},
                                                        {Variable::kSocketNthreads, "9"}};
  for (const auto& [id, value] : malformed) {
    set(id, value);
    const auto loaded = PluginLoader::load({.path = path});
    ASSERT_FALSE(loaded.is_ok()) << environment_info(id).name << "=" << value;
    EXPECT_EQ(loaded.status().code(), Code::kBadConfig);
    EXPECT_NE(loaded.status().detail().find(environment_info(id).name), std::string::npos) << loaded.status().to_string();
    forget();
  }
  EXPECT_EQ(library.control().init_calls, 0);
  EXPECT_TRUE(PluginLoader::load({.path = path}).is_ok()) << "nothing of it had run, so it may be tried again";
}

TEST_F(VendorHabits, Trap18_ItIsKnownHowItCutsMessages) {
  const auto cut_of = [](const char* name) {
    const PluginDirectory directory;
    return PluginLoader::load({.path = directory.fresh_plugin(name)})->plugin->message_cut();
  };
  EXPECT_FALSE(cut_of("v7").has_value());
  EXPECT_EQ(cut_of("vendor")->piece_bytes, 524288u);
  EXPECT_EQ(cut_of("vendor")->sockets, 1u) << "its own default, not that of the software plugin";
  set(Variable::kDynamicChunkSize, "131072");
  set(Variable::kNsocksPerThread, "4");
  EXPECT_EQ(cut_of("vendor")->piece_bytes, 131072u);
  EXPECT_EQ(cut_of("vendor")->sockets, 4u);
  set(Variable::kSocketNthreads, "2");
  EXPECT_EQ(cut_of("vendor")->sockets, 8u);
  set(Variable::kSocketNthreads, "3");
  EXPECT_EQ(cut_of("vendor")->sockets, 6u) << "3 x 4 are too many: 2 for each of the 3";
}

TEST_F(VendorHabits, Trap03_ASecondAcceptIsAnErrorAndEveryConnectionHasAListenerOfItsOwn) {
  allow_log("takes one connection, and this one's accept has ended");
  const auto loaded = PluginLoader::load({.path = directory_.fresh_plugin("vendor")});
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().to_string();
  NetPlugin& plugin = *loaded->plugin;
  for (int connection = 0; connection < 3; ++connection) {
    auto listener = Listener::create(plugin, 0);
    ASSERT_TRUE(listener.is_ok());
    DeviceHandleStorage device_handle;
    const auto first = listener->try_accept(device_handle);
    ASSERT_TRUE(first.is_ok() && first->has_value()) << connection;
    const auto second = listener->try_accept(device_handle);
    EXPECT_EQ(second.status().code(), Code::kPlugin);
    EXPECT_EQ(second.status().native(), 0) << "the original would read freed memory, and is not asked";
  }
}

TEST_F(VendorHabits, Trap30_ABareEndTakesThePluginThatIsThereAlready) {
  allow_log("receives into GPU memory only");
  const std::string path = directory_.fresh_plugin("vendor");
  const FakeLibrary library(path);
  ASSERT_TRUE(PluginLoader::load({.path = path}).is_ok());
  EndSetup setup{.kind = EndSetup::Kind::kPlugin, .memory = MemoryType::kCuda};
  path.copy(setup.plugin, sizeof setup.plugin - 1);
  EXPECT_OK(make_bench_end(setup));
  EXPECT_EQ(library.control().init_calls, 1);
  setup.memory = MemoryType::kHost;
  EXPECT_EQ(make_bench_end(setup).status().code(), Code::kUnsupported);
}

TEST_F(VendorHabits, Trap12_ResultCode2OfAFewTestsIsNoFailureAndForEverIsAPeerThatIsGone) {
  allow_log("recv channel gives up: TCPX_E_PEER_GONE: test: GPUDirectTCPX_v7 answered ncclSystemError");
  for (const int times : {4, 1000000}) {
    const PluginDirectory directory;
    ManualClock clock;
    VendorReceive receive(directory.fresh_plugin("vendor"), clock);
    receive.control().peer_gone_tests = times;
    const TimePoint start = clock.now();
    for (int i = 0; i < 1000 && receive.connection().pending() > 0; ++i) {
      receive.connection().progress();
      clock.advance(milliseconds(1));
    }
    const TransferAnswer answer = receive.answer();
    EXPECT_EQ(receive.control().tests, 5);
    if (times == 4) {
      EXPECT_EQ(answer.state, TransferState::kDone);
      EXPECT_OK(receive.verify());
    } else {
      EXPECT_EQ(answer.state, TransferState::kFailed);
      EXPECT_EQ(answer.status.code(), Code::kPeerGone);
      EXPECT_EQ(answer.status.native(), 2);
      EXPECT_LE(clock.now() - start, milliseconds(110));
    }
  }
}

TEST_F(VendorHabits, Trap25_GpuMemoryThatIsNoWholePagesNeverReachesIt) {
  allow_log("takes whole pages of 4096 bytes");
  const auto register_at = [](const char* name, size_t bytes, MemoryType type) {
    const PluginDirectory directory;
    const std::string path = directory.fresh_plugin(name);
    const FakeLibrary library(path);
    const auto plugin = PluginLoader::load({.path = path})->plugin;
    std::byte data[1];
    const auto made = plugin->register_memory(SendComm{1}, data, bytes, type);
    if (made.is_ok()) (void)plugin->deregister_memory(SendComm{1}, *made);
    return std::pair(made.status().code(), library.control().reg_mr_calls);
  };
  EXPECT_EQ(register_at("vendor", 4097, MemoryType::kCuda), std::pair(Code::kInvalidArgument, 0));
  EXPECT_EQ(register_at("vendor", 8192, MemoryType::kCuda), std::pair(Code::kOk, 1));
  EXPECT_EQ(register_at("vendor", 4097, MemoryType::kHost), std::pair(Code::kOk, 1));
  EXPECT_EQ(register_at("v7", 4097, MemoryType::kCuda), std::pair(Code::kOk, 1));
}

TEST_F(VendorHabits, A3_HostMemoryToReceiveIntoIsRefusedByName) {
  allow_log("receives into GPU memory only");
  std::byte data[1];
  const auto plugin_of = [this](const char* name) { return PluginLoader::load({.path = directory_.fresh_plugin(name)})->plugin; };
  const auto vendor = plugin_of("vendor"), other = plugin_of("v7");
  const Status refused = vendor->register_memory(RecvComm{1}, data, 1, MemoryType::kHost).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported) << refused.to_string();
  EXPECT_NE(refused.detail().find("host memory to receive into: GPUDirectTCPX_v7"), std::string::npos) << refused.to_string();
  EXPECT_TRUE(vendor->register_memory(SendComm{1}, data, 1, MemoryType::kHost).is_ok());
  EXPECT_TRUE(other->register_memory(RecvComm{1}, data, 1, MemoryType::kHost).is_ok());
  EXPECT_TRUE(vendor->steers_flows());
  EXPECT_FALSE(other->steers_flows());
}

class VendorMachine : public VendorHabits {
 protected:
  void SetUp() override {
    forget();
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "=lo", 1);
    root_.write("/sys/class/net/lo/device/numa_node", "0\n");
    root_.write("/sys/devices/system/node/node0/cpulist", "0-51,104-155\n");
  }
  void TearDown() override {
    forget();
    ::unsetenv("NCCL_GPUDIRECTTCPX_CTRL_DEV");
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  }
  Status load(const std::string& name = "vendor") {
    const PluginDirectory directory;
    const std::string path = directory.fresh_plugin(name);
    const FakeLibrary library(path);
    const Status status = PluginLoader::load({.path = path, .root = root_.path()}).status();
    if (name == "vendor") {
      EXPECT_EQ(library.control().init_calls, status.is_ok() ? 1 : 0);
    }
    return status;
  }
  void expect_refused(Code code, const std::string& part) {
    allow_log(part);
    const Status status = load();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.detail().find(part), std::string::npos) << status.to_string();
    EXPECT_TRUE(load("v7").is_ok()) << "others do not mind";
  }

  testing::TemporaryDirectory root_;
};

TEST_F(VendorMachine, A5_OneThatItWouldNotSurviveIsRefusedBeforeItsInit) {
  EXPECT_OK(load()) << "a healthy one";
  root_.write("/sys/class/net/lo/device/numa_node", "-1\n");
  expect_refused(Code::kUnsupported,
                 "/sys/class/net/lo/device/numa_node says -1, so GPUDirect-TCPX looks for "
                 "/sys/devices/system/node/node1/cpulist, and there is none");
  root_.write("/sys/class/net/lo/device/numa_node", "0\n");
  root_.write("/sys/devices/system/node/node0/cpulist", "3\n");
  expect_refused(Code::kUnsupported, "the cores near lo are \"3\", which GPUDirect-TCPX reads as 0 ranges");
  root_.write("/sys/devices/system/node/node0/cpulist", "0-51,104-155\n");
  set(Variable::kUnixClientPrefix, ("/" + std::string(76, 'x')).c_str());
  EXPECT_OK(load()) << "77 with the slash just fit";
  set(Variable::kUnixClientPrefix, ("/" + std::string(77, 'x')).c_str());
  expect_refused(Code::kBadConfig, "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX is 78 characters long, at most 77");
  forget();
  ::setenv("NCCL_GPUDIRECTTCPX_CTRL_DEV", "lo", 1);
  EXPECT_OK(load());
  ::setenv("NCCL_GPUDIRECTTCPX_CTRL_DEV", "nosuch7", 1);
  expect_refused(Code::kBadConfig, "NCCL_GPUDIRECTTCPX_CTRL_DEV=nosuch7 names no interface");
}

TEST_F(VendorMachine, A5_GpuMemoryIsNotRegisteredForANicWithoutAPciPath) {
  allow_log("fake1 is no PCI device");
  const std::string path = directory_.fresh_plugin("vendor");
  const FakeLibrary library(path);
  const auto plugin = PluginLoader::load({.path = path, .root = root_.path()})->plugin;
  std::byte data[1];
  for (const int dev : {0, 1}) {
    auto listener = Listener::create(*plugin, dev);
    DeviceHandleStorage device_handle;
    Comm receiver = std::move(listener->try_accept(device_handle).value().value());
    Comm sender = connect_comm(*plugin, dev, listener->handle(), {.deadline = Deadline::after(std::chrono::seconds(9))}).value();
    EXPECT_TRUE(sender.register_memory(data, 4096, MemoryType::kHost).is_ok());
    for (Comm* comm : {&receiver, &sender}) {
      const int calls = library.control().reg_mr_calls;
      const Status status = comm->register_memory(data, 4096, MemoryType::kCuda).status();
      EXPECT_EQ(status.code(), dev == 0 ? Code::kOk : Code::kUnsupported) << status.to_string();
      EXPECT_EQ(library.control().reg_mr_calls - calls, dev == 0 ? 1 : 0);
    }
  }
}

// Two ends that open a connection through plugins with given cuts of messages.
class VendorSetup : public ::testing::Test {
 protected:
  /// @return status of the receiver and of the sender
  std::pair<Status, Status> open(NetPlugin& receivers, NetPlugin& senders, uint32_t chunk_bytes) {
    const PipelineOptions options{.chunk_bytes = chunk_bytes};
    auto sender = testing::in_thread([&] {
      return open_sender(senders, {0, 0}, options, {.deadline = testing::soon(), .peer = &ends_.b});
    });
    const auto received = open_receiver(receivers, {0, 0}, {}, options, {.deadline = testing::soon(), .peer = &ends_.a});
    return {received.status(), sender.get().status()};
  }

  static std::unique_ptr<FakeNetPlugin> fake(std::optional<MessageCut> cut) {
    return std::make_unique<FakeNetPlugin>(FakeNetPlugin::Options{.cut = cut});
  }

  testing::Ends ends_ = testing::two_ends();
};

TEST_F(VendorSetup, Trap18_AChunkThatWouldLosePagesIsRefusedAtBothEndsBeforeAnybodyConnects) {
  // The sender's own sockets do not matter: the receiver has two.
  const auto receivers = fake(MessageCut{.piece_bytes = 65536, .sockets = 2});
  const auto senders = fake(MessageCut{.piece_bytes = 65536, .sockets = 8});
  const auto [receiver, sender] = open(*receivers, *senders, 131073);
  for (const Status& status : {receiver, sender}) {
    EXPECT_EQ(status.code(), Code::kBadConfig) << status.to_string();
    for (const char* part : {"UCCL_TCPX_CHUNK_BYTES is 131073", "NCCL_DYNAMIC_CHUNK_SIZE (65536)", "receiver (2,",
                             "NCCL_NSOCKS_PERTHREAD", "set it to 131072 or less at both ends"}) {
      EXPECT_NE(status.detail().find(part), std::string::npos) << part << " in " << status.to_string();
    }
  }
  EXPECT_EQ(receivers->calls(testing::Call::kAccept) + senders->calls(testing::Call::kConnect), 0u);
}

TEST_F(VendorSetup, Trap18_PluginsThatCutDifferentlyAreNamed) {
  const auto receivers = fake(MessageCut{.piece_bytes = 65536, .sockets = 2});
  const auto senders = fake(std::nullopt);
  const auto [receiver, sender] = open(*receivers, *senders, 4096);
  EXPECT_EQ(receiver.code(), Code::kMismatch);
  EXPECT_EQ(sender.code(), Code::kMismatch);
  EXPECT_NE(receiver.detail().find("plugin chunk bytes is 65536 here and not given at the peer"), std::string::npos)
      << receiver.to_string();
}

TEST_F(VendorSetup, Trap03_Trap18_ConnectionsWithinTheBoundOpenEachWithListenersOfItsOwn) {
  auto made = fake(MessageCut{.piece_bytes = 65536, .sockets = 2});
  const FakeNetPlugin& plugin = *made;
  LockedNetPlugin locked(std::move(made));
  for (int connection = 1; connection <= 2; ++connection) {
    const auto [receiver, sender] = open(locked, locked, 131072);
    EXPECT_TRUE(receiver.is_ok()) << receiver.to_string();
    EXPECT_TRUE(sender.is_ok()) << sender.to_string();
    EXPECT_EQ(plugin.calls(testing::Call::kListen), 2u * static_cast<unsigned>(connection));
  }
  EXPECT_EQ(plugin.misuse(), std::vector<std::string>()) << "such as a second accept of a listener";
}

TEST_F(VendorSetup, Trap18_ChunksOfLongTransfersDoNotGrowByThemselves) {
  for (const bool cuts : {true, false}) {
    LockedNetPlugin locked(fake(cuts ? std::optional(MessageCut{.piece_bytes = 4096, .sockets = 1}) : std::nullopt));
    const PipelineOptions options{.chunk_bytes = 4096, .longest_chunk_bytes = 8192};
    auto other =
        testing::in_thread([&] { return open_sender(locked, {0}, options, {.deadline = testing::soon(), .peer = &ends_.b}); });
    const auto receiver = testing::must(open_receiver(locked, {0}, {}, options, {.deadline = testing::soon(), .peer = &ends_.a}));
    const auto sender = testing::must(other.get());
    std::vector<std::byte> source(32 * 4096, std::byte{1}), target(source.size());
    const auto from = testing::must(sender->register_memory(source.data(), source.size(), MemoryType::kHost));
    const auto into = testing::must(receiver->register_memory(target.data(), target.size(), MemoryType::kHost));
    const TransferId sent = testing::must(sender->submit({.memory = from, .bytes = source.size()}));
    const TransferId got = testing::must(receiver->submit({.memory = into, .bytes = target.size()}));
    auto sending = testing::in_thread([&] { return run_until_done(*sender, sent, {.deadline = testing::soon()}).status(); });
    EXPECT_TRUE(run_until_done(*receiver, got, {.deadline = testing::soon()}).is_ok());
    EXPECT_TRUE(sending.get().is_ok());
    EXPECT_EQ(source, target);
    EXPECT_EQ(receiver->counters().front().chunks, cuts ? 32u : 16u);
  }
}

}  // namespace
}  // namespace tcpx
