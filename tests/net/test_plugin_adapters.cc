#include "net/plugin_adapters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "net/plugin_log.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_plugins/fake_library.h"

namespace tcpx {
namespace {

using testing::allow_log;
using testing::FakeControl;
using testing::FakeLibrary;

/// A freshly opened fake, so that its state and its only init belong to this case alone.
struct Fake {
  explicit Fake(const std::string& name) : library(directory.fresh_plugin(name)), control(library.control()) {}
  abi::NetTable_v7& v7() { return *library.symbol<abi::NetTable_v7>(abi::kNetPluginV7Symbol); }
  abi::NetTable_v8& v8() { return *library.symbol<abi::NetTable_v8>(abi::kNetPluginV8Symbol); }

  testing::PluginDirectory directory;
  FakeLibrary library;
  FakeControl& control;
};

template <class Table>
std::shared_ptr<NetPlugin> started(const Table& table) {
  auto plugin = start_plugin(table);
  EXPECT_TRUE(plugin.is_ok()) << plugin.status().to_string();
  return plugin.is_ok() ? *plugin : nullptr;
}

/// A connection through the fake.
struct Connected {
  explicit Connected(NetPlugin& plugin) {
    Handle handle;
    listener = plugin.listen(0, handle).value();
    send = plugin.try_connect(0, handle).value().value();
    recv = plugin.try_accept(listener, device_handle).value().value();
  }
  ListenComm listener{};
  SendComm send{};
  RecvComm recv{};
  DeviceHandleStorage device_handle;
  std::byte data[64] = {};
};

TEST(PluginAdapters, CompleteTablesPass) {
  Fake fake("both");
  EXPECT_TRUE(check_table(fake.v7()).is_ok());
  EXPECT_TRUE(check_table(fake.v8()).is_ok());
}

TEST(PluginAdapters, EveryNeededEntryIsMissedByName) {
  allow_log("lacks");
  Fake fake("v7");
  const abi::NetTable_v7 good = fake.v7();
  const auto without = [&good](auto member) {
    abi::NetTable_v7 table = good;
    table.*member = nullptr;
    return check_table(table);
  };
  const auto expect_missing = [](const Status& status, const std::string& entry) {
    EXPECT_EQ(status.code(), Code::kUnsupported) << entry;
    EXPECT_EQ(status.detail(), "ncclNetPlugin_v7 lacks " + entry);
  };
  using Table = abi::NetTable_v7;
  expect_missing(without(&Table::name), "name");
  expect_missing(without(&Table::init), "init");
  expect_missing(without(&Table::devices), "devices");
  expect_missing(without(&Table::get_properties), "getProperties");
  expect_missing(without(&Table::listen), "listen");
  expect_missing(without(&Table::connect), "connect");
  expect_missing(without(&Table::accept), "accept");
  expect_missing(without(&Table::reg_mr), "regMr");
  expect_missing(without(&Table::dereg_mr), "deregMr");
  expect_missing(without(&Table::isend), "isend");
  expect_missing(without(&Table::irecv), "irecv");
  expect_missing(without(&Table::test), "test");
  expect_missing(without(&Table::close_send), "closeSend");
  expect_missing(without(&Table::close_recv), "closeRecv");
  expect_missing(without(&Table::close_listen), "closeListen");
  EXPECT_EQ(
      check_table(abi::NetTable_v8{}).detail(),
      "ncclNetPlugin_v8 lacks name, init, devices, getProperties, listen, connect, accept, regMr, deregMr, isend, irecv, test, "
      "closeSend, closeRecv, closeListen");
  EXPECT_TRUE(without(&Table::reg_mr_dma_buf).is_ok());
  EXPECT_TRUE(without(&Table::get_device_mr).is_ok());
}

TEST(PluginAdapters, UnpackDevicesNeedIrecvConsumed) {
  allow_log("lacks irecvConsumed");
  Fake fake("v7");
  fake.v7().irecv_consumed = nullptr;
  EXPECT_EQ(start_plugin(fake.v7()).status().code(), Code::kUnsupported);
}

TEST(PluginAdapters, UnpackVersionOtherThanSevenIsRefused) {
  allow_log("UNPACK version 6");
  Fake fake("v7");
  fake.v7().get_properties = [](int, abi::NetProperties_v7* properties) {
    *properties = abi::NetProperties_v7{};
    properties->net_device_type = 1;
    properties->net_device_version = 6;
    return 0;
  };
  EXPECT_EQ(start_plugin(fake.v7()).status().code(), Code::kUnsupported);
}

TEST(PluginAdapters, DevicesOfAnUnknownTypeAreToldButCannotReceive) {
  Fake fake("v7");
  fake.v7().get_properties = [](int, abi::NetProperties_v7* properties) {
    *properties = abi::NetProperties_v7{};
    properties->net_device_type = 99;
    return 0;
  };
  fake.v7().irecv_consumed = nullptr;
  const auto plugin = started(fake.v7());
  EXPECT_EQ(plugin->properties(0)->net_device_type, NetDeviceType::kUnknown);
  EXPECT_EQ(plugin->properties(0)->name, "") << "a NULL name is tolerated";
  Connected connected(*plugin);
  const Request request = plugin->try_recv(connected.recv, connected.data, 64, 0, MemoryHandle{1}).value().value();
  EXPECT_EQ(plugin->received(request).status().code(), Code::kUnsupported);
  EXPECT_TRUE(plugin->consumed(connected.recv, request).is_ok());
}

/// The fake with the habits of a plugin of type HOST: no queue, no pages, sizes reported by `test`.
void make_host_type(Fake& fake) {
  fake.v7().get_properties = [](int, abi::NetProperties_v7* properties) {
    *properties = abi::NetProperties_v7{};
    properties->net_device_type = 0;
    return 0;
  };
  fake.v7().irecv_consumed = nullptr;
}

TEST(PluginAdapters, ReceivesOfAHostPluginAreInPlaceAndOfTheSizeThatTestReported) {
  Fake fake("v7");
  make_host_type(fake);
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    requests.push_back(plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().value());
  }
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    fake.control.written_size = static_cast<int>(i);  // including an empty one
    EXPECT_TRUE(plugin->test(requests[i])->done);
  }
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    const ReceivedMessage message = plugin->received(requests[i]).value();
    EXPECT_EQ(message.bytes, i);
    EXPECT_TRUE(message.in_place);
    EXPECT_EQ(message.fragment_count, 0u);
    EXPECT_TRUE(plugin->consumed(c.recv, requests[i]).is_ok());
  }
  const auto memory = make_host_memory_ops();
  const auto lane = memory->make_copy_lane(0).value();
  EXPECT_EQ(plugin->bounce_pool(c.device_handle, *memory, *lane)->base, nullptr);
}

