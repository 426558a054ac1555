// NCCL net plugin ABI, versions 9, 10 and 11. Mirrored from NVIDIA/nccl: src/include/plugin/net/net_v9.h, net_v10.h and
// net_v11.h, release 2.30. They were introduced in 2.24, 2.26 and 2.28, with the same layouts. Since version 9 the size of a
// request is a size_t, and the properties name the largest. Version 10 adds a traffic class and a profiler's handles, version
// 11 a context.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net/abi/nccl_net_common.h"

namespace tcpx::abi {

inline constexpr char kNetPluginV9Symbol[] = "ncclNetPlugin_v9";
inline constexpr char kNetPluginV10Symbol[] = "ncclNetPlugin_v10";
inline constexpr char kNetPluginV11Symbol[] = "ncclNetPlugin_v11";

/// ncclNetVDeviceProps_v9_t to v11: the devices that a device is made of. Of one that is not virtual, itself.
struct NetVDevice {
  int ndevs;
  int devs[4];
};
static_assert(sizeof(NetVDevice) == 20);

/// The same in version 10.
struct NetProperties_v9 {
  char* name;
  char* pci_path;  ///< may be NULL
  uint64_t guid;
  int ptr_support;  ///< mask of kNcclPtr...
  int reg_is_global;
  int force_flush;
  int speed;  ///< Mbit/s
  int port;
  float latency;  ///< us
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  NetVDevice v_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};
static_assert(sizeof(NetProperties_v9) == 104 && offsetof(NetProperties_v9, speed) == 36 &&
              offsetof(NetProperties_v9, net_device_version) == 60 && offsetof(NetProperties_v9, v_device) == 64 &&
              offsetof(NetProperties_v9, max_p2p_bytes) == 88);

struct NetProperties_v11 {
  NetProperties_v9 as_in_v9;
  int max_multi_request_size;
};
static_assert(sizeof(NetProperties_v11) == 112 && offsetof(NetProperties_v11, max_multi_request_size) == 104);

/// ncclNetCommConfig_v10_t, ncclNetCommConfig_v11_t.
struct NetCommConfig {
  int traffic_class;  ///< -1: none
};

/// ncclProfilerCallback_t.
using NcclProfiler = int (*)(void** event, int type, void* phandle, int64_t plugin, void* data);

struct NetCalls_v9 : NetCalls_v7 {
  using Send = int(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
  /// `*request` may be 1 on entry, NCCL_NET_OPTIONAL_RECV_COMPLETION: the caller sees in the data itself that it has arrived
  /// (LL, LL128), so the plugin may report the request as done before. It must still store a request.
  using Receive = int(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request);
};

struct NetCalls_v10 : NetCalls_v9 {
  using Init = int(NcclLogger logger, NcclProfiler profiler);
  using Connect = int(int dev, NetCommConfig* config, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
  using Send = int(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle, void** request);
  using Receive = int(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** phandles,
                      void** request);
};

/// NCCL calls init once for each of its communicators, and finalize with what that has put into `*context`.
struct NetCalls_v11 : NetCalls_v10 {
  using Init = int(void** context, uint64_t comm_id, NetCommConfig* config, NcclLogger logger, NcclProfiler profiler);
  using Listen = int(void* context, int dev, void* handle, void** listen_comm);
  using Connect = int(void* context, int dev, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
};

struct NetTable_v9 {
  NetTable<9, NetProperties_v9, size_t, NetCalls_v9> calls;
  int (*make_v_device)(int* dev, NetVDevice* device);  ///< may be NULL
};
static_assert(sizeof(NetTable_v9) == 20 * 8 && offsetof(NetTable_v9, make_v_device) == 152);

struct NetTable_v10 {
  NetTable<10, NetProperties_v9, size_t, NetCalls_v10> calls;
  int (*make_v_device)(int* dev, NetVDevice* device);  ///< may be NULL
};
static_assert(sizeof(NetTable_v10) == 20 * 8 && offsetof(NetTable_v10, make_v_device) == 152);

struct NetTable_v11 {
  NetTable<11, NetProperties_v11, size_t, NetCalls_v11> calls;
  int (*make_v_device)(int* dev, NetVDevice* device);  ///< may be NULL
  int (*finalize)(void* context);
  int (*set_net_attr)(void* context, void* attributes);  ///< may be NULL
};
static_assert(sizeof(NetTable_v11) == 22 * 8 && offsetof(NetTable_v11, finalize) == 160);

}  // namespace tcpx::abi
