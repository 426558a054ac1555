#include "net/plugin_adapters.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "net/plugin_log.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_plugins/fake_library.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::allow_log;
using testing::FakeControl;
using testing::FakeLibrary;
using testing::must;

/// A freshly opened fake, so that its state and its only init belong to this case alone.
struct Fake {
  explicit Fake(const std::string& name = "v7") : library(directory.fresh_plugin(name)), control(library.control()) {}
  abi::NetTable_v7& v7() const { return *library.symbol<abi::NetTable_v7>(abi::kNetPluginV7Symbol); }
  abi::NetTable_v8& v8() const { return *library.symbol<abi::NetTable_v8>(abi::kNetPluginV8Symbol); }

  testing::PluginDirectory directory;
  FakeLibrary library;
  FakeControl& control;
};

/// A plugin over such a fake.
struct Started : Fake {
  using Change = void (*)(abi::NetTable_v7& table);
  explicit Started(
      const std::string& name = "v7", Change change = [](abi::NetTable_v7&) {})
      : Fake(name) {
    change(v7());
    plugin = must(start_plugin(v7()));
  }
  std::shared_ptr<NetPlugin> plugin;
};

/// And a connection through it.
struct Connected : Started {
  template <class... Given>
  explicit Connected(Given... given) : Started(given...) {
    Handle handle;
    listener = plugin->listen(0, handle).value();
    send = plugin->try_connect(0, handle).value().value();
    recv = plugin->try_accept(listener, device_handle).value().value();
  }
  Result<std::optional<Request>> try_send(size_t bytes = 64) { return plugin->try_send(send, data, bytes, 0, MemoryHandle{1}); }
  Result<std::optional<Request>> try_recv(size_t bytes = 64) { return plugin->try_recv(recv, data, bytes, 0, MemoryHandle{1}); }
  Request receive() { return must(try_recv()).value(); }

  ListenComm listener{};
  SendComm send{};
  RecvComm recv{};
  DeviceHandleStorage device_handle;
  std::byte data[64] = {};
};

TEST(PluginAdapters, CompleteTablesPassAndEveryNeededEntryIsMissedByName) {
  allow_log("lacks");
  const Fake fake("both");
  EXPECT_TRUE(check_table(fake.v7()).is_ok());
  EXPECT_TRUE(check_table(fake.v8()).is_ok());
  std::vector<std::string> lacking;
  for (size_t off = 0; off < sizeof(abi::NetTable_v7); off += sizeof(void*)) {  // every entry is a pointer
    abi::NetTable_v7 table = fake.v7();
    std::memset(reinterpret_cast<std::byte*>(&table) + off, 0, sizeof(void*));
    const Status status = check_table(table);
    EXPECT_TRUE(status.is_ok() || status.code() == Code::kUnsupported);
    if (!status.is_ok()) lacking.push_back(status.detail());
  }
  const char* const needed[] = {"name",    "init",  "devices", "getProperties", "listen",    "connect",   "accept",     "regMr",
                                "deregMr", "isend", "irecv",   "test",          "closeSend", "closeRecv", "closeListen"};
  std::vector<std::string> expected;
  for (const char* entry : needed) expected.push_back(concat("ncclNetPlugin_v7 lacks ", entry));
  EXPECT_EQ(lacking, expected);
  EXPECT_EQ(
      check_table(abi::NetTable_v8{}).detail(),
      "ncclNetPlugin_v8 lacks name, init, devices, getProperties, listen, connect, accept, regMr, deregMr, isend, irecv, test, "
      "closeSend, closeRecv, closeListen");
}

/// All devices of that type and version.
template <int kType, int kVersion>
int device_type(int, abi::NetProperties_v7* properties) {
  *properties = abi::NetProperties_v7{};
  properties->net_device_type = kType;
  properties->net_device_version = kVersion;
  return 0;
}
template <int kCount>
int device_count(int* count) {
  *count = kCount;
  return 0;
}

TEST(PluginAdapters, TablesOfPluginsThatWeCannotDriveAreRefused) {
  struct Refused {
    Started::Change change;
    Code code;
    const char* text;
  };
  const Refused refused[] = {
      {[](abi::NetTable_v7& table) { table.irecv_consumed = nullptr; }, Code::kUnsupported, "lacks irecvConsumed"},
      {[](abi::NetTable_v7& table) { table.get_properties = device_type<1, 6>; }, Code::kUnsupported, "UNPACK version 6"},
      {[](abi::NetTable_v7& table) { table.devices = device_count<-1>; }, Code::kProtocol, "claims"},
      {[](abi::NetTable_v7& table) { table.devices = device_count<1025>; }, Code::kProtocol, "claims"}};
  for (const auto& [change, code, text] : refused) {
    allow_log(text);
    Fake fake;
    change(fake.v7());
    const Status status = start_plugin(fake.v7()).status();
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_NE(status.detail().find(text), std::string::npos) << status.to_string();
  }
}

