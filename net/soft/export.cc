// The symbols of libnccl-net-tcpx-soft.so, and of libnccl-net-tcpx-devmem.so, which is the same and uses device-memory TCP where
// UCCL_TCPX_NETWORK says nothing else: the version 7 table, and those of versions 9 to 11 as adapters over it. NCCL takes
// the newest that it knows. Version 8 is left out: it would give NCCL nothing new, and programs that look for it first read its
// properties as those of version 7 (trap 29).
#include <atomic>
#include <climits>
#include <cstring>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "net/abi/nccl_net_v9_to_v11.h"
#include "net/soft/soft_table.h"
#include "net/soft/wire.h"
#include "secure/settings.h"

namespace {

using namespace tcpx;

constexpr unsigned long kNcclNetSubsystem = 16;  // NCCL_NET in NVIDIA/nccl: src/include/nccl_common.h
std::atomic<abi::NcclLogger> host_logger{nullptr};

int host_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return abi::kNcclLogTrace;
    case LogLevel::kInfo:
    case LogLevel::kNotice:
    case LogLevel::kOff:
      return abi::kNcclLogInfo;
    case LogLevel::kWarning:
    case LogLevel::kError:
      return abi::kNcclLogWarn;
  }
  return abi::kNcclLogInfo;
}

void to_host(LogLevel level, std::string_view text, void*) {
  host_logger.load()(host_level(level), kNcclNetSubsystem, "tcpx-soft", 0, "%.*s", static_cast<int>(text.size()), text.data());
}

// Loaded as a library, the plugin logs through the logger of its loader.
int init_with_logger(abi::NcclLogger logger) {
  if (logger != nullptr && host_logger.exchange(logger) == nullptr) set_log_sink(&to_host, nullptr);
#ifdef TCPX_EXPORTS_DEVMEM
  if (!environment_is_set(Variable::kNetwork)) (void)environment_set(Variable::kNetwork, "devmem");
#endif
  // Who loads this file tells handles in clear, and ends with certificates have no other keys than those that handles give.
  const auto security = SecuritySettings::from_environment();
  if (security.is_ok() && security->protection == Protection::kEncrypt && security->credential == Credential::kCertificate) {
    log(LogLevel::kError, "tcpx-soft: UCCL_TCPX_SECURITY=encrypt needs a secret here, not a certificate: set ",
        name_of_variables(Credential::kSecret));
    return abi::kNcclInternalError;
  }
  return soft::net_table().init(logger);
}

abi::NetTable_v7 exported_table() {
  abi::NetTable_v7 table = soft::net_table();
  table.init = init_with_logger;
  return table;
}

// What a receive of CUDA memory holds. Receives of host memory hold more, and NCCL is told one size for both.
constexpr size_t kMostBytes = size_t{kMaxFragments} * kPageBytes;

int properties_since_9(int dev, abi::NetProperties_v9* properties) {
  abi::NetProperties_v7 known{};
  const int result = soft::net_table().get_properties(dev, properties != nullptr ? &known : nullptr);
  if (result != abi::kNcclSuccess) return result;
  *properties = {.name = known.name,
                 .pci_path = known.pci_path,
                 .guid = known.guid,
                 .ptr_support = known.ptr_support,
                 .reg_is_global = 0,
                 .force_flush = 0,
                 .speed = known.speed,
                 .port = known.port,
                 .latency = known.latency,
                 .max_comms = known.max_comms,
                 .max_recvs = known.max_recvs,
                 .net_device_type = known.net_device_type,
                 .net_device_version = known.net_device_version,
                 .v_device = {.ndevs = 1, .devs = {dev}},
                 .max_p2p_bytes = kMostBytes,
                 .max_coll_bytes = kMostBytes};
  return result;
}

int properties_since_11(int dev, abi::NetProperties_v11* properties) {
  const int result = properties_since_9(dev, properties != nullptr ? &properties->as_in_v9 : nullptr);
  if (result == abi::kNcclSuccess) properties->max_multi_request_size = 1;
  return result;
}

