// The C interface over a fake plugin: every NULL, every code, each output and its time. Bytes move in c_api_c99.c.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "net/abi/nccl_net_common.h"
#include "tcpx/status.h"
#include "tcpx/types.h"
#include "tcpx_interface.h"
#include "tests/support/expect_log.h"
#include "tests/support/fake_plugins/fake_library.h"

namespace tcpx {
namespace {

using testing::allow_log;

// Negated, every constant is the code of that name.
static_assert(TCPX_OK == static_cast<int>(Code::kOk));
static_assert(-TCPX_E_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(-TCPX_E_NOT_FOUND == static_cast<int>(Code::kNotFound));
static_assert(-TCPX_E_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(-TCPX_E_BAD_CONFIG == static_cast<int>(Code::kBadConfig));
static_assert(-TCPX_E_TIMEOUT == static_cast<int>(Code::kTimeout));
static_assert(-TCPX_E_PEER_GONE == static_cast<int>(Code::kPeerGone));
static_assert(-TCPX_E_PROTOCOL == static_cast<int>(Code::kProtocol));
static_assert(-TCPX_E_PLUGIN == static_cast<int>(Code::kPlugin));
static_assert(-TCPX_E_CUDA == static_cast<int>(Code::kCuda));
static_assert(-TCPX_E_SYSTEM == static_cast<int>(Code::kSystem));
static_assert(-TCPX_E_EXHAUSTED == static_cast<int>(Code::kExhausted));
static_assert(-TCPX_E_MISMATCH == static_cast<int>(Code::kMismatch));
static_assert(-TCPX_E_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(-TCPX_E_CANCELLED == static_cast<int>(Code::kCancelled));
static_assert(-TCPX_E_CORRUPT == static_cast<int>(Code::kCorrupt));
static_assert(TCPX_HANDLE_BYTES == kHandleBytes && TCPX_DEVICE_HANDLE_BYTES == sizeof(abi::NetDeviceHandle));
static_assert(TCPX_PTR_HOST == static_cast<int>(MemoryType::kHost) && TCPX_PTR_CUDA == static_cast<int>(MemoryType::kCuda));
static_assert(TCPX_PTR_DMABUF == abi::kNcclPtrDmaBuf && TCPX_NET_DEVICE_HOST == abi::kNcclNetDeviceHost &&
              TCPX_NET_DEVICE_UNPACK == abi::kNcclNetDeviceUnpack);

std::string fake_path() {
  return std::string(TCPX_FAKE_PLUGIN_DIR) + "/v7.so";
}

/// All cases share the process's one plugin in use: the fake.
class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tcpx_load_plugin(fake_path().c_str()), 0) << tcpx_last_error();
    control_.result = 0;
    control_.null_comms = control_.null_requests = 0;
    control_.written_size = -1;
  }
  void TearDown() override {
    control_.result = 0;
    if (mhandle_ != nullptr) {
      EXPECT_EQ(tcpx_dereg_mr(send_, mhandle_), 0);
    }
  }

  void expect_invalid(int code, const std::string& part) {
    EXPECT_EQ(code, TCPX_E_INVALID_ARGUMENT) << part;
    EXPECT_NE(std::string(tcpx_last_error()).find(part), std::string::npos) << tcpx_last_error();
  }

  void connect() {
    ASSERT_EQ(tcpx_listen(0, handle_, &listen_), 0);
    ASSERT_EQ(tcpx_connect_v5(0, handle_, &send_, nullptr), 0);
    ASSERT_EQ(tcpx_accept_v5(listen_, &recv_, nullptr), 0);
    ASSERT_EQ(tcpx_reg_mr(send_, data_, sizeof data_, TCPX_PTR_CUDA, &mhandle_), 0);
  }

  testing::FakeLibrary library_{fake_path()};
  testing::FakeControl& control_ = library_.control();
  alignas(8) unsigned char handle_[TCPX_HANDLE_BYTES] = {};
  void* listen_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  void* mhandle_ = nullptr;
  unsigned char data_[64] = {};
};

TEST(CApiBeforeLoadDeathTest, CallsSayThatNoPluginIsLoaded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    void* comm = nullptr;
    unsigned char handle[TCPX_HANDLE_BYTES];
    const bool silent = *tcpx_last_error() == '\0';
    const int code = tcpx_listen(0, handle, &comm);
    const bool told = std::string(tcpx_last_error()).find("no plugin is loaded") != std::string::npos;
    ::_exit(silent && code == TCPX_E_INVALID_ARGUMENT && told ? 0 : 1);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0), "");
}

