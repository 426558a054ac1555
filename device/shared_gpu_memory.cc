#include "device/shared_gpu_memory.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "device/cuda_handles.h"
#include "device/driver_entry.h"

namespace tcpx {
namespace {

constexpr std::string_view kShareMemory = "share GPU memory";
constexpr std::string_view kMapMemory = "map shared GPU memory";
/// More than any GPU has: what is beyond is a lie, and need not reach the driver.
constexpr uint64_t kMostSharedBytes = uint64_t{1} << 44;

// By number, because toolkits before 12.4 lack the names.
constexpr auto kFabricHandle = static_cast<CUmemAllocationHandleType>(8);  // CU_MEM_HANDLE_TYPE_FABRIC, of 64 bytes
constexpr auto kMemoryBlockId = static_cast<CUpointer_attribute>(20);      // CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryShare::handle));

Status refuse(std::string_view operation, std::string reason) {
  return Status(Code::kUnsupported, std::string(operation), std::move(reason));
}

/// The driver's refusal, logged as a warning: there are other ways for the bytes. kUnsupported where the answer would be the same
/// for other memory of these GPUs.
Status refusal(std::string_view operation, std::string_view what, cudaError_t error) {
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  const bool lasting = error == cudaErrorNotSupported || error == cudaErrorNotPermitted || error == cudaErrorInvalidDevice ||
                       error == cudaErrorPeerAccessUnsupported || error == cudaErrorTooManyPeers;
  Status status(lasting ? Code::kUnsupported : Code::kCuda, std::string(operation), concat(what, ": ", cudaGetErrorName(error)),
                Domain::kCuda, static_cast<int32_t>(error));
  log(LogLevel::kWarning, status.to_string());
  return status;
}
/// The driver has the numbers of the runtime's errors.
Status refusal(std::string_view operation, std::string_view what, CUresult result) {
  return refusal(operation, what, static_cast<cudaError_t>(result));
}

Status lacking(std::string_view operation) {
  return refuse(operation, "this driver lacks what it takes (CUDA 11.0 has it)");
}

}  // namespace

/// Owner of a reference to physical memory. A mapping holds one of its own.
class SharedGpuMemory::Chunk {
 public:
  Chunk(const ChunkFunctions& functions, CUmemGenericAllocationHandle handle) : functions_(functions), handle_(handle) {}
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  ~Chunk() { report_cuda_failure(static_cast<cudaError_t>(functions_.release(handle_)), "release shared GPU memory"); }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  const ChunkFunctions& functions_;
  const CUmemGenericAllocationHandle handle_;
};

SharedGpuMemory::SharedGpuMemory()
    : address_range_(find_driver_function<PFN_cuMemGetAddressRange_v3020>("cuMemGetAddressRange", 3020)),
      attribute_of_(find_driver_function<PFN_cuPointerGetAttribute_v4000>("cuPointerGetAttribute", 4000)),
      chunks_{
          find_driver_function<PFN_cuMemRetainAllocationHandle_v11000>("cuMemRetainAllocationHandle", 11000),
          find_driver_function<PFN_cuMemGetAllocationPropertiesFromHandle_v10020>("cuMemGetAllocationPropertiesFromHandle",
                                                                                  10020),
          find_driver_function<PFN_cuMemExportToShareableHandle_v10020>("cuMemExportToShareableHandle", 10020),
          find_driver_function<PFN_cuMemImportFromShareableHandle_v10020>("cuMemImportFromShareableHandle", 10020),
          find_driver_function<PFN_cuMemRelease_v10020>("cuMemRelease", 10020),
          find_driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020),
          find_driver_function<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020),
          find_driver_function<PFN_cuMemMap_v10020>("cuMemMap", 10020),
          find_driver_function<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020),
          find_driver_function<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020),
      } {}

template <class Value>
bool SharedGpuMemory::read_attribute(Value* value, CUpointer_attribute attribute, CUdeviceptr address) const {
  return attribute_of_(value, attribute, address) == CUDA_SUCCESS;
}