TEST(PluginAdapters, AHostPluginThatReportsNoSizeIsRefused) {
  allow_log("reported no size");
  Fake fake("v7");
  make_host_type(fake);
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  const auto receive = [&] { return plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().value(); };
  const Request silent = receive();
  EXPECT_TRUE(plugin->test(silent)->done);
  EXPECT_EQ(plugin->received(silent).status().code(), Code::kProtocol);

  // A reported size is dropped with its request, and with the comm.
  fake.control.written_size = 5;
  const Request consumed = receive();
  EXPECT_TRUE(plugin->test(consumed)->done);
  EXPECT_TRUE(plugin->consumed(c.recv, consumed).is_ok());
  EXPECT_EQ(plugin->received(consumed).status().code(), Code::kProtocol);
  const Request left = receive();
  EXPECT_TRUE(plugin->test(left)->done);
  EXPECT_EQ(plugin->received(left)->bytes, 5u);
  EXPECT_TRUE(plugin->close(c.recv).is_ok());
  EXPECT_EQ(plugin->received(left).status().code(), Code::kProtocol);
}

TEST(PluginAdapters, ImpossibleDeviceCountsAreRefused) {
  allow_log("claims");
  Fake fake("v7");
  fake.v7().devices = [](int* count) {
    *count = -1;
    return 0;
  };
  EXPECT_EQ(start_plugin(fake.v7()).status().code(), Code::kProtocol);
  Fake other("v7");
  other.v7().devices = [](int* count) {
    *count = 1025;
    return 0;
  };
  EXPECT_EQ(start_plugin(other.v7()).status().code(), Code::kProtocol);
}