TEST(CApiBeforeLoadDeathTest, DeviceCountLoadsTheDefaultPlugin) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    ::setenv("UCCL_TCPX_PLUGIN_PATH", fake_path().c_str(), 1);
    ::_exit(tcpx_get_device_count() == testing::kFakeDevices ? 0 : 1);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0), "net plugin fake .*named by UCCL_TCPX_PLUGIN_PATH");
}

TEST(CApiBeforeLoadDeathTest, FailedLoadIsToldAsTheCountAndLeavesNoPlugin) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    ::setenv("UCCL_TCPX_PLUGIN_PATH", (std::string(TCPX_FAKE_PLUGIN_DIR) + "/failing_init.so").c_str(), 1);
    const bool negative_count = tcpx_get_device_count() == TCPX_E_PLUGIN;
    const bool plugins_own_code = tcpx_load_plugin(nullptr) == 3;
    const bool other_still_possible = tcpx_load_plugin(fake_path().c_str()) == 0;
    ::_exit(negative_count && plugins_own_code && other_still_possible ? 0 : 1);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CApi, A2_CudaMemoryIsRegisteredInTheWholePagesThatItLiesIn) {
  ASSERT_NO_FATAL_FAILURE(connect());
  alignas(4096) static unsigned char pages[3 * 4096];
  void* out = nullptr;
  ASSERT_EQ(tcpx_reg_mr(send_, pages + 4095, 2, TCPX_PTR_CUDA, &out), 0);
  EXPECT_EQ(control_.reg_mr_data, pages);
  EXPECT_EQ(control_.reg_mr_bytes, 8192u);
  EXPECT_EQ(tcpx_dereg_mr(send_, out), 0);
  ASSERT_EQ(tcpx_reg_mr(send_, pages + 4095, 2, TCPX_PTR_HOST, &out), 0);
  EXPECT_EQ(control_.reg_mr_data, pages + 4095) << "host memory as it is";
  EXPECT_EQ(control_.reg_mr_bytes, 2u);
  EXPECT_EQ(tcpx_dereg_mr(send_, out), 0);
}

TEST_F(CApi, LoadingThePluginInUseAgainIsFine) {
  EXPECT_EQ(tcpx_load_plugin(nullptr), 0);
  EXPECT_EQ(tcpx_load_plugin(""), 0);
  EXPECT_EQ(tcpx_load_plugin(fake_path().c_str()), 0);
  EXPECT_EQ(tcpx_load_plugin((std::string(TCPX_FAKE_PLUGIN_DIR) + "/./v7.so").c_str()), 0) << "the same file by another name";
  EXPECT_EQ(control_.init_calls, 1);
}

TEST_F(CApi, LoadingAnotherPluginIsRefused) {
  const std::string other = std::string(TCPX_FAKE_PLUGIN_DIR) + "/v8.so";
  const testing::FakeLibrary library(other);
  expect_invalid(tcpx_load_plugin(other.c_str()), "another plugin is in use");
  EXPECT_EQ(library.control().init_calls, 0) << "nothing of a refused plugin runs: its threads would stay";
  expect_invalid(tcpx_load_plugin("embedded"), "another plugin is in use");
  EXPECT_FALSE(testing::logged("net plugin tcpx-soft")) << "a refused plugin is not announced";
  expect_invalid(tcpx_load_plugin("/nowhere/plugin.so"), "another plugin is in use");
  EXPECT_EQ(tcpx_get_device_count(), testing::kFakeDevices) << "the plugin in use stays";
}