Result<MemoryShare> SharedGpuMemory::share(const void* address, UniqueFd& fd) const {
  fd.reset();
  cudaPointerAttributes attributes{};
  if (address == nullptr) return Status(Code::kInvalidArgument, std::string(kShareMemory), "no address");
  TCPX_RETURN_IF_ERROR(cuda_status(cudaPointerGetAttributes(&attributes, address), "classify address"));
  if (attributes.type == cudaMemoryTypeManaged) return refuse(kShareMemory, "managed memory moves between host and GPU");
  if (attributes.type != cudaMemoryTypeDevice) {
    return refuse(kShareMemory, "it is host memory, which another process reads where it lies");
  }
  if (address_range_ == nullptr || attribute_of_ == nullptr) return lacking(kShareMemory);
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(attributes.device));

  const auto wanted = reinterpret_cast<CUdeviceptr>(address);
  // Of a mapping made of several chunks, this names the one; the pointer attributes would name the whole reservation.
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (const CUresult result = address_range_(&base, &bytes, wanted); result != CUDA_SUCCESS) {
    return refusal(kShareMemory, "the driver knows no allocation there", result);
  }
  MemoryShare share;
  share.base = base;
  share.bytes = bytes;
  int is_plain = 0;
  if (!read_attribute(&is_plain, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base)) {
    return refuse(kShareMemory, "the driver does not tell what memory it is");
  }
  if (is_plain == 0) {
    TCPX_RETURN_IF_ERROR(share_chunk(&share, &fd));
    return share;
  }
  if (!read_attribute(&share.identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, base)) {
    return refuse(kShareMemory, "the driver does not tell which allocation it is");
  }
  share.kind = ShareKind::kIpc;
  cudaIpcMemHandle_t handle;
  if (const cudaError_t error = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)); error != cudaSuccess) {
    return refusal(kShareMemory, "the driver gives no handle for other processes (CUDA IPC; a part of a GPU may have none)",
                   error);
  }
  std::memcpy(share.handle.data(), &handle, sizeof handle);
  return share;
}

/// @param share base is known. Fills the rest of it.
Status SharedGpuMemory::share_chunk(MemoryShare* share, UniqueFd* fd) const {
  CUmemoryPool pool = nullptr;
  if (read_attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, share->base) && pool != nullptr) {
    return refuse(kShareMemory,
                  "it comes from a memory pool (cudaMallocAsync), which CUDA shares only as a whole: use cudaMalloc");
  }
  if (!chunks_.complete()) return lacking(kShareMemory);
  CUmemGenericAllocationHandle handle = 0;
  if (chunks_.retain(&handle, reinterpret_cast<void*>(share->base)) != CUDA_SUCCESS) {
    return refuse(kShareMemory, "it was made neither by cudaMalloc nor by cuMemCreate");
  }
  const Chunk chunk(chunks_, handle);
  // Of the physical memory: another chunk may be mapped at the same address later.
  if (!read_attribute(&share->identity, kMemoryBlockId, share->base)) {
    return refuse(kShareMemory, "this driver does not tell which physical memory it is");
  }
  CUmemAllocationProp properties{};
  if (const CUresult result = chunks_.properties(&properties, handle); result != CUDA_SUCCESS) {
    return refusal(kShareMemory, "the driver does not tell how the memory was made", result);
  }
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    int exported = -1;
    const CUresult result = chunks_.export_handle(&exported, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) return refusal(kShareMemory, "the driver gives no descriptor of the memory", result);
    *fd = UniqueFd(exported);
    ::fcntl(exported, F_SETFD, FD_CLOEXEC);
    share->kind = ShareKind::kFile;
    return Status::ok();
  }
  if ((properties.requestedHandleTypes & kFabricHandle) != 0) {
    const CUresult result = chunks_.export_handle(share->handle.data(), handle, kFabricHandle, 0);
    if (result != CUDA_SUCCESS) return refusal(kShareMemory, "the driver gives no fabric handle of the memory", result);
    share->kind = ShareKind::kFabric;
    return Status::ok();
  }
  return refuse(
      kShareMemory,
      "it was made by cuMemCreate without a handle type for other processes (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)");
}

