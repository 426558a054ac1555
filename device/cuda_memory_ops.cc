#include "device/cuda_memory_ops.h"

// Types only: nothing here links to libcuda, which a machine without a driver does not have.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/pci_device.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "device/cuda_handles.h"
#include "device/driver_entry.h"
#include "device/flagged_stream.h"
#include "device/gpu_links.h"
#include "device/gpu_presence.h"
#include "device/shared_gpu_memory.h"

namespace tcpx {
namespace {

constexpr size_t kAlignment = 4096;
constexpr size_t kHugePageBytes = 2u << 20;

using AddressRangeFunction = PFN_cuMemGetAddressRange_v3020;
using AttributeFunction = PFN_cuPointerGetAttribute_v4000;
using ExportRangeFunction = PFN_cuMemGetHandleForAddressRange_v11070;

/// A stream on which several threads start copies.
class CopyStream {
 public:
  CopyStream(int device, FlaggedStream stream) : device_(device), stream_(std::move(stream)) {}

  /// @return what `has_reached` says true of once the bytes are there
  Result<uint32_t> start(void* dst, const void* src, size_t bytes) {
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
    MutexLock lock(mutex_);
    TCPX_RETURN_IF_ERROR(cuda_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_.stream().get()), "start copy"));
    Result<uint32_t> mark = stream_.mark();
    if (!mark.is_ok()) stream_.drain();  // nothing would show the copy's end
    return mark;
  }

  Result<bool> has_reached(uint32_t mark) { return stream_.has_reached(mark); }
  void drain() const { stream_.drain(); }

 private:
  const int device_;
  Mutex mutex_;  // held while something is submitted
  FlaggedStream stream_;
};

class CudaAsyncCopy final : public AsyncCopy {
 public:
  explicit CudaAsyncCopy(CopyStream& stream) : stream_(stream) {}
  ~CudaAsyncCopy() override { wait(); }

  Status start(void* dst, const void* src, size_t bytes) override {
    if (bytes == 0) return Status::ok();
    TCPX_ASSIGN_OR_RETURN(mark_, stream_.start(dst, src, bytes));
    in_flight_ = true;
    return Status::ok();
  }

  Result<bool> is_done() override {
    if (!in_flight_) return true;
    Result<bool> done = stream_.has_reached(mark_);
    if (done.is_ok() && *done) in_flight_ = false;
    return done;
  }

  void wait() override {
    while (in_flight_) {
      const Result<bool> done = is_done();
      // A broken context answers at once. Its error has been reported already, or no caller asks for it.
      if (!done.is_ok()) {
        stream_.drain();
        in_flight_ = false;
      } else if (!*done) {
        std::this_thread::yield();
      }
    }
  }

 private:
  CopyStream& stream_;
  uint32_t mark_ = 0;
  bool in_flight_ = false;
};

class CudaCopyLane final : public CopyLane {
 public:
  CudaCopyLane(int device, Stream stream, MemoryOps& memory) : device_(device), stream_(std::move(stream)), memory_(memory) {}

  Status copy(void* dst, const void* src, size_t bytes) override {
    if (bytes == 0) return Status::ok();
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
    // cudaMemcpy would use the legacy default stream and wait behind kernels that may themselves wait for these bytes.
    TCPX_RETURN_IF_ERROR(cuda_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_.view().get()), "copy memory"));
    return stream_.view().synchronize();
  }

  Result<std::unique_ptr<AsyncCopy>> make_async_copy() override {
    MutexLock lock(mutex_);
    std::unique_ptr<CopyStream>& stream = streams_[copies_made_ % streams_.size()];
    if (stream == nullptr) {
      TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
      TCPX_ASSIGN_OR_RETURN(FlaggedStream flagged, FlaggedStream::create(device_, memory_));
      stream = std::make_unique<CopyStream>(device_, std::move(flagged));
    }
    auto copy = std::make_unique<CudaAsyncCopy>(*stream);
    ++copies_made_;
    return std::unique_ptr<AsyncCopy>(std::move(copy));
  }

 private:
  const int device_;
  const Stream stream_;
  MemoryOps& memory_;
  Mutex mutex_;
  // Taken in turn by the copies made here. On one, the next copy would wait for the word behind the one before it: 15.7 us for each of many
  // copies of 512 KiB from an H200, where two streams take 12.6, and copies without words 12.2.
  std::array<std::unique_ptr<CopyStream>, 2> streams_ TCPX_GUARDED_BY(mutex_);
  size_t copies_made_ TCPX_GUARDED_BY(mutex_) = 0;
};

