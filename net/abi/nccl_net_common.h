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

/// ncclNetDeviceHandle_v7_t, unchanged up to v11: the plugin fills it in accept through the caller's memory.
struct NetDeviceHandle {
  int32_t net_device_type;
  int32_t net_device_version;
  void* handle;  ///< device address of UnpackNetDeviceHandle (tcpx_request.h)
  size_t size;
  int32_t needs_proxy_progress;
};
static_assert(sizeof(NetDeviceHandle) == 32 && offsetof(NetDeviceHandle, handle) == 8 && offsetof(NetDeviceHandle, size) == 16 &&
              offsetof(NetDeviceHandle, needs_proxy_progress) == 24);

/// The calls of a table that later versions changed, as they are in 7 and 8.
struct NetCalls_v7 {
  using Init = int(NcclLogger logger);
  using Listen = int(int dev, void* handle, void** listen_comm);
  using Connect = int(int dev, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
  using Send = int(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  using Receive = int(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
};

/// ncclNet_v7_t and ncclNet_v8_t, and the first 19 entries of later versions: the functions of a plugin. The versions differ in
/// their properties, in the size that reg_mr takes, and in `Calls`.
template <int kAbiVersion, class PropertiesOfVersion, class RegisterSize, class Calls = NetCalls_v7>
struct NetTable {
  using Properties = PropertiesOfVersion;
  using RegisterBytes = RegisterSize;
  static constexpr int kVersion = kAbiVersion;

  const char* name;
  typename Calls::Init* init;
  int (*devices)(int* count);
  int (*get_properties)(int dev, Properties* properties);
  typename Calls::Listen* listen;
  typename Calls::Connect* connect;
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_dev_comm);
  int (*reg_mr)(void* comm, void* data, RegisterBytes size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle);
  int (*dereg_mr)(void* comm, void* mhandle);
  typename Calls::Send* isend;
  typename Calls::Receive* irecv;
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecv_consumed)(void* recv_comm, int n, void* request);
};

}  // namespace tcpx::abi
