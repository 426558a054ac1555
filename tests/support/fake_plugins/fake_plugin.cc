// A net plugin that moves nothing: it shows the loader and the adapters the variants of a library, and the habits of
// GPUDirect-TCPX that hurt a careless caller. The request layout is written at literal offsets, as an oracle for the reader.
//
// Definitions: FAKE_V7, FAKE_V8 = 1 complete table, 2 incomplete table; FAKE_INIT_RESULT; FAKE_DEVICE_COUNT; FAKE_MIXED_TYPES;
// FAKE_NULL_COMMS; FAKE_LAYOUT = 2024, 2026 or anything else; FAKE_VENDOR = 1 has the original's name and takes one accept per
// listener.
#include "tests/support/fake_plugins/fake_plugin.h"

#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "net/abi/nccl_net_v7.h"
#include "net/abi/nccl_net_v8.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using tcpx::abi::NetDeviceHandle;
using tcpx::testing::FakeControl;

constexpr size_t kListBytes = 2048 * 16;  // loadMeta per queue slot
constexpr size_t kMetaBytes = 16 * kListBytes + 16 * 8;
constexpr size_t kStatePointerOff = 80;  // offset of GPUDirect-TCPX's connect state in the caller's handle

alignas(4096) unsigned char pool[tcpx::testing::kFakePoolBytes];
alignas(16) unsigned char meta[kMetaBytes];
alignas(16) unsigned char requests[16][136];
uint64_t posted_receives = 0;
constexpr int kMostListeners = 64;
bool accepted[kMostListeners];  // a listen comm is the address of its entry
int send_comm, recv_comm, memory_handle;

struct {
  void* meta;
  void* bounce_buf;
  uint64_t head;
} device_side_handle = {meta, pool, ~uint64_t{0}};

template <class T>
void store(unsigned char* at, size_t offset, T value) {
  std::memcpy(at + offset, &value, sizeof value);
}

unsigned char* new_request(int op, int mem_type, int size) {
  unsigned char* request = requests[posted_receives % 16];
  std::memset(request, 0, sizeof requests[0]);
  store<int32_t>(request, 16, op);
  store<int32_t>(request, 20, mem_type);
  store<int32_t>(request, 36, size);
  return request;
}

void list_fragments(unsigned char* request) {
  const uint64_t idx = posted_receives % 16;
  unsigned char* list = meta + idx * kListBytes;
  unsigned char* count = meta + 16 * kListBytes + idx * 8;
  const struct {
    uint32_t src_off, len;
    uint64_t dst_off;
  } fragments[2] = {{4096, 904, 4096}, {0, 4096, 0}};
  std::memcpy(list, fragments, sizeof fragments);
  store<uint64_t>(count, 0, 2);
  constexpr size_t slot = FAKE_LAYOUT == 2024 ? 56 : FAKE_LAYOUT == 2026 ? 64 : 48;
  store<bool>(request, slot, true);
  store<uint64_t>(request, slot + 8, idx);
  store<void*>(request, slot + 16, list);
  store<void*>(request, slot + 24, count);
}

}  // namespace

FAKE_EXPORT FakeControl fake_control;
FakeControl fake_control{.null_comms = FAKE_NULL_COMMS};