// No version of the ABI lets connect wait. Version 7 waits nevertheless, for consumers that call it once. NCCL calls again
// until it gets a comm.
int connect_in_steps(int dev, void* handle, void** send_comm, abi::NetDeviceHandle** send_dev_comm) {
  if (handle != nullptr) {
    Handle marked;
    std::memcpy(marked.bytes.data(), handle, kHandleBytes);
    soft::answer_in_steps(marked);
    std::memcpy(handle, marked.bytes.data(), kHandleBytes);
  }
  return soft::net_table().connect(dev, handle, send_comm, send_dev_comm);
}

bool fits(const char* operation, size_t size) {
  if (size <= INT_MAX) return true;
  log(LogLevel::kWarning, "tcpx-soft: ", operation, ": ", size, " bytes, a request has at most ", INT_MAX);
  return false;
}

int send(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  if (!fits("isend", size)) return abi::kNcclInternalError;
  return soft::net_table().isend(comm, data, static_cast<int>(size), tag, mhandle, request);
}

// Completion is never optional here: LL and LL128, which ask for that, cannot be used with a device of type UNPACK.
int receive(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request) {
  const bool is_one = n == 1 && sizes != nullptr;  // all else the table refuses
  if (is_one && !fits("irecv", *sizes)) return abi::kNcclInternalError;
  int size = is_one ? static_cast<int>(*sizes) : 0;
  return soft::net_table().irecv(comm, n, data, is_one ? &size : nullptr, tags, mhandles, request);
}

/// The table of version 9 or later. It merges no devices, ignores traffic classes, profilers and attributes, and has the same
/// context for every communicator.
template <class Table>
Table exported_since_9() {
  constexpr int kVersion = decltype(Table::calls)::kVersion;
  const abi::NetTable_v7& known = soft::net_table();
  Table table{};
  auto& calls = table.calls;
  calls.name = known.name;
  calls.devices = known.devices;
  calls.accept = known.accept;
  calls.reg_mr = soft::reg_mr;
  calls.dereg_mr = known.dereg_mr;
  calls.iflush = known.iflush;
  calls.test = known.test;
  calls.close_send = known.close_send;
  calls.close_recv = known.close_recv;
  calls.close_listen = known.close_listen;
  calls.get_device_mr = known.get_device_mr;
  calls.irecv_consumed = known.irecv_consumed;
  if constexpr (kVersion < 11) {
    calls.get_properties = properties_since_9;
    calls.listen = known.listen;
  } else {
    calls.init = [](void** context, uint64_t, abi::NetCommConfig*, abi::NcclLogger logger, abi::NcclProfiler) {
      if (context != nullptr) *context = nullptr;
      return init_with_logger(logger);
    };
    calls.get_properties = properties_since_11;
    calls.listen = [](void*, int dev, void* handle, void** comm) { return soft::net_table().listen(dev, handle, comm); };
    calls.connect = [](void*, int dev, void* handle, void** comm, abi::NetDeviceHandle** device_handle) {
      return connect_in_steps(dev, handle, comm, device_handle);
    };
    table.finalize = [](void*) -> int { return abi::kNcclSuccess; };
  }
  if constexpr (kVersion == 10) {
    calls.init = [](abi::NcclLogger logger, abi::NcclProfiler) { return init_with_logger(logger); };
    calls.connect = [](int dev, abi::NetCommConfig*, void* handle, void** comm, abi::NetDeviceHandle** device_handle) {
      return connect_in_steps(dev, handle, comm, device_handle);
    };
  }
  if constexpr (kVersion == 9) {
    calls.init = init_with_logger;
    calls.connect = connect_in_steps;
    calls.isend = send;
    calls.irecv = receive;
  } else {
    calls.isend = [](void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
      return send(comm, data, size, tag, mhandle, request);
    };
    calls.irecv = [](void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**, void** request) {
      return receive(comm, n, data, sizes, tags, mhandles, request);
    };
  }
  return table;
}

}  // namespace

#define TCPX_EXPORT extern "C" __attribute__((visibility("default")))
TCPX_EXPORT const abi::NetTable_v7 ncclNetPlugin_v7 = exported_table();
TCPX_EXPORT const abi::NetTable_v9 ncclNetPlugin_v9 = exported_since_9<abi::NetTable_v9>();
TCPX_EXPORT const abi::NetTable_v10 ncclNetPlugin_v10 = exported_since_9<abi::NetTable_v10>();
TCPX_EXPORT const abi::NetTable_v11 ncclNetPlugin_v11 = exported_since_9<abi::NetTable_v11>();