class CudaMemoryOps final : public MemoryOps {
 public:
  explicit CudaMemoryOps(int device_count)
      : device_count_(device_count),
        address_range_(find_driver_function<AddressRangeFunction>("cuMemGetAddressRange", 3020)),
        attribute_of_(find_driver_function<AttributeFunction>("cuPointerGetAttribute", 4000)),
        export_range_(find_driver_function<ExportRangeFunction>("cuMemGetHandleForAddressRange", 11070)),
        host_(make_host_memory_ops()) {}

  bool has_gpu() const override { return true; }
  int device_count() const override { return device_count_; }

  Result<int> current_device() const override {
    int device = 0;
    TCPX_RETURN_IF_ERROR(cuda_status(cudaGetDevice(&device), "read current device"));
    return device;
  }

  Status set_current_device(int device) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    return cuda_status(cudaSetDevice(device), "select device");
  }

  Result<EnteredDevice> enter(int device) override { return enter_device(device); }

  std::optional<std::string> pci_path(int device) const override {
    char bus_id[32] = {};
    if (!check_device(device).is_ok()) return std::nullopt;
    if (!cuda_status(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device), "read PCI bus id").is_ok()) return std::nullopt;
    return find_pci_path(bus_id);
  }

  GpuLink link_to(int device, const std::string& there) override {
    const auto path = pci_path(device);
    return path ? links_.between(bus_id_of(*path), there) : GpuLink::kUnknown;
  }

  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override {
    TCPX_RETURN_IF_ERROR(check_request(device, bytes));
    if (bytes >= kHugePageBytes) return allocate_pool(device, bytes);
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    void* host = nullptr;
    TCPX_RETURN_IF_ERROR(cuda_status(cudaHostAlloc(&host, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                                     concat("allocate ", bytes, " bytes of pinned host memory")));
    MemoryBuffer buffer(host, host, bytes, [host] {
      const CaptureGuard captures;
      report_cuda_failure(cudaFreeHost(host), "free pinned host memory");
    });
    TCPX_RETURN_IF_ERROR(check_address(device, host));
    std::memset(host, 0, bytes);
    return buffer;
  }

  Result<MemoryBuffer> map_host(int device, void* host, size_t bytes) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    TCPX_RETURN_IF_ERROR(cuda_status(cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
                                     concat("pin ", bytes, " bytes of host memory")));
    MemoryBuffer buffer(host, host, bytes, [host] {
      const CaptureGuard captures;
      report_cuda_failure(cudaHostUnregister(host), "unpin host memory");
    });
    TCPX_RETURN_IF_ERROR(check_address(device, host));
    return buffer;
  }

  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    TCPX_RETURN_IF_ERROR(check_request(device, bytes));
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    Result<MemoryBuffer> buffer = allocate_aligned(device, bytes);
    if (!buffer.is_ok()) return buffer;
    TCPX_ASSIGN_OR_RETURN(const Stream stream, Stream::create());
    TCPX_RETURN_IF_ERROR(cuda_status(cudaMemsetAsync(buffer->device(), 0, bytes, stream.view().get()), "zero device memory"));
    TCPX_RETURN_IF_ERROR(stream.view().synchronize());
    return buffer;
  }

  bool host_readable(const void* address) const override {
    const std::optional<cudaPointerAttributes> attributes = attributes_of(address);
    return attributes && attributes->type != cudaMemoryTypeDevice;
  }

  bool is_device_memory(const void* address) const override { return gpu_of(address).has_value(); }

  std::optional<int> gpu_of(const void* address) const override {
    const std::optional<cudaPointerAttributes> attributes = attributes_of(address);
    if (!attributes || (attributes->type != cudaMemoryTypeDevice && attributes->type != cudaMemoryTypeManaged))
      return std::nullopt;
    return attributes->device;
  }

  bool reaches(int device, const void* address) override {
    const std::optional<cudaPointerAttributes> attributes = attributes_of(address);
    if (!attributes) return false;
    if (attributes->type == cudaMemoryTypeManaged || attributes->device == device) return true;
    const Result<DeviceGuard> guard = DeviceGuard::enter(device);
    if (!guard.is_ok() || !make_peer(device, attributes->device) || attribute_of_ == nullptr) return false;
    // Memory that is mapped by hand, or comes from a memory pool, has rights of its own: being a peer is not enough. Only memory
    // of cudaMalloc can be shared the old way. (The driver's access flags call a pool's memory readable and writable, and a
    // kernel of the peer that touches it never ends: H200, driver 580.)
    int plain = 0;
    const auto pointer = reinterpret_cast<CUdeviceptr>(address);
    return attribute_of_(&plain, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer) == CUDA_SUCCESS && plain != 0;
  }

  Result<UniqueFd> export_dmabuf(int device, const Pages& pages) override {
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    const auto begin = reinterpret_cast<CUdeviceptr>(pages.begin);
    int fd = -1;
    const CUresult result = export_range_ == nullptr
                                ? CUDA_ERROR_NOT_SUPPORTED
                                : export_range_(&fd, begin, pages.bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result == CUDA_SUCCESS) return UniqueFd(fd);
    return Status(Code::kUnsupported, "export GPU memory",
                  concat("the driver gives no dma-buf of ", pages.bytes, " bytes at ", Hex{begin}), Domain::kCuda,
                  static_cast<int32_t>(result));
  }

  Status check_export(int device, const Pages& pages) override {
    const Status refused = export_dmabuf(device, pages).status();
    if (refused.code() == Code::kUnsupported)
      log(LogLevel::kWarning, refused.to_string(), ": it will be copied on its way to and from the network");
    return refused;
  }

  std::optional<uint64_t> extent(const void* address) const override {
    const std::optional<cudaPointerAttributes> attributes = attributes_of(address);
    if (!attributes) return std::nullopt;
    // Host memory, pinned or not, is found in the process's own mappings.
    if (attributes->type == cudaMemoryTypeUnregistered || attributes->type == cudaMemoryTypeHost) return host_->extent(address);
    if (address_range_ == nullptr) return std::nullopt;
    const Result<DeviceGuard> guard = DeviceGuard::enter(attributes->device);
    if (!guard.is_ok()) return std::nullopt;
    const auto wanted = reinterpret_cast<CUdeviceptr>(address);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (address_range_(&base, &bytes, wanted) != CUDA_SUCCESS || wanted < base || wanted - base > bytes) return std::nullopt;
    return bytes - (wanted - base);
  }

  Result<MemoryShare> share(const void* address, UniqueFd& fd) override { return shared_.share(address, fd); }

  Result<MemoryBuffer> map_shared(int device, const MemoryShare& share, int fd) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    return shared_.map(device, share, fd);
  }

  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
    TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
    return std::unique_ptr<CopyLane>(std::make_unique<CudaCopyLane>(device, std::move(stream), *this));
  }

  Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int device) override {
    return make_cuda_segment_copier(device, *this);
  }

  std::unique_ptr<GpuOrder> make_gpu_order(int device) override { return make_cuda_gpu_order(device, *this); }

 private:
  Status check_device(int device) const {
    if (device >= 0 && device < device_count_) return Status::ok();
    return Status(Code::kInvalidArgument, "select device", concat("no GPU ", device, ": there are ", device_count_));
  }

  Status check_request(int device, size_t bytes) const {
    if (bytes == 0) return Status(Code::kInvalidArgument, "allocate memory", "0 bytes");
    return check_device(device);
  }

  // cudaHostAlloc takes 100 to 150 ms for 256 MiB, in which every other call into CUDA waits. To make pages present first and then pin
  // them takes 55, and nobody waits (H200, driver 580).
  Result<MemoryBuffer> allocate_pool(int device, size_t bytes) {
    TCPX_ASSIGN_OR_RETURN(MemoryBuffer pages, host_->allocate_mapped(0, bytes));
    TCPX_RETURN_IF_ERROR(make_present(pages));
    std::byte* const host = pages.host();
    TCPX_ASSIGN_OR_RETURN(MemoryBuffer pinned, map_host(device, host, bytes));
    // The second one of a pair ends first.
    const auto both = std::make_shared<std::pair<MemoryBuffer, MemoryBuffer>>(std::move(pages), std::move(pinned));
    return MemoryBuffer(host, host, bytes, [both] { (void)both; });
  }

  /// Gives the memory its pages, which a child of fork must not share: the one that writes to them first would get others.
  static Status make_present(const MemoryBuffer& memory) {
    const auto [begin, bytes] = whole_pages(memory.host(), memory.size());
    (void)::madvise(begin, bytes, MADV_DONTFORK);
    (void)::madvise(begin, bytes, MADV_HUGEPAGE);  // to get them takes a third of the time
    if (::madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return Status::ok();
    if (errno != EINVAL) return system_error(concat("allocate ", bytes, " bytes of host memory"), errno);
    for (size_t at = 0; at < bytes; at += kPageBytes)
      reinterpret_cast<volatile std::byte&>(begin[at]) = std::byte{0};  // before Linux 5.14
    return Status::ok();
  }

  /// With unified addressing, portable memory has the host's address on every device; a MemoryBuffer has room for one.
  static Status check_address(int device, void* pinned) {
    void* mapped = nullptr;
    TCPX_RETURN_IF_ERROR(cuda_status(cudaHostGetDevicePointer(&mapped, pinned, 0), "map pinned host memory"));
    if (mapped == pinned) return Status::ok();
    return Status(Code::kUnsupported, "map pinned host memory",
                  concat("device ", device, " gives it another address than the host"));
  }

  /// On the current device. cudaMalloc aligns large allocations to more than a page and small ones to less.
  static Result<MemoryBuffer> allocate_aligned(int device, size_t bytes) {
    const std::string operation = concat("allocate ", bytes, " bytes on device ", device);
    for (const size_t slack : {size_t{0}, kAlignment - 1}) {
      void* memory = nullptr;
      TCPX_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, bytes + slack), operation));
      const auto address = reinterpret_cast<uintptr_t>(memory);
      const uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment;
      MemoryBuffer buffer(nullptr, reinterpret_cast<void*>(aligned), bytes, [memory] {
        const CaptureGuard captures;
        report_cuda_failure(cudaFree(memory), "free device memory");
      });
      if (aligned - address <= slack) return buffer;
    }
    return Status(Code::kInternal, operation, "an allocation with room for alignment could not be aligned");
  }

  /// Lets `device`, which is current, reach what is allocated on `owner`. @return false: it cannot
  static bool make_peer(int device, int owner) {
    int possible = 0;
    if (!cuda_status(cudaDeviceCanAccessPeer(&possible, device, owner), "ask for peer access").is_ok() || possible == 0)
      return false;
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(owner, 0);
    if (enabled != cudaErrorPeerAccessAlreadyEnabled) return cuda_status(enabled, "enable peer access").is_ok();
    [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
    return true;
  }

  /// nullopt for nullptr, and on an error of CUDA, which is logged.
  static std::optional<cudaPointerAttributes> attributes_of(const void* address) {
    if (address == nullptr) return std::nullopt;
    cudaPointerAttributes attributes{};
    const EnteredDevice entered = enter_any_device();
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    if (!cuda_status(error, "classify address").is_ok()) return std::nullopt;
    return attributes;
  }

  const int device_count_;
  const AddressRangeFunction address_range_;  // nullptr when the driver lacks it
  const AttributeFunction attribute_of_;      // the same
  const ExportRangeFunction export_range_;    // the same
  const SharedGpuMemory shared_;
  GpuLinks links_;
  const std::unique_ptr<MemoryOps> host_;
};

}  // namespace

Result<std::unique_ptr<MemoryOps>> make_cuda_memory_ops() {
  const Result<int>& count = gpu_count();
  if (!count.is_ok()) return count.status();
  return std::unique_ptr<MemoryOps>(std::make_unique<CudaMemoryOps>(*count));
}

}  // namespace tcpx