TEST_F(CApi, PropertiesAreFilled) {
  tcpx_net_properties properties{};
  properties.struct_size = sizeof properties;
  ASSERT_EQ(tcpx_get_properties(0, &properties), 0);
  EXPECT_EQ(properties.pci_path, nullptr);
  const char* const name = properties.name;
  ASSERT_EQ(tcpx_get_properties(1, &properties), 0);
  EXPECT_STREQ(name, "fake0") << "strings stay";
  EXPECT_STREQ(properties.name, "fake1");
  EXPECT_STREQ(properties.pci_path, "/sys/devices/fake1");
  EXPECT_EQ(properties.struct_size, sizeof properties);
  EXPECT_EQ(properties.guid, 71u);
  EXPECT_EQ(properties.ptr_support, TCPX_PTR_HOST | TCPX_PTR_CUDA);
  EXPECT_EQ(properties.speed, 200001);
  EXPECT_EQ(properties.port, 5);
  EXPECT_EQ(properties.latency, 1.5f);
  EXPECT_EQ(properties.max_comms, 65536);
  EXPECT_EQ(properties.max_recvs, 1);
  EXPECT_EQ(properties.net_device_type, TCPX_NET_DEVICE_UNPACK);
  EXPECT_EQ(properties.net_device_version, 7);
}

TEST_F(CApi, PropertiesCheckStructSizeAndDevice) {
  tcpx_net_properties properties{};
  expect_invalid(tcpx_get_properties(0, nullptr), "properties is NULL");
  for (const size_t wrong : {size_t{0}, sizeof properties - 8, sizeof properties + 8}) {
    properties.struct_size = wrong;
    expect_invalid(tcpx_get_properties(0, &properties), "struct_size");
  }
  properties.struct_size = sizeof properties;
  expect_invalid(tcpx_get_properties(-1, &properties), "device -1");
  expect_invalid(tcpx_get_properties(testing::kFakeDevices, &properties), "device 2");
  EXPECT_EQ(properties.name, nullptr) << "nothing is written on failure";
}

TEST_F(CApi, NullIsRefusedByEveryCall) {
  connect();
  int one = 1, done = 0;
  void* data = data_;
  void* out = nullptr;
  expect_invalid(tcpx_listen(0, nullptr, &out), "handle");
  expect_invalid(tcpx_listen(0, handle_, nullptr), "listen_comm");
  expect_invalid(tcpx_connect_v5(0, nullptr, &out, nullptr), "handle");
  expect_invalid(tcpx_connect_v5(0, handle_, nullptr, nullptr), "send_comm");
  expect_invalid(tcpx_connect_v5(0, handle_ + 1, &out, nullptr), "aligned");
  expect_invalid(tcpx_accept_v5(nullptr, &out, nullptr), "listen_comm");
  expect_invalid(tcpx_accept_v5(listen_, nullptr, nullptr), "recv_comm");
  expect_invalid(tcpx_reg_mr(nullptr, data_, 64, TCPX_PTR_HOST, &out), "comm");
  expect_invalid(tcpx_reg_mr(send_, nullptr, 64, TCPX_PTR_HOST, &out), "data");
  expect_invalid(tcpx_reg_mr(send_, data_, 64, TCPX_PTR_HOST, nullptr), "mhandle");
  expect_invalid(tcpx_reg_mr(send_, data_, 64, TCPX_PTR_DMABUF, &out), "type");
  expect_invalid(tcpx_reg_mr(send_, data_, 64, 0, &out), "type");
  expect_invalid(tcpx_dereg_mr(nullptr, mhandle_), "comm");
  expect_invalid(tcpx_dereg_mr(send_, nullptr), "mhandle");
  expect_invalid(tcpx_isend(nullptr, data_, 1, 0, mhandle_, &out), "send_comm");
  expect_invalid(tcpx_isend(send_, nullptr, 1, 0, mhandle_, &out), "data");
  expect_invalid(tcpx_isend(send_, data_, -1, 0, mhandle_, &out), "negative");
  expect_invalid(tcpx_isend(send_, data_, 1, 0, nullptr, &out), "mhandle");
  expect_invalid(tcpx_isend(send_, data_, 1, 0, mhandle_, nullptr), "request");
  expect_invalid(tcpx_irecv(nullptr, 1, &data, &one, &one, &mhandle_, &out), "recv_comm");
  for (const int n : {0, 2, -1}) expect_invalid(tcpx_irecv(recv_, n, &data, &one, &one, &mhandle_, &out), "n is not 1");
  expect_invalid(tcpx_irecv(recv_, 1, nullptr, &one, &one, &mhandle_, &out), "array");
  expect_invalid(tcpx_irecv(recv_, 1, &data, nullptr, &one, &mhandle_, &out), "array");
  expect_invalid(tcpx_irecv(recv_, 1, &data, &one, nullptr, &mhandle_, &out), "array");
  expect_invalid(tcpx_irecv(recv_, 1, &data, &one, &one, nullptr, &out), "array");
  expect_invalid(tcpx_irecv(recv_, 1, &data, &one, &one, &mhandle_, nullptr), "request");
  int negative = -1;
  void* none = nullptr;
  expect_invalid(tcpx_irecv(recv_, 1, &data, &negative, &one, &mhandle_, &out), "negative");
  expect_invalid(tcpx_irecv(recv_, 1, &none, &one, &one, &mhandle_, &out), "data[0]");
  expect_invalid(tcpx_irecv(recv_, 1, &data, &one, &one, &none, &out), "mhandles[0]");
  expect_invalid(tcpx_test(nullptr, &done, &one), "request");
  expect_invalid(tcpx_test(data_, nullptr, &one), "done");
  expect_invalid(tcpx_irecv_consumed(nullptr, 1, data_), "recv_comm");
  expect_invalid(tcpx_irecv_consumed(recv_, 1, nullptr), "request");
  expect_invalid(tcpx_irecv_consumed(recv_, 2, data_), "n is not 1");
  expect_invalid(tcpx_close_send(nullptr), "send_comm");
  expect_invalid(tcpx_close_recv(nullptr), "recv_comm");
  expect_invalid(tcpx_close_listen(nullptr), "listen_comm");
  EXPECT_EQ(out, nullptr) << "nothing is written on failure";
}

