// The parts that all versions of NCCL's net-plugin ABI share. Mirrored from NVIDIA/nccl: src/include/plugin/nccl_net.h and
// nccl_common.h, release 2.28; names are ours, layouts theirs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx::abi {

/// ncclResult_t, a C enum passed as a 32-bit int.
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

enum NcclDebugLevel : int {
  kNcclLogNone = 0,
  kNcclLogVersion = 1,
  kNcclLogWarn = 2,
  kNcclLogInfo = 3,
  kNcclLogAbort = 4,
  kNcclLogTrace = 5
};

/// ncclDebugLogger_t: `flags` is a subsystem mask by value; called from any thread of the plugin.
using NcclLogger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

inline constexpr int kNcclPtrHost = 1;
inline constexpr int kNcclPtrCuda = 2;
inline constexpr int kNcclPtrDmaBuf = 4;

inline constexpr int kNcclNetDeviceHost = 0;
inline constexpr int kNcclNetDeviceUnpack = 1;
inline constexpr int kNcclNetDeviceUnpackVersion = 7;

/// ncclNetDeviceHandle_v7_t, unchanged in v8: the plugin fills it in accept through the caller's memory.
struct NetDeviceHandle {
  int32_t net_device_type;
  int32_t net_device_version;
  void* handle;  ///< device address of UnpackNetDeviceHandle (tcpx_request.h)
  size_t size;
  int32_t needs_proxy_progress;
};
static_assert(sizeof(NetDeviceHandle) == 32 && offsetof(NetDeviceHandle, handle) == 8 && offsetof(NetDeviceHandle, size) == 16 &&
              offsetof(NetDeviceHandle, needs_proxy_progress) == 24);

}  // namespace tcpx::abi