namespace {

int init(tcpx::abi::NcclLogger logger) {
  ++fake_control.init_calls;
  fake_control.logger = logger;
  logger(tcpx::abi::kNcclLogInfo, 0, __func__, __LINE__, "fake plugin, %d devices", FAKE_DEVICE_COUNT);
  return fake_control.init_calls == 1 ? FAKE_INIT_RESULT : 3;
}

int devices(int* count) {
  *count = FAKE_DEVICE_COUNT;
  return 0;
}

template <class Properties>
int get_properties(int dev, Properties* properties) {
  static char names[2][8] = {"fake0", "fake1"};
#if FAKE_VENDOR
  static char pci_path[] = "/sys/devices/pci0000:00/0000:06:00.0";
#else
  static char pci_path[] = "/sys/devices/fake1";
#endif
  ++fake_control.get_properties_calls;
  *properties = Properties{};
  properties->name = names[dev];  // no check of `dev`, as in GPUDirect-TCPX
  properties->pci_path = (dev == 0) == (FAKE_VENDOR != 0) ? pci_path : nullptr;
  properties->guid = 70u + static_cast<unsigned>(dev);
  properties->ptr_support = 3;
  properties->speed = 200000 + dev;
  properties->port = 5;
  properties->latency = 1.5f;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  properties->net_device_type = FAKE_MIXED_TYPES && dev == 1 ? 0 : 1;
  properties->net_device_version = 7;
  return 0;
}

int listen(int, void* handle, void** comm) {
  if (fake_control.result != 0) return fake_control.result;
  std::memset(handle, 0, 128);
  *comm = &accepted[fake_control.listens++ % kMostListeners];
  *static_cast<bool*>(*comm) = false;
  return 0;
}

int connect(int, void* handle, void** comm, NetDeviceHandle**) {
  fake_control.connect_handle = handle;
  if (fake_control.result != 0) return fake_control.result;
  static int state;
  static bool connecting = false;
  void* kept = nullptr;
  std::memcpy(&kept, static_cast<unsigned char*>(handle) + kStatePointerOff, sizeof kept);
  if (kept != nullptr && !connecting) return 3;  // a used handle: the original would follow a stale pointer here
  connecting = true;
  store<void*>(static_cast<unsigned char*>(handle), kStatePointerOff, &state);
  if (fake_control.null_comms-- > 0) return 0;
  connecting = false;
  *comm = &send_comm;
  return 0;
}

int accept(void* listen_comm, void** comm, NetDeviceHandle** recv_device_handle) {
  fake_control.accept_room_given = recv_device_handle != nullptr && *recv_device_handle != nullptr;
  if (fake_control.result != 0) return fake_control.result;
  if (FAKE_VENDOR && *static_cast<bool*>(listen_comm)) return 12334;  // observed with the original, which reads freed memory
  if (fake_control.null_comms-- > 0) return 0;
  *static_cast<bool*>(listen_comm) = true;
  // The inner pointer is not checked, as in the original, which creates no queue without the outer one.
  if (recv_device_handle != nullptr) **recv_device_handle = NetDeviceHandle{1, 7, &device_side_handle, 24, 1};
  *comm = &recv_comm;
  return 0;
}

template <class Size>
int reg_mr(void*, void* data, Size size, int, void** mhandle) {
  ++fake_control.reg_mr_calls;
  fake_control.reg_mr_data = data;
  fake_control.reg_mr_bytes = static_cast<size_t>(size);
  if (fake_control.result != 0) return fake_control.result;
  ++fake_control.open_registrations;
  *mhandle = &memory_handle;
  return 0;
}

int dereg_mr(void*, void*) {
  if (fake_control.result == 0) --fake_control.open_registrations;
  return fake_control.result;
}

int isend(void*, void*, int size, int, void*, void** request) {
  if (fake_control.result != 0) return fake_control.result;
  if (fake_control.null_requests-- <= 0) *request = new_request(0, 2, size);
  return 0;
}

int irecv(void*, int n, void**, int*, int*, void**, void** request) {
  fake_control.irecv_n = n;
  if (fake_control.result != 0) return fake_control.result;
  if (fake_control.null_requests-- > 0) return 0;
  unsigned char* posted = new_request(1, 2, tcpx::testing::kFakeMessageBytes);
  list_fragments(posted);
  ++posted_receives;
  *request = posted;
  return 0;
}

int iflush(void*, int, void**, int*, void**, void** request) {
  ++fake_control.iflush_calls;
  return *static_cast<int*>(*request);  // reads an output, as the original does
}

void* exit_in_own_thread(void*) {
  std::exit(1);
}

int test(void*, int* done, int* sizes) {
  *done = 0;
  ++fake_control.tests;
  if (fake_control.result != 0) return fake_control.result;
  if (fake_control.peer_gone_tests > 0) {
    --fake_control.peer_gone_tests;
    return 2;
  }
  if (fake_control.exits == FakeControl::Exit::kInTest) std::exit(1);
  if (fake_control.exits == FakeControl::Exit::kInOwnThread) {
    pthread_t thread;
    if (fake_control.tests == 1) pthread_create(&thread, nullptr, exit_in_own_thread, nullptr);
    return 0;
  }
  *done = 1;
  if (fake_control.written_size >= 0) *sizes = fake_control.written_size;
  return 0;
}

int close_comm(void*) {
  return fake_control.result;
}

int irecv_consumed(void*, int n, void*) {
  fake_control.consumed_n = n;
  return fake_control.result;
}

// kind 2: a table such as a half-finished port would export.
template <class Table, class Properties, class Size>
constexpr Table make_table(int kind) {
  Table table{};
  table.name = FAKE_VENDOR ? "GPUDirectTCPX_v7" : "fake";
  table.init = init;
  table.devices = devices;
  table.get_properties = get_properties<Properties>;
  table.listen = listen;
  table.connect = connect;
  table.accept = accept;
  table.reg_mr = kind == 2 ? nullptr : reg_mr<Size>;
  table.dereg_mr = dereg_mr;
  table.isend = isend;
  table.irecv = irecv;
  table.iflush = iflush;
  table.test = kind == 2 ? nullptr : test;
  table.close_send = close_comm;
  table.close_recv = close_comm;
  table.close_listen = close_comm;
  table.irecv_consumed = irecv_consumed;
  return table;
}

}  // namespace

#if FAKE_V7
FAKE_EXPORT tcpx::abi::NetTable_v7 ncclNetPlugin_v7;
tcpx::abi::NetTable_v7 ncclNetPlugin_v7 = make_table<tcpx::abi::NetTable_v7, tcpx::abi::NetProperties_v7, int>(FAKE_V7);
#endif
#if FAKE_V8
FAKE_EXPORT tcpx::abi::NetTable_v8 ncclNetPlugin_v8;
tcpx::abi::NetTable_v8 ncclNetPlugin_v8 = make_table<tcpx::abi::NetTable_v8, tcpx::abi::NetProperties_v8, size_t>(FAKE_V8);
#endif
#if !FAKE_V7 && !FAKE_V8
// A library for programs newer than ours.
FAKE_EXPORT tcpx::abi::NetTable_v8 ncclNetPlugin_v99;
tcpx::abi::NetTable_v8 ncclNetPlugin_v99 = make_table<tcpx::abi::NetTable_v8, tcpx::abi::NetProperties_v8, size_t>(1);
#endif