TEST_F(CApi, PluginCodesComeBackUnchangedAndNothingIsWritten) {
  allow_log("fake answered");
  connect();
  for (const int native : {1, 2, 3, 4, 5, 6, 7}) {
    control_.result = native;
    unsigned char handle[TCPX_HANDLE_BYTES];
    std::memset(handle, 0xab, sizeof handle);
    int bytes = 64, tag = 0, done = 77, size = 78;
    void* data = data_;
    void* const before = &bytes;
    void* out = before;
    EXPECT_EQ(tcpx_listen(0, handle, &out), native);
    EXPECT_EQ(handle[0], 0xab);
    EXPECT_EQ(tcpx_connect_v5(0, handle_, &out, nullptr), native);
    EXPECT_EQ(tcpx_accept_v5(listen_, &out, nullptr), native);
    EXPECT_EQ(tcpx_reg_mr(recv_, data_, 64, TCPX_PTR_CUDA, &out), native);
    EXPECT_EQ(tcpx_dereg_mr(send_, mhandle_), native);
    EXPECT_EQ(tcpx_isend(send_, data_, 64, 0, mhandle_, &out), native);
    EXPECT_EQ(tcpx_irecv(recv_, 1, &data, &bytes, &tag, &mhandle_, &out), native);
    EXPECT_EQ(tcpx_test(data_, &done, &size), native);
    EXPECT_EQ(tcpx_irecv_consumed(recv_, 1, data_), native);
    EXPECT_EQ(tcpx_close_send(send_), native);
    EXPECT_EQ(tcpx_close_recv(recv_), native);
    EXPECT_EQ(tcpx_close_listen(listen_), native);
    EXPECT_EQ(out, before);
    EXPECT_EQ(done, 77);
    EXPECT_EQ(size, 78);
    EXPECT_NE(std::string(tcpx_last_error()).find("rc " + std::to_string(native)), std::string::npos) << tcpx_last_error();
  }
  control_.result = -5;
  EXPECT_EQ(tcpx_close_send(send_), TCPX_E_PLUGIN) << "a negative code of the plugin must not look like one of ours";
}

TEST_F(CApi, RegistrationBeyondAnIntIsRefused) {
  connect();
  void* out = nullptr;
  expect_invalid(tcpx_reg_mr(send_, data_, size_t{1} << 31, TCPX_PTR_HOST, &out), "at most 2147483647");
}