TEST(PluginAdapters, DevicesOfAnUnknownTypeAreToldButCannotReceive) {
  Connected c("v7", [](abi::NetTable_v7& table) {
    table.get_properties = device_type<99, 0>;
    table.irecv_consumed = nullptr;
  });
  EXPECT_EQ(c.plugin->properties(0)->net_device_type, NetDeviceType::kUnknown);
  EXPECT_EQ(c.plugin->properties(0)->name, "") << "a NULL name is tolerated";
  const Request request = c.receive();
  EXPECT_EQ(c.plugin->received(request).status().code(), Code::kUnsupported);
  EXPECT_TRUE(c.plugin->consumed(c.recv, request).is_ok());
}

/// The habits of a plugin of type HOST: no queue, no pages, sizes reported by `test`.
void make_host_type(abi::NetTable_v7& table) {
  table.get_properties = device_type<0, 0>;
  table.irecv_consumed = nullptr;
}

TEST(PluginAdapters, ReceivesOfAHostPluginAreInPlaceAndOfTheSizeThatTestReported) {
  Connected c("v7", make_host_type);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < kQueueDepth; ++i) requests.push_back(c.receive());
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    c.control.written_size = static_cast<int>(i);  // including an empty one
    EXPECT_TRUE(c.plugin->test(requests[i])->done);
  }
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    const ReceivedMessage message = c.plugin->received(requests[i]).value();
    EXPECT_EQ(message.bytes, i);
    EXPECT_TRUE(message.in_place);
    EXPECT_EQ(message.fragment_count, 0u);
    EXPECT_TRUE(c.plugin->consumed(c.recv, requests[i]).is_ok());
  }
  const auto memory = make_host_memory_ops();
  const auto lane = memory->make_copy_lane(0).value();
  EXPECT_EQ(c.plugin->bounce_pool(c.device_handle, *memory, *lane)->base, nullptr);
}

TEST(PluginAdapters, AHostPluginThatReportsNoSizeIsRefused) {
  allow_log("reported no size");
  Connected c("v7", make_host_type);
  const Request silent = c.receive();
  EXPECT_TRUE(c.plugin->test(silent)->done);
  EXPECT_EQ(c.plugin->received(silent).status().code(), Code::kProtocol);

  // A reported size is dropped with its request, and with the comm.
  c.control.written_size = 5;
  const Request consumed = c.receive();
  EXPECT_TRUE(c.plugin->test(consumed)->done);
  EXPECT_TRUE(c.plugin->consumed(c.recv, consumed).is_ok());
  EXPECT_EQ(c.plugin->received(consumed).status().code(), Code::kProtocol);
  const Request left = c.receive();
  EXPECT_TRUE(c.plugin->test(left)->done);
  EXPECT_EQ(c.plugin->received(left)->bytes, 5u);
  EXPECT_TRUE(c.plugin->close(c.recv).is_ok());
  EXPECT_EQ(c.plugin->received(left).status().code(), Code::kProtocol);
}

TEST(PluginAdapters, DeviceIndexIsCheckedBeforeThePluginSeesIt) {
  Started fake;
  EXPECT_EQ(fake.plugin->device_count().value(), testing::kFakeDevices);
  const int calls = fake.control.get_properties_calls;
  Handle handle;
  for (const int dev : {-1, testing::kFakeDevices, INT_MAX, INT_MIN}) {
    EXPECT_EQ(fake.plugin->properties(dev).status().code(), Code::kInvalidArgument) << dev;
    EXPECT_EQ(fake.plugin->listen(dev, handle).status().code(), Code::kInvalidArgument) << dev;
    EXPECT_EQ(fake.plugin->try_connect(dev, handle).status().code(), Code::kInvalidArgument) << dev;
  }
  EXPECT_EQ(fake.control.get_properties_calls, calls);
  EXPECT_EQ(fake.control.connect_handle, nullptr);
}

