// The seam between code that moves bytes and the kind of memory they lie in.
//
// The software plugin, the host unpacker and the tools touch memory only through this interface and never name CUDA. On a machine
// with a GPU, `device` memory is GPU memory; without one, host memory stands in for it and the same code runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/gpu_order.h"
#include "base/segment_copier.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// Owner of an allocation made by MemoryOps. Freed on destruction; the MemoryOps must outlive it.
class MemoryBuffer {
 public:
  using Free = std::function<void()>;
  MemoryBuffer() = default;
  MemoryBuffer(void* host, void* device, size_t bytes, Free free)
      : host_(host), device_(device), bytes_(bytes), free_(std::move(free)) {}
  MemoryBuffer(MemoryBuffer&& other) noexcept { swap(other); }
  MemoryBuffer& operator=(MemoryBuffer&& other) noexcept {
    MemoryBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~MemoryBuffer() {
    if (free_) free_();
  }

  /// Host address; nullptr when the host cannot read or write this memory.
  std::byte* host() const { return static_cast<std::byte*>(host_); }
  /// Device address, for kernels; equal to host() when host memory stands in for device memory.
  std::byte* device() const { return static_cast<std::byte*>(device_); }
  size_t size() const { return bytes_; }
  explicit operator bool() const { return device_ != nullptr; }

 private:
  void swap(MemoryBuffer& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* host_ = nullptr;
  void* device_ = nullptr;
  size_t bytes_ = 0;
  Free free_;
};

/// Runs one copy at a time while its owner does something else. It is reused without allocating. One thread at a time.
class AsyncCopy {
 public:
  /// Waits as `wait` does.
  virtual ~AsyncCopy() = default;
  /// Starts copying and returns. The addresses are as for CopyLane::copy, and host memory must be pinned. The previous copy must
  /// be done. After an error nothing is in flight.
  virtual Status start(void* dst, const void* src, size_t bytes) = 0;
  /// True when the copy is done, or none was started. After an error of the copy, memory may be in use until `wait` has returned.
  virtual Result<bool> is_done() = 0;
  /// Returns when the copy no longer touches memory, whether it succeeded or not.
  virtual void wait() = 0;
};

/// Copies between any two address spaces; those under way at a time may end in any order. Any thread may use the lane, but only one at a
/// time the same AsyncCopy. On a GPU the lane owns non-blocking streams, so it never waits for the application's kernels, nor they for it.
class CopyLane {
 public:
  virtual ~CopyLane() = default;
  /// Returns when `bytes` bytes of `src` are in `dst`. Either address may be host or device memory; ranges must not overlap.
  virtual Status copy(void* dst, const void* src, size_t bytes) = 0;
  /// Makes an AsyncCopy, which the lane must outlive. By default its `start` copies synchronously.
  virtual Result<std::unique_ptr<AsyncCopy>> make_async_copy();
};

/// The whole pages that contain a range of device memory. They are the unit of registration with a plugin, because drivers export
/// nothing smaller.
struct Pages {
  std::byte* begin = nullptr;
  size_t bytes = 0;
};
inline Pages whole_pages(void* data, size_t bytes) {
  const size_t before = reinterpret_cast<uintptr_t>(data) % kPageBytes;
  return {static_cast<std::byte*>(data) - before, (before + bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
}

/// The form in which a GPU's memory is handed to another process: a CUDA IPC handle, a file descriptor, or a fabric handle.
enum class ShareKind : uint8_t { kNone = 0, kIpc = 1, kFile = 2, kFabric = 3 };

/// Names GPU memory so that another process of this host can map it: a whole allocation, or one chunk of a mapping. Sent as plain
/// bytes.
struct MemoryShare {
  ShareKind kind = ShareKind::kNone;
  uint8_t reserved[7] = {};
  uint64_t base = 0;                      ///< address in the process that shares it
  uint64_t bytes = 0;                     ///< length, starting at `base`
  uint64_t identity = 0;                  ///< of the allocation; a later allocation at the same address has another identity
  std::array<std::byte, 64> handle = {};  ///< CUDA's handle, for kIpc and kFabric; for kFile a descriptor is sent along
};
static_assert(std::is_trivially_copyable_v<MemoryShare> && sizeof(MemoryShare) == 96);

/// The connection between two GPUs of a host.
enum class GpuLink : uint8_t { kUnknown, kSame, kNvlink, kPcie, kNone };

/// While it lives, a device is current on the thread that entered it; then it is as before.
class EnteredDevice {
 public:
  EnteredDevice() = default;  ///< it was current, and stays so
  explicit EnteredDevice(std::function<void()> leave) : leave_(std::move(leave)) {}
  EnteredDevice(EnteredDevice&& other) noexcept : leave_(std::exchange(other.leave_, nullptr)) {}
  EnteredDevice& operator=(EnteredDevice&&) = delete;
  ~EnteredDevice() {
    if (leave_) leave_();
  }
  /// It stays current. For a thread that is the library's own.
  void stay() { leave_ = nullptr; }

 private:
  std::function<void()> leave_;
};

/// All functions are thread-safe unless they say otherwise.
class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  /// True when device memory is that of a real GPU.
  virtual bool has_gpu() const = 0;
  /// Number of devices; 1 when host memory stands in.
  virtual int device_count() const = 0;
  /// The calling thread's current device (cudaGetDevice); 0 when host memory stands in.
  virtual Result<int> current_device() const = 0;
  /// Makes `device` current for the calling thread. kInvalidArgument when there is no such device.
  virtual Status set_current_device(int device) = 0;
  /// Makes `device` current for a scope, on any thread, and no context on another device. Fails as set_current_device does, or with kCuda.
  virtual Result<EnteredDevice> enter(int device);
  /// PCI location of the GPU, as a resolved path in sysfs (base/pci_device.h). nullopt when host memory stands in, when the
  /// location is unknown, and for a device that does not exist.
  virtual std::optional<std::string> pci_path([[maybe_unused]] int device) const { return std::nullopt; }

  /// The connection from `device` to the GPU with the PCI bus id `there`, which need not be visible to this process. kUnknown
  /// when host memory stands in.
  virtual GpuLink link_to([[maybe_unused]] int device, [[maybe_unused]] const std::string& there) { return GpuLink::kUnknown; }

  /// Page-aligned, zeroed memory that the host and kernels on any device can access; on a GPU, mapped portable pinned memory.
  virtual Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) = 0;
  /// 4096-aligned, zeroed device memory. host() is nullptr when it is that of a real GPU.
  virtual Result<MemoryBuffer> allocate_device(int device, size_t bytes) = 0;

  /// True when the host may dereference `address`.
  virtual bool host_readable(const void* address) const = 0;
  /// True when `address` may be registered as device memory: GPU memory on a machine with a GPU, any memory when host memory
  /// stands in.
  virtual bool is_device_memory(const void* address) const = 0;
  /// The GPU whose memory is at `address`; nullopt for host memory, even when it stands in for a GPU's.
  virtual std::optional<int> gpu_of([[maybe_unused]] const void* address) const { return std::nullopt; }
  /// True when kernels and copies of `device` may access the GPU memory at `address`, whichever GPU it belongs to. Where needed,
  /// this enables peer access from `device` to that GPU, permanently. Like an allocation, that may wait for all of a GPU's work.
  virtual bool reaches([[maybe_unused]] int device, [[maybe_unused]] const void* address) { return true; }
  /// Asks the driver whether these pages of the device's memory can be exported to a NIC as a dma-buf. Ok when there is no driver
  /// to ask.
  /// @return kUnsupported with the driver's code, which is logged
  virtual Status check_export([[maybe_unused]] int device, [[maybe_unused]] const Pages& pages) { return Status::ok(); }
  /// Exports pages of the device's memory as a dma-buf. They must not be freed before all that it is bound to have let go of it.
  /// @return kUnsupported with the reason; where host memory stands in, all but that of allocate_device
  virtual Result<UniqueFd> export_dmabuf(int device, const Pages& pages);
  /// Bytes from `address` to the end of its allocation or mapping; nullopt when unknown.
  virtual std::optional<uint64_t> extent(const void* address) const = 0;

  /// Shares the allocation of GPU memory that contains `address` so that another process of this host can map it; of a mapping
  /// made of several chunks, shares one chunk. This process still owns the memory. After it is freed, what others have mapped
  /// stays readable until they unmap it.
  /// @param fd filled for kFile, otherwise emptied
  /// @return kUnsupported with the reason: host memory, a memory pool, memory allocated without permission to leave the process,
  /// MIG,
  ///         no support in the driver; kCuda
  virtual Result<MemoryShare> share(const void* address, UniqueFd& fd);
  /// Maps memory that another process has shared, for kernels and copies of `device`. Every value of `share` is checked, whoever
  /// made it. The process that made the share cannot map it; it uses the address itself.
  /// @param fd for kFile: the descriptor that came with the share, which the caller keeps; otherwise -1
  /// @return a buffer whose device() is the mapping of `share.base`. Its destruction unmaps the memory; the device's work on it
  /// must
  ///         be over by then. The MemoryOps must outlive it.
  ///         kInvalidArgument: no such device, or the share contradicts itself or the driver; kUnsupported with the reason:
  /// `device`
  ///         cannot reach that GPU, or no support in the driver; kCuda: the driver refuses
  virtual Result<MemoryBuffer> map_shared(int device, const MemoryShare& share, int fd);

  /// Lets kernels and copies of `device` access existing host memory: whole pages, none of which may be mapped this way already.
  /// @return a buffer that names the pages and does not free them. Its destruction ends the device's access; it must be destroyed
  ///         before the pages are freed and after the device's work on them. The MemoryOps must outlive it.
  ///         kInvalidArgument: no such device; kCuda, kUnsupported: the driver refuses
  virtual Result<MemoryBuffer> map_host(int device, void* host, size_t bytes);

  virtual Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) = 0;
  /// Makes a copier for device memory and mapped host memory. The MemoryOps must outlive it. Without a GPU the copier copies in
  /// `submit`.
  virtual Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int device);
  /// Makes a GpuOrder. Without a GPU it refuses every call.
  virtual std::unique_ptr<GpuOrder> make_gpu_order(int device);
};

/// Makes MemoryOps in which host memory stands in for device memory.
std::unique_ptr<MemoryOps> make_host_memory_ops();

/// Makes the best MemoryOps for this machine: CUDA when this build has it and a GPU answers, otherwise host memory standing in.
/// The device layer defines this function, so linking that layer decides for all code that only knows this header.
std::unique_ptr<MemoryOps> make_machine_memory_ops();

}  // namespace tcpx