TEST_F(CApi, Trap01_NotYetIsZeroWithNull) {
  ASSERT_EQ(tcpx_listen(0, handle_, &listen_), 0);
  control_.null_comms = 1;
  void* out = handle_;
  EXPECT_EQ(tcpx_connect_v5(0, handle_, &out, nullptr), 0);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(control_.connect_handle, handle_) << "the caller's own buffer goes to the plugin";
  EXPECT_EQ(tcpx_connect_v5(0, handle_, &out, nullptr), 0);
  EXPECT_NE(out, nullptr);
  control_.null_comms = 1;
  EXPECT_EQ(tcpx_accept_v5(listen_, &out, nullptr), 0);
  EXPECT_EQ(out, nullptr);
}

TEST_F(CApi, NullRequestIsNotNow) {
  connect();
  control_.null_requests = 1;
  void* request = handle_;
  EXPECT_EQ(tcpx_isend(send_, nullptr, 0, 0, mhandle_, &request), 0) << "no data is needed for no bytes";
  EXPECT_EQ(request, nullptr);
}

TEST_F(CApi, Trap04_DeviceHandleIsWrittenWhereThereIsRoom) {
  ASSERT_EQ(tcpx_listen(0, handle_, &listen_), 0);
  unsigned char room[1 + TCPX_DEVICE_HANDLE_BYTES + 1];
  std::memset(room, 0xab, sizeof room);
  void* where = room + 1;  // no alignment is asked for
  ASSERT_EQ(tcpx_accept_v5(listen_, &recv_, &where), 0);
  abi::NetDeviceHandle written;
  std::memcpy(&written, room + 1, sizeof written);
  EXPECT_EQ(written.net_device_type, 1);
  EXPECT_EQ(written.net_device_version, 7);
  EXPECT_EQ(written.size, 24u);
  EXPECT_EQ(room[0], 0xab);
  EXPECT_EQ(room[sizeof room - 1], 0xab);
}

TEST_F(CApi, Trap05_AcceptToleratesMissingRoom) {
  ASSERT_EQ(tcpx_listen(0, handle_, &listen_), 0);
  void* nowhere = nullptr;
  EXPECT_EQ(tcpx_accept_v5(listen_, &recv_, nullptr), 0);
  EXPECT_TRUE(control_.accept_room_given) << "the plugin gets room all the same";
  EXPECT_EQ(tcpx_accept_v5(listen_, &recv_, &nowhere), 0);
  EXPECT_EQ(nowhere, nullptr);
}

TEST_F(CApi, Trap15_SizeIsMinusOneWhenThePluginReportsNone) {
  connect();
  int bytes = 64, tag = 0, done = 0, size = 5;
  void* data = data_;
  void* request = nullptr;
  ASSERT_EQ(tcpx_irecv(recv_, 1, &data, &bytes, &tag, &mhandle_, &request), 0);
  ASSERT_EQ(tcpx_test(request, &done, &size), 0);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(size, -1);
  int32_t in_request = 0;
  std::memcpy(&in_request, static_cast<unsigned char*>(request) + 36, sizeof in_request);
  EXPECT_EQ(in_request, testing::kFakeMessageBytes) << "requests are the plugin's own pointers";
  control_.written_size = 12;
  ASSERT_EQ(tcpx_test(request, &done, &size), 0);
  EXPECT_EQ(size, 12);
  EXPECT_EQ(tcpx_test(request, &done, nullptr), 0);
  EXPECT_EQ(tcpx_irecv_consumed(recv_, 1, request), 0);
}

TEST_F(CApi, LastErrorBelongsToTheThread) {
  expect_invalid(tcpx_close_send(nullptr), "send_comm");
  std::thread([this] {
    EXPECT_STREQ(tcpx_last_error(), "");
    expect_invalid(tcpx_close_recv(nullptr), "recv_comm");
  }).join();
  EXPECT_NE(std::string(tcpx_last_error()).find("send_comm"), std::string::npos);
  EXPECT_EQ(tcpx_load_plugin(nullptr), 0);
  EXPECT_NE(std::string(tcpx_last_error()).find("send_comm"), std::string::npos) << "a success leaves the text";
}

}  // namespace
}  // namespace tcpx