TEST(PluginAdapters, ForeignResultsAreMappedByNameAndLogged) {
  set_log_level(LogLevel::kDebug);
  allow_log("fake answered");
  Connected c;
  const Request request{1};
  const std::pair<int, Code> expected[] = {
      {1, Code::kCuda},   {2, Code::kPeerGone}, {3, Code::kPlugin}, {4, Code::kInvalidArgument}, {5, Code::kPlugin},
      {6, Code::kPlugin}, {7, Code::kPlugin},   {8, Code::kPlugin}, {-1, Code::kPlugin}};
  for (const auto& [native, code] : expected) {
    c.control.result = native;
    Handle handle;
    const Status answers[] = {
        c.plugin->listen(0, handle).status(),
        c.plugin->try_connect(0, handle).status(),
        c.plugin->try_accept(c.listener, c.device_handle).status(),
        c.plugin->register_memory(c.send, c.data, 64, MemoryType::kHost).status(),
        c.plugin->register_memory(c.recv, c.data, 64, MemoryType::kHost).status(),
        c.plugin->deregister_memory(c.send, MemoryHandle{1}),
        c.plugin->deregister_memory(c.recv, MemoryHandle{1}),
        c.try_send().status(),
        c.try_recv().status(),
        c.plugin->test(request).status(),
        c.plugin->consumed(c.recv, request),
        c.plugin->close(c.send),
        c.plugin->close(c.recv),
        c.plugin->close(c.listener),
    };
    for (const Status& status : answers) {
      EXPECT_EQ(status.code(), code) << native << ": " << status.to_string();
      EXPECT_EQ(status.domain(), Domain::kNccl);
      EXPECT_EQ(status.native(), native);
      EXPECT_TRUE(testing::logged(status.to_string()));
    }
  }
  c.control.result = 2;
  EXPECT_EQ(c.plugin->test(request).status().to_string(), "TCPX_E_PEER_GONE: test: fake answered ncclSystemError (plugin rc 2)");
}

TEST(PluginAdapters, Trap11_Trap12_AskingAgainAndAgainDoesNotFillTheLog) {
  set_log_level(LogLevel::kDebug);
  Connected c;
  // No warning is announced here, so any would fail this case.
  c.control.result = 2;
  EXPECT_EQ(c.plugin->test(Request{1}).status().code(), Code::kPeerGone);
  EXPECT_TRUE(testing::logged("test: fake answered ncclSystemError"));
  c.control.result = 3;
  EXPECT_EQ(c.try_send().status().code(), Code::kPlugin);
  EXPECT_EQ(c.try_recv().status().code(), Code::kPlugin);
  EXPECT_TRUE(testing::logged("isend: fake answered ncclInternalError"));
  EXPECT_TRUE(testing::logged("irecv: fake answered ncclInternalError"));
}

TEST(PluginAdapters, Trap01_NullCommMeansNotYetAndTheSameBufferGoesInAgain) {
  Started fake("asynchronous");
  Handle handle;
  const ListenComm listener = fake.plugin->listen(0, handle).value();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fake.plugin->try_connect(0, handle).value(), std::nullopt) << i;
    EXPECT_EQ(fake.control.connect_handle, &handle) << "the plugin keeps its state in the caller's buffer";
  }
  EXPECT_TRUE(fake.plugin->try_connect(0, handle).value().has_value());

  fake.control.null_comms = 3;
  DeviceHandleStorage device_handle;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fake.plugin->try_accept(listener, device_handle).value(), std::nullopt) << i;
  EXPECT_TRUE(fake.plugin->try_accept(listener, device_handle).value().has_value());
}

TEST(PluginAdapters, Trap02_AUsedHandleIsSpoiledAPristineCopyIsNot) {
  allow_log("connect: fake answered ncclInternalError");
  Started fake;
  Handle pristine;
  ASSERT_TRUE(fake.plugin->listen(0, pristine).is_ok());
  Handle first = pristine, second = pristine;
  EXPECT_TRUE(fake.plugin->try_connect(0, first).is_ok());
  EXPECT_FALSE(first == pristine) << "the plugin writes into the handle";
  EXPECT_FALSE(fake.plugin->try_connect(0, first).is_ok());
  EXPECT_TRUE(fake.plugin->try_connect(0, second).is_ok());
}

TEST(PluginAdapters, Trap04_Trap05_Trap21_EveryAcceptGivesRoomForTheDeviceHandleWhichNamesThePool) {
  Started fake("asynchronous");
  Handle unused;
  DeviceHandleStorage device_handle;
  EXPECT_EQ(fake.plugin->try_accept(fake.plugin->listen(0, unused).value(), device_handle).value(), std::nullopt);
  EXPECT_TRUE(fake.control.accept_room_given) << "from the first call on";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device_handle.bytes) % 16, 0u);
  const Connected connected;  // the fake writes through both levels unchecked
  abi::NetDeviceHandle handle;
  std::memcpy(&handle, connected.device_handle.bytes, sizeof handle);
  EXPECT_EQ(handle.net_device_type, 1);
  EXPECT_EQ(handle.size, 24u);
  const void* base = nullptr;
  std::memcpy(&base, static_cast<const std::byte*>(handle.handle) + 8, sizeof base);
  const auto memory = make_host_memory_ops();
  const auto lane = memory->make_copy_lane(0).value();
  const BouncePool pool = connected.plugin->bounce_pool(connected.device_handle, *memory, *lane).value();
  EXPECT_EQ(pool.base, base);
  EXPECT_GE(pool.bytes, testing::kFakePoolBytes);
}