TEST(PluginAdapters, DeviceIndexIsCheckedBeforeThePluginSeesIt) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  EXPECT_EQ(plugin->device_count().value(), testing::kFakeDevices);
  const int calls = fake.control.get_properties_calls;
  Handle handle;
  for (const int dev : {-1, testing::kFakeDevices, INT_MAX, INT_MIN}) {
    EXPECT_EQ(plugin->properties(dev).status().code(), Code::kInvalidArgument) << dev;
    EXPECT_EQ(plugin->listen(dev, handle).status().code(), Code::kInvalidArgument) << dev;
    EXPECT_EQ(plugin->try_connect(dev, handle).status().code(), Code::kInvalidArgument) << dev;
  }
  EXPECT_EQ(fake.control.get_properties_calls, calls);
  EXPECT_EQ(fake.control.connect_handle, nullptr);
}

TEST(PluginAdapters, ForeignResultsAreMappedByNameAndLogged) {
  set_log_level(LogLevel::kDebug);
  allow_log("fake answered");
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  const Request request{1};
  const std::pair<int, Code> expected[] = {
      {1, Code::kCuda},   {2, Code::kPeerGone}, {3, Code::kPlugin}, {4, Code::kInvalidArgument}, {5, Code::kPlugin},
      {6, Code::kPlugin}, {7, Code::kPlugin},   {8, Code::kPlugin}, {-1, Code::kPlugin}};
  for (const auto& [native, code] : expected) {
    fake.control.result = native;
    Handle handle;
    const Status answers[] = {
        plugin->listen(0, handle).status(),
        plugin->try_connect(0, handle).status(),
        plugin->try_accept(c.listener, c.device_handle).status(),
        plugin->register_memory(c.send, c.data, 64, MemoryType::kHost).status(),
        plugin->register_memory(c.recv, c.data, 64, MemoryType::kHost).status(),
        plugin->deregister_memory(c.send, MemoryHandle{1}),
        plugin->deregister_memory(c.recv, MemoryHandle{1}),
        plugin->try_send(c.send, c.data, 64, 0, MemoryHandle{1}).status(),
        plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).status(),
        plugin->test(request).status(),
        plugin->consumed(c.recv, request),
        plugin->close(c.send),
        plugin->close(c.recv),
        plugin->close(c.listener),
    };
    for (const Status& status : answers) {
      EXPECT_EQ(status.code(), code) << native << ": " << status.to_string();
      EXPECT_EQ(status.domain(), Domain::kNccl);
      EXPECT_EQ(status.native(), native);
      EXPECT_TRUE(testing::logged(status.to_string()));
    }
  }
  fake.control.result = 2;
  EXPECT_EQ(plugin->test(request).status().to_string(), "TCPX_E_PEER_GONE: test: fake answered ncclSystemError (plugin rc 2)");
}

TEST(PluginAdapters, Trap11_Trap12_AskingAgainAndAgainDoesNotFillTheLog) {
  set_log_level(LogLevel::kDebug);
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  // No warning is announced here, so any would fail this case.
  fake.control.result = 2;
  EXPECT_EQ(plugin->test(Request{1}).status().code(), Code::kPeerGone);
  EXPECT_TRUE(testing::logged("test: fake answered ncclSystemError"));
  fake.control.result = 3;
  EXPECT_EQ(plugin->try_send(c.send, c.data, 64, 0, MemoryHandle{1}).status().code(), Code::kPlugin);
  EXPECT_EQ(plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).status().code(), Code::kPlugin);
  EXPECT_TRUE(testing::logged("isend: fake answered ncclInternalError"));
  EXPECT_TRUE(testing::logged("irecv: fake answered ncclInternalError"));
}

TEST(PluginAdapters, Trap01_NullCommMeansNotYetAndTheSameBufferGoesInAgain) {
  Fake fake("asynchronous");
  const auto plugin = started(fake.v7());
  Handle handle;
  const ListenComm listener = plugin->listen(0, handle).value();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plugin->try_connect(0, handle).value(), std::nullopt) << i;
    EXPECT_EQ(fake.control.connect_handle, &handle) << "the plugin keeps its state in the caller's buffer";
  }
  EXPECT_TRUE(plugin->try_connect(0, handle).value().has_value());

  fake.control.null_comms = 3;
  DeviceHandleStorage device_handle;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plugin->try_accept(listener, device_handle).value(), std::nullopt) << i;
  EXPECT_TRUE(plugin->try_accept(listener, device_handle).value().has_value());
}

