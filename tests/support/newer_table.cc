// The newer tables of the software plugin's file, each behind a version 7 table, so that the cases of version 7 run through it.
// The functions are found by their places in NCCL's headers and not through our own structs, so a mistake in a struct shows.
#include <cstring>

#include "tests/support/table_harness.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {

// Entries of ncclNet_v9_t, ncclNet_v10_t and ncclNet_v11_t (NVIDIA/nccl: src/include/plugin/net/, 2.30), each a pointer.
enum Entry {
  kName = 0,
  kInit = 1,
  kDevices = 2,
  kGetProperties = 3,
  kListen = 4,
  kConnect = 5,
  kAccept = 6,
  kRegMr = 7,
  kRegMrDmaBuf = 8,
  kDeregMr = 9,
  kIsend = 10,
  kIrecv = 11,
  kIflush = 12,
  kTest = 13,
  kCloseSend = 14,
  kCloseRecv = 15,
  kCloseListen = 16,
  kGetDeviceMr = 17,
  kIrecvConsumed = 18,
};

void* const kNoPointer = nullptr;

template <class T>
T at(const unsigned char* properties, size_t offset) {
  T value;
  std::memcpy(&value, properties + offset, sizeof value);
  return value;
}

template <int kVersion>
struct Newer {
  static inline void* const* entries = nullptr;
  static inline void* context = nullptr;

  template <class... Arguments>
  static int call(Entry entry, Arguments... arguments) {
    return reinterpret_cast<int (*)(Arguments...)>(entries[entry])(arguments...);
  }

  static int init(abi::NcclLogger logger) {
    if constexpr (kVersion == 9) return call(kInit, logger);
    if constexpr (kVersion == 10) return call(kInit, logger, kNoPointer);
    int traffic_class = -1;
    return call(kInit, &context, uint64_t{1}, &traffic_class, logger, kNoPointer);
  }

  static int get_properties(int dev, abi::NetProperties_v7* properties) {
    unsigned char all[112];
    std::memset(all, 0x5a, sizeof all);
    const int rc = call(kGetProperties, dev, properties != nullptr ? all : nullptr);
    if (rc != abi::kNcclSuccess) return rc;
    *properties = {.name = at<char*>(all, 0),
                   .pci_path = at<char*>(all, 8),
                   .guid = at<uint64_t>(all, 16),
                   .ptr_support = at<int>(all, 24),
                   .speed = at<int>(all, 36),
                   .port = at<int>(all, 40),
                   .latency = at<float>(all, 44),
                   .max_comms = at<int>(all, 48),
                   .max_recvs = at<int>(all, 52),
                   .net_device_type = at<int>(all, 56),
                   .net_device_version = at<int>(all, 60)};
    EXPECT_EQ(at<int>(all, 28), 0) << "regIsGlobal";
    EXPECT_EQ(at<int>(all, 32), 0) << "forceFlush";
    EXPECT_EQ(at<int>(all, 64), 1) << "vProps.ndevs";
    EXPECT_EQ(at<int>(all, 68), dev) << "vProps.devs[0]";
    EXPECT_EQ(at<size_t>(all, 88), 8 * kMiB) << "maxP2pBytes";
    EXPECT_EQ(at<size_t>(all, 96), 8 * kMiB) << "maxCollBytes";
    EXPECT_EQ(at<int>(all, 104), kVersion >= 11 ? 1 : 0x5a5a5a5a) << "maxMultiRequestSize, which version 11 brought";
    return rc;
  }

  static int listen(int dev, void* handle, void** comm) {
    if constexpr (kVersion < 11) return call(kListen, dev, handle, comm);
    return call(kListen, context, dev, handle, comm);
  }

  // As NCCL does: again with the same handle until there is a comm.
  static int connect(int dev, void* handle, void** comm, abi::NetDeviceHandle** device_handle) {
    Handle own;
    if (handle != nullptr) std::memcpy(own.bytes.data(), handle, kHandleBytes);
    void* const given = handle != nullptr ? own.bytes.data() : nullptr;
    int traffic_class = -1;
    for (;;) {
      int rc = 0;
      if constexpr (kVersion == 9) rc = call(kConnect, dev, given, comm, device_handle);
      if constexpr (kVersion == 10) rc = call(kConnect, dev, &traffic_class, given, comm, device_handle);
      if constexpr (kVersion == 11) rc = call(kConnect, context, dev, given, comm, device_handle);
      if (rc != abi::kNcclSuccess || *comm != nullptr) return rc;
    }
  }

  static int accept(void* listener, void** comm, abi::NetDeviceHandle** device_handle) {
    return call(kAccept, listener, comm, device_handle);
  }

  static int reg_mr(void* comm, void* data, int size, int type, void** mhandle) {
    return call(kRegMr, comm, data, static_cast<size_t>(size), type, mhandle);
  }

  static int isend(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
    if constexpr (kVersion == 9) return call(kIsend, comm, data, static_cast<size_t>(size), tag, mhandle, request);
    return call(kIsend, comm, data, static_cast<size_t>(size), tag, mhandle, kNoPointer, request);
  }

  // With the mark of optional completion, as NCCL does with LL. There must be a request all the same, and the cases see that it
  // is done only with its bytes in place.
  static int irecv(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
    void* const mark = reinterpret_cast<void*>(1);
    void* stored = mark;
    size_t wide = sizes != nullptr ? static_cast<size_t>(*sizes) : 0;
    size_t* const given = sizes != nullptr ? &wide : nullptr;
    void** const place = request != nullptr ? &stored : nullptr;
    int rc = 0;
    if constexpr (kVersion == 9) {
      rc = call(kIrecv, comm, n, data, given, tags, mhandles, place);
    } else {
      rc = call(kIrecv, comm, n, data, given, tags, mhandles, kNoPointer, place);
    }
    if (rc != abi::kNcclSuccess) return rc;
    EXPECT_NE(stored, mark);
    *request = stored;
    return rc;
  }

  static const abi::NetTable_v7* over(void* const* symbol) {
    entries = symbol;
    EXPECT_EQ(entries[kRegMrDmaBuf], nullptr) << "ptrSupport does not offer it";
    static abi::NetTable_v7 table{};
    const auto same = [](Entry entry, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(entries[entry]);
    };
    table = {.name = static_cast<const char*>(entries[kName]),
             .init = init,
             .get_properties = get_properties,
             .listen = listen,
             .connect = connect,
             .accept = accept,
             .reg_mr = reg_mr,
             .isend = isend,
             .irecv = irecv};
    same(kDevices, table.devices);
    same(kDeregMr, table.dereg_mr);
    same(kIflush, table.iflush);
    same(kTest, table.test);
    same(kCloseSend, table.close_send);
    same(kCloseRecv, table.close_recv);
    same(kCloseListen, table.close_listen);
    same(kGetDeviceMr, table.get_device_mr);
    same(kIrecvConsumed, table.irecv_consumed);
    return &table;
  }
};

}  // namespace

const abi::NetTable_v7* file_table_over(int version) {
  const auto* const symbol = static_cast<void* const*>(file_symbol(version));
  if (symbol == nullptr) {
    ADD_FAILURE() << "version " << version << " is not exported";
    return nullptr;
  }
  return version == 9 ? Newer<9>::over(symbol) : version == 10 ? Newer<10>::over(symbol) : Newer<11>::over(symbol);
}

}  // namespace tcpx::testing