TEST(PluginAdapters, NullRequestMeansNotNowAndALengthBeyondAnIntNever) {
  Connected c;
  c.control.null_requests = 1;
  EXPECT_EQ(c.try_send().value(), std::nullopt);
  EXPECT_TRUE(c.try_send().value().has_value());
  const size_t too_long = static_cast<size_t>(INT_MAX) + 1;
  EXPECT_EQ(c.try_send(too_long).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.try_recv(too_long).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(c.control.irecv_n, 0) << "the plugin has not seen it";
  c.control.null_requests = 1;
  EXPECT_EQ(c.try_recv().value(), std::nullopt);
  EXPECT_TRUE(c.try_recv().value().has_value());
  EXPECT_EQ(c.control.irecv_n, 1);
}

TEST(PluginAdapters, Trap15_Trap32_SizeComesFromTheRequestAndFlushIsNeverCalled) {
  Connected c;
  const Request request = c.receive();
  const Completion silent = c.plugin->test(request).value();
  EXPECT_TRUE(silent.done);
  EXPECT_EQ(silent.reported_bytes, -1);
  const ReceivedMessage message = c.plugin->received(request).value();
  EXPECT_EQ(message.bytes, static_cast<uint64_t>(testing::kFakeMessageBytes));
  ASSERT_EQ(message.fragment_count, 2u);
  EXPECT_EQ(message.fragments[0], (Fragment{4096, 904, 4096}));
  EXPECT_EQ(message.fragments[1], (Fragment{0, 4096, 0}));
  EXPECT_TRUE(c.plugin->consumed(c.recv, request).is_ok());
  EXPECT_EQ(c.control.consumed_n, 1);

  c.control.written_size = 77;
  EXPECT_EQ(c.plugin->test(request)->reported_bytes, 77);
  c.plugin.reset();
  EXPECT_EQ(c.control.iflush_calls, 0);
  c.v7().iflush = nullptr;
  EXPECT_TRUE(check_table(c.v7()).is_ok());
}

TEST(PluginAdapters, Trap24_RegistrationBeyondAnIntNeverReachesAVersion7Plugin) {
  testing::allow_left("registrations with ");
  Started fake("both");
  Fake other("both");
  const auto v7 = fake.plugin, v8 = must(start_plugin(other.v8()));
  const size_t most = INT_MAX;
  std::byte data[8];
  EXPECT_TRUE(v7->register_memory(SendComm{1}, data, most, MemoryType::kHost).is_ok());
  EXPECT_EQ(fake.control.reg_mr_bytes, most);
  for (const size_t bytes : {most + 1, size_t{1} << 32, SIZE_MAX}) {
    EXPECT_EQ(v7->register_memory(RecvComm{1}, data, bytes, MemoryType::kHost).status().code(), Code::kInvalidArgument) << bytes;
    EXPECT_TRUE(v8->register_memory(RecvComm{1}, data, bytes, MemoryType::kHost).is_ok()) << bytes;
    EXPECT_EQ(other.control.reg_mr_bytes, bytes);
  }
  EXPECT_EQ(fake.control.reg_mr_calls, 1);
}

TEST(PluginAdapters, Trap28_BothRequestLayoutsAreReadAndAThirdIsRefused) {
  allow_log("2024 or the 2026 layout");
  for (const char* name : {"v7", "layout_2026", "layout_unknown"}) {
    Connected c(name);
    // 17 in a row: every queue slot once, the first one twice.
    for (uint32_t i = 0; i < kQueueDepth + 1; ++i) {
      const auto message = c.plugin->received(c.receive());
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

TEST(PluginAdapters, Trap26_Trap29_EachVersionIsReadThroughItsOwnStruct) {
  const Fake v7("v7"), v8("v8");
  for (const int version : {7, 8}) {
    const Fake& fake = version == 7 ? v7 : v8;
    const auto plugin = must(version == 7 ? start_plugin(fake.v7()) : start_plugin(fake.v8()));
    EXPECT_EQ(fake.control.logger, plugin_logger());
    EXPECT_EQ(plugin->abi_version(), version);
    EXPECT_EQ(plugin->name(), "fake");
    EXPECT_EQ(plugin->properties(0)->pci_path, std::nullopt);
    const DeviceProperties properties = plugin->properties(1).value();
    EXPECT_EQ(properties.name, "fake1");
    EXPECT_EQ(properties.pci_path, "/sys/devices/fake1");
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
}

}  // namespace
}  // namespace tcpx