Status SharedGpuMemory::check(const MemoryShare& share, bool has_fd) {
  const auto bad = [](std::string what) { return Status(Code::kInvalidArgument, std::string(kMapMemory), std::move(what)); };
  switch (share.kind) {
    case ShareKind::kIpc:
    case ShareKind::kFabric:
      break;
    case ShareKind::kFile:
      if (!has_fd) return bad("no descriptor came with it");
      break;
    default:
      return bad(concat("kind ", static_cast<int>(share.kind), " of a share is unknown"));
  }
  if (share.bytes == 0 || share.bytes > kMostSharedBytes || share.base == 0 || share.base > UINT64_MAX - share.bytes) {
    return bad(concat("no GPU has ", share.bytes, " bytes at ", Hex{share.base}));
  }
  return Status::ok();
}

Result<MemoryBuffer> SharedGpuMemory::map(int device, const MemoryShare& share, int fd) const {
  TCPX_RETURN_IF_ERROR(check(share, fd >= 0));
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  return share.kind == ShareKind::kIpc ? map_ipc(device, share) : map_chunk(device, share, fd);
}

Result<MemoryBuffer> SharedGpuMemory::map_ipc(int device, const MemoryShare& share) const {
  if (address_range_ == nullptr) return lacking(kMapMemory);
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, share.handle.data(), sizeof handle);
  void* at = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    return refusal(kMapMemory,
                   concat("GPU ", device,
                          " does not open the handle (it cannot reach that GPU, the memory is gone, or the processes have "
                          "namespaces of their own)"),
                   error);
  }
  MemoryBuffer buffer(nullptr, at, share.bytes, [device, at] {
    const Result<DeviceGuard> guard = DeviceGuard::enter(device);
    if (guard.is_ok()) report_cuda_failure(cudaIpcCloseMemHandle(at), "unmap shared GPU memory");
  });
  // The handle decides what is mapped. A kernel that reads beyond that would break this process' GPU context.
  const auto begin = reinterpret_cast<CUdeviceptr>(at);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (const CUresult result = address_range_(&base, &bytes, begin); result != CUDA_SUCCESS) {
    return refusal(kMapMemory, "the driver does not tell how much it has mapped", result);
  }
  const uint64_t mapped = begin < base || begin - base > bytes ? 0 : bytes - (begin - base);
  if (mapped < share.bytes) {
    return Status(Code::kInvalidArgument, std::string(kMapMemory),
                  concat("the handle is that of ", mapped, " bytes, the share names ", share.bytes));
  }
  return buffer;
}

Result<MemoryBuffer> SharedGpuMemory::map_chunk(int device, const MemoryShare& share, int fd) const {
  if (!chunks_.complete()) return lacking(kMapMemory);
  // The driver takes a descriptor as the pointer's value, and a fabric handle by its address; it changes neither.
  void* const shared = share.kind == ShareKind::kFile ? reinterpret_cast<void*>(static_cast<uintptr_t>(fd))
                                                      : const_cast<std::byte*>(share.handle.data());
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = chunks_.import_handle(
      &handle, shared, share.kind == ShareKind::kFile ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : kFabricHandle);
  if (result != CUDA_SUCCESS) return refusal(kMapMemory, "the driver finds no GPU memory behind what came", result);
  const Chunk chunk(chunks_, handle);

  CUdeviceptr at = 0;
  result = chunks_.reserve(&at, share.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return refusal(kMapMemory, concat("no room for ", share.bytes, " bytes"), result);
  // The driver refuses more bytes than the chunk has.
  result = chunks_.map(at, share.bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) {
    report_cuda_failure(static_cast<cudaError_t>(chunks_.free(at, share.bytes)), "give GPU addresses back");
    return refusal(kMapMemory, concat("the memory has no ", share.bytes, " bytes"), result);
  }
  MemoryBuffer buffer(nullptr, reinterpret_cast<void*>(at), share.bytes,
                      [unmap = chunks_.unmap, free = chunks_.free, at, bytes = share.bytes] {
                        const CaptureGuard captures;
                        report_cuda_failure(static_cast<cudaError_t>(unmap(at, bytes)), "unmap shared GPU memory");
                        report_cuda_failure(static_cast<cudaError_t>(free(at, bytes)), "give GPU addresses back");
                      });
  // Rights for this GPU; where the memory lies is the sharing process' affair, which may number the GPUs differently.
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = chunks_.set_access(at, share.bytes, &access, 1);
  if (result != CUDA_SUCCESS) return refusal(kMapMemory, concat("GPU ", device, " cannot reach the GPU it lies on"), result);
  return buffer;
}

}  // namespace tcpx