TEST(PluginAdapters, Trap02_AUsedHandleIsSpoiledAPristineCopyIsNot) {
  allow_log("connect: fake answered ncclInternalError");
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Handle pristine;
  ASSERT_TRUE(plugin->listen(0, pristine).is_ok());
  Handle first = pristine, second = pristine;
  EXPECT_TRUE(plugin->try_connect(0, first).is_ok());
  EXPECT_FALSE(first == pristine) << "the plugin writes into the handle";
  EXPECT_FALSE(plugin->try_connect(0, first).is_ok());
  EXPECT_TRUE(plugin->try_connect(0, second).is_ok());
}

TEST(PluginAdapters, Trap04_AcceptGivesRoomForTheDeviceHandle) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected connected(*plugin);  // the fake writes through both levels unchecked
  EXPECT_TRUE(fake.control.accept_room_given);
  abi::NetDeviceHandle handle;
  std::memcpy(&handle, connected.device_handle.bytes, sizeof handle);
  EXPECT_EQ(handle.net_device_type, 1);
  EXPECT_EQ(handle.size, 24u);
}

TEST(PluginAdapters, Trap05_RoomIsGivenFromTheFirstAcceptCallOn) {
  Fake fake("asynchronous");
  const auto plugin = started(fake.v7());
  Handle handle;
  const ListenComm listener = plugin->listen(0, handle).value();
  DeviceHandleStorage device_handle;
  EXPECT_EQ(plugin->try_accept(listener, device_handle).value(), std::nullopt);
  EXPECT_TRUE(fake.control.accept_room_given);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device_handle.bytes) % 16, 0u);
}

TEST(PluginAdapters, NullRequestMeansNotNow) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  fake.control.null_requests = 1;
  EXPECT_EQ(plugin->try_send(c.send, c.data, 64, 0, MemoryHandle{1}).value(), std::nullopt);
  EXPECT_TRUE(plugin->try_send(c.send, c.data, 64, 0, MemoryHandle{1}).value().has_value());
  fake.control.null_requests = 1;
  EXPECT_EQ(plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value(), std::nullopt);
  EXPECT_TRUE(plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().has_value());
  EXPECT_EQ(fake.control.irecv_n, 1);
}

