// NCCL net plugin ABI, version 8. Mirrored from NVIDIA/nccl: src/include/plugin/net/net_v8.h, release 2.28. Against version 7 the
// properties gained `reg_is_global` after `ptr_support`, and reg_mr takes a size_t; every other call is the same.
#pragma once

#include <cstdint>

#include "net/abi/nccl_net_common.h"

namespace tcpx::abi {

inline constexpr char kNetPluginV8Symbol[] = "ncclNetPlugin_v8";

struct NetProperties_v8 {
  char* name;
  char* pci_path;  ///< may be NULL
  uint64_t guid;
  int ptr_support;  ///< mask of kNcclPtr...
  int reg_is_global;
  int speed;  ///< Mbit/s
  int port;
  float latency;  ///< us
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetProperties_v8) == 64 && offsetof(NetProperties_v8, speed) == 32 &&
              offsetof(NetProperties_v8, net_device_version) == 56);

using NetTable_v8 = NetTable<8, NetProperties_v8, size_t>;
static_assert(sizeof(NetTable_v8) == 19 * 8 && offsetof(NetTable_v8, reg_mr) == 56 && offsetof(NetTable_v8, test) == 104 &&
              offsetof(NetTable_v8, irecv_consumed) == 144);

}  // namespace tcpx::abi