TEST(PluginAdapters, MessageBeyondAnIntIsRefusedBeforeThePluginSeesIt) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  const size_t too_long = static_cast<size_t>(INT_MAX) + 1;
  EXPECT_EQ(plugin->try_send(c.send, c.data, too_long, 0, MemoryHandle{1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plugin->try_recv(c.recv, c.data, too_long, 0, MemoryHandle{1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(fake.control.irecv_n, 0);
}

TEST(PluginAdapters, Trap15_SizeComesFromTheRequestWhenTestWritesNone) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected c(*plugin);
  const Request request = plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().value();
  const Completion silent = plugin->test(request).value();
  EXPECT_TRUE(silent.done);
  EXPECT_EQ(silent.reported_bytes, -1);
  const ReceivedMessage message = plugin->received(request).value();
  EXPECT_EQ(message.bytes, static_cast<uint64_t>(testing::kFakeMessageBytes));
  ASSERT_EQ(message.fragment_count, 2u);
  EXPECT_EQ(message.fragments[0], (Fragment{4096, 904, 4096}));
  EXPECT_EQ(message.fragments[1], (Fragment{0, 4096, 0}));
  EXPECT_TRUE(plugin->consumed(c.recv, request).is_ok());
  EXPECT_EQ(fake.control.consumed_n, 1);

  fake.control.written_size = 77;
  EXPECT_EQ(plugin->test(request)->reported_bytes, 77);
}

TEST(PluginAdapters, Trap21_OffsetsCountFromTheBaseInTheDeviceStruct) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  Connected connected(*plugin);
  const auto memory = make_host_memory_ops();
  const auto lane = memory->make_copy_lane(0).value();
  const BouncePool pool = plugin->bounce_pool(connected.device_handle, *memory, *lane).value();
  abi::NetDeviceHandle handle;
  std::memcpy(&handle, connected.device_handle.bytes, sizeof handle);
  const void* base = nullptr;
  std::memcpy(&base, static_cast<const std::byte*>(handle.handle) + 8, sizeof base);
  EXPECT_EQ(pool.base, base);
  EXPECT_GE(pool.bytes, testing::kFakePoolBytes);
}

TEST(PluginAdapters, Trap24_RegistrationBeyondAnIntNeverReachesAVersion7Plugin) {
  Fake fake("both");
  const auto v7 = started(fake.v7());
  const auto v8 = [&] {
    Fake* other = new Fake("both");  // kept: a plugin must outlive its adapter
    return std::pair(started(other->v8()), std::unique_ptr<Fake>(other));
  }();
  const size_t most = INT_MAX;
  std::byte data[8];
  EXPECT_TRUE(v7->register_memory(SendComm{1}, data, most, MemoryType::kHost).is_ok());
  EXPECT_EQ(fake.control.reg_mr_bytes, most);
  for (const size_t bytes : {most + 1, size_t{1} << 32, SIZE_MAX}) {
    EXPECT_EQ(v7->register_memory(RecvComm{1}, data, bytes, MemoryType::kHost).status().code(), Code::kInvalidArgument) << bytes;
    EXPECT_TRUE(v8.first->register_memory(RecvComm{1}, data, bytes, MemoryType::kHost).is_ok()) << bytes;
    EXPECT_EQ(v8.second->control.reg_mr_bytes, bytes);
  }
  EXPECT_EQ(fake.control.reg_mr_calls, 1);
}

TEST(PluginAdapters, Trap26_NullPciPathIsAnAnswer) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  EXPECT_EQ(plugin->properties(0)->pci_path, std::nullopt);
  EXPECT_EQ(plugin->properties(1)->pci_path, "/sys/devices/fake1");
}

TEST(PluginAdapters, Trap28_BothRequestLayoutsAreReadAndAThirdIsRefused) {
  allow_log("2024 or the 2026 layout");
  for (const char* name : {"v7", "layout_2026", "layout_unknown"}) {
    Fake fake(name);
    const auto plugin = started(fake.v7());
    Connected c(*plugin);
    // 17 in a row: every queue slot once, the first one twice.
    for (uint32_t i = 0; i < kQueueDepth + 1; ++i) {
      const Request request = plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().value();
      const auto message = plugin->received(request);
      if (std::string(name) == "layout_unknown") {
        EXPECT_EQ(message.status().code(), Code::kProtocol);
        continue;
      }
      ASSERT_TRUE(message.is_ok()) << name << ": " << message.status().to_string();
      EXPECT_EQ(message->queue_index, i % kQueueDepth);
      EXPECT_EQ(message->fragment_count, 2u);
      EXPECT_EQ(message->fragments[1], (Fragment{0, 4096, 0}));
    }
  }
}

template <class Table>
void expect_fake_properties(const Table& table, int version) {
  const auto plugin = started(table);
  EXPECT_EQ(plugin->abi_version(), version);
  EXPECT_EQ(plugin->name(), "fake");
  const DeviceProperties properties = plugin->properties(1).value();
  EXPECT_EQ(properties.name, "fake1");
  EXPECT_EQ(properties.guid, 71u);
  EXPECT_TRUE(properties.host_memory);
  EXPECT_TRUE(properties.cuda_memory);
  EXPECT_FALSE(properties.dma_buf);
  EXPECT_EQ(properties.speed_mbps, 200001);
  EXPECT_EQ(properties.port, 5);
  EXPECT_EQ(properties.latency_us, 1.5f);
  EXPECT_EQ(properties.max_comms, 65536);
  EXPECT_EQ(properties.max_recvs, 1);
  EXPECT_EQ(properties.net_device_type, NetDeviceType::kUnpack);
  EXPECT_EQ(properties.net_device_version, 7);
}

TEST(PluginAdapters, Trap29_EachVersionIsReadThroughItsOwnStruct) {
  Fake v7("v7"), v8("v8");
  expect_fake_properties(v7.v7(), 7);
  expect_fake_properties(v8.v8(), 8);
}

struct Lines {
  static void sink(LogLevel level, std::string_view text, void* self) {
    static_cast<Lines*>(self)->lines.emplace_back(level, std::string(text));
  }
  std::vector<std::pair<LogLevel, std::string>> lines;
};

TEST(PluginAdapters, Trap31_LoggerIsVariadicBoundedAndThreadSafe) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  const abi::NcclLogger logger = fake.control.logger;
  ASSERT_NE(logger, nullptr);
  Lines got;
  set_log_level(LogLevel::kDebug);
  set_log_sink(&Lines::sink, &got);
  logger(abi::kNcclLogWarn, 0x10, "file.cc", 12, "%s has %d of %zu\n", "eth0", 3, size_t{9});
  logger(abi::kNcclLogInfo, ~0ul, nullptr, 0, "info");
  logger(abi::kNcclLogTrace, 0, "f", 0, "trace");
  logger(abi::kNcclLogVersion, 0, "f", 0, "version");
  logger(abi::kNcclLogAbort, 0, "f", 0, "abort");
  logger(abi::kNcclLogNone, 0, "f", 0, "nothing");
  logger(abi::kNcclLogWarn, 0, "f", 0, nullptr);
  logger(abi::kNcclLogWarn, 0, "f", 0, "%s", std::string(5000, 'x').c_str());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([logger, i] {
      for (int k = 0; k < 50; ++k) logger(abi::kNcclLogInfo, 0, "f", 0, "thread %d line %d", i, k);
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_log_sink(nullptr, nullptr);

  ASSERT_EQ(got.lines.size(), 6u + 200u);
  EXPECT_EQ(got.lines[0], std::pair(LogLevel::kWarning, std::string("plugin: eth0 has 3 of 9")));
  EXPECT_EQ(got.lines[1], std::pair(LogLevel::kDebug, std::string("plugin: info")));
  EXPECT_EQ(got.lines[2], std::pair(LogLevel::kDebug, std::string("plugin: trace")));
  EXPECT_EQ(got.lines[3], std::pair(LogLevel::kInfo, std::string("plugin: version")));
  EXPECT_EQ(got.lines[4], std::pair(LogLevel::kError, std::string("plugin: abort")));
  EXPECT_EQ(got.lines[5].second, "plugin: " + std::string(1023, 'x'));
}

TEST(PluginAdapters, A6_AFloodOfOneWarningIsAFewLinesAndErrorsAreToldEachTime) {
  Fake fake("v7");
  const auto plugin = started(fake.v7());
  const abi::NcclLogger logger = fake.control.logger;
  Lines got;
  set_log_sink(&Lines::sink, &got);
  const TimePoint start = Clock::steady().now();
  for (int i = 0; i < 20000; ++i) logger(abi::kNcclLogWarn, 0, "net.cc", 77, "receive on host memory");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::steady().now() - start).count();
  for (int i = 0; i < 3; ++i) logger(abi::kNcclLogAbort, 0, "net.cc", 78, "error %d", i);
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(std::count(got.lines.begin(), got.lines.end(),
                       std::pair(LogLevel::kWarning, std::string("plugin: receive on host memory"))),
            1);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(got.lines[got.lines.size() - 3 + static_cast<size_t>(i)].second, concat("plugin: error ", i));
  EXPECT_LE(got.lines.size(), 6u + static_cast<size_t>(seconds));
}

TEST(PluginAdaptersDeathTest, A6_TheLastCountIsToldWhenTheProcessEnds) {
  const auto flood = [] {
    const abi::NcclLogger logger = plugin_logger();
    set_log_sink(nullptr, nullptr);
    for (int i = 0; i < 100; ++i) logger(abi::kNcclLogWarn, 0, "net.cc", 79, "once more");
    std::exit(0);
  };
  EXPECT_EXIT(flood(), ::testing::ExitedWithCode(0),
              "^tcpx: warning: plugin: once more\ntcpx: warning: plugin: once more \\(99 times more in [0-9]+ ms\\)\n$");
}

TEST(PluginAdapters, Trap32_FlushIsNeverCalledAndMayBeMissing) {
  Fake fake("v7");
  {
    const auto plugin = started(fake.v7());
    Connected c(*plugin);
    const Request request = plugin->try_recv(c.recv, c.data, 64, 0, MemoryHandle{1}).value().value();
    EXPECT_TRUE(plugin->test(request)->done);
    EXPECT_TRUE(plugin->received(request).is_ok());
    EXPECT_TRUE(plugin->consumed(c.recv, request).is_ok());
  }
  EXPECT_EQ(fake.control.iflush_calls, 0);
  fake.v7().iflush = nullptr;
  EXPECT_TRUE(check_table(fake.v7()).is_ok());
}

}  // namespace
}  // namespace tcpx
