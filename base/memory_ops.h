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

  /// Host address, nullptr when the host cannot read or write this memory.
  std::byte* host() const { return static_cast<std::byte*>(host_); }
  /// Device address, for kernels; equal to host() where host memory stands in.
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

/// One copy at a time that runs while its owner does something else; used over and over without allocating. One thread at a time.
class AsyncCopy {
 public:
  /// Waits as `wait` does.
  virtual ~AsyncCopy() = default;
  /// Starts copying and returns; addresses as for CopyLane::copy, host memory pinned. The previous copy must be done. After an
  /// error nothing is in flight.
  virtual Status start(void* dst, const void* src, size_t bytes) = 0;
  /// True when the copy is done, or none was started. An error is that of the copy; memory may be in use until `wait` has
  /// returned.
  virtual Result<bool> is_done() = 0;
  /// Returns when the copy no longer touches memory, whether it succeeded or not.
  virtual void wait() = 0;
};

/// Copies between any two address spaces, in the order they were started. Any thread, each AsyncCopy on its own. On a GPU it owns
/// a non-blocking stream, so that it never waits for, or is waited for by, the application's kernels.
class CopyLane {
 public:
  virtual ~CopyLane() = default;
  /// Returns when `bytes` bytes of `src` are in `dst`. Either address may be host or device memory; ranges must not overlap.
  virtual Status copy(void* dst, const void* src, size_t bytes) = 0;
  /// Room for one copy in flight. The lane must outlive it. By default `start` copies synchronously.
  virtual Result<std::unique_ptr<AsyncCopy>> make_async_copy();
};

/// The whole pages that a range of device memory lies in, the unit of registration with a plugin: drivers export nothing smaller.
struct Pages {
  std::byte* begin = nullptr;
  size_t bytes = 0;
};
inline Pages whole_pages(void* data, size_t bytes) {
  const size_t before = reinterpret_cast<uintptr_t>(data) % kPageBytes;
  return {static_cast<std::byte*>(data) - before, (before + bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
}

/// The means by which memory of a GPU is handed to another process.
enum class ShareKind : uint8_t { kNone = 0, kIpc = 1, kFile = 2, kFabric = 3 };

/// A name of GPU memory by which another process of this host maps it: of a whole allocation, or one chunk of a mapping. Plain
/// bytes, as they travel.
struct MemoryShare {
  ShareKind kind = ShareKind::kNone;
  uint8_t reserved[7] = {};
  uint64_t base = 0;                      ///< address in the process that shares it
  uint64_t bytes = 0;                     ///< from base
  uint64_t identity = 0;                  ///< of the allocation: another one at the same address has another
  std::array<std::byte, 64> handle = {};  ///< of CUDA, for kIpc and kFabric; for kFile a descriptor goes beside it
};
static_assert(std::is_trivially_copyable_v<MemoryShare> && sizeof(MemoryShare) == 96);

/// The way between two GPUs of a host.
enum class GpuLink : uint8_t { kUnknown, kSame, kNvlink, kPcie, kNone };

/// All functions are thread-safe unless they say otherwise.
class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  /// True when device memory is that of a real GPU.
  virtual bool has_gpu() const = 0;
  /// Number of devices; 1 where host memory stands in.
  virtual int device_count() const = 0;
  /// The calling thread's current device (cudaGetDevice); 0 where host memory stands in.
  virtual Result<int> current_device() const = 0;
  /// Makes `device` current for the calling thread. kInvalidArgument when there is no such device.
  virtual Status set_current_device(int device) = 0;
  /// PCI location of the GPU, as a resolved path of sysfs (base/pci_device.h). nullopt where host memory stands in, when the
  /// system does not tell, and for a device that does not exist.
  virtual std::optional<std::string> pci_path([[maybe_unused]] int device) const { return std::nullopt; }

  /// The way to the GPU with the PCI bus id `there`, which this process may not see. kUnknown where host memory stands in.
  virtual GpuLink link_to([[maybe_unused]] int device, [[maybe_unused]] const std::string& there) { return GpuLink::kUnknown; }

  /// Page-aligned, zeroed memory that the host and kernels on any device can access; on a GPU, mapped portable pinned memory.
  virtual Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) = 0;
  /// 4096-aligned, zeroed device memory. host() is nullptr when it is that of a real GPU.
  virtual Result<MemoryBuffer> allocate_device(int device, size_t bytes) = 0;

  /// True when the host may dereference `address`.
  virtual bool host_readable(const void* address) const = 0;
  /// True when `address` may be registered as device memory: GPU memory on a GPU machine, anything where host memory stands in.
  virtual bool is_device_memory(const void* address) const = 0;
  /// The GPU whose memory lies at `address`; nullopt for host memory, also where that stands in for a GPU's.
  virtual std::optional<int> gpu_of([[maybe_unused]] const void* address) const { return std::nullopt; }
  /// True when kernels and copies of `device` may touch the GPU memory at `address`, whose ever it is. Makes the owner a peer of
  /// `device` where that is what it takes, for good; like an allocation, that may wait for all of a GPU's work.
  virtual bool reaches([[maybe_unused]] int device, [[maybe_unused]] const void* address) { return true; }
  /// Asks the driver whether these pages of the device's memory can be exported to a NIC as a dma-buf. Ok where there is no
  /// driver to ask.
  /// @return kUnsupported with the driver's code, which is logged
  virtual Status check_export([[maybe_unused]] int device, [[maybe_unused]] const Pages& pages) { return Status::ok(); }
  /// Bytes from `address` to the end of the allocation or mapping it lies in; nullopt when unknown.
  virtual std::optional<uint64_t> extent(const void* address) const = 0;

  /// Shares the allocation of GPU memory that `address` lies in, or the chunk where a mapping is made of several, so that another
  /// process of this host can map it. It stays this process' to free: what others have mapped stays readable until they unmap it.
  /// @param fd filled for kFile, else emptied
  /// @return kUnsupported with the reason: host memory, a memory pool, memory made without the right to leave the process, MIG, a
  ///         driver that lacks it; kCuda
  virtual Result<MemoryShare> share(const void* address, UniqueFd& fd);
  /// Maps what another process has shared, for kernels and copies of `device`; every value of `share` is checked, whoever made it.
  /// The process that made it cannot map it: there the address itself serves.
  /// @param fd for kFile, the descriptor that came with the share, which stays the caller's; else -1
  /// @return a buffer whose device() is where `share.base` lies and which unmaps when it goes: before that, the device's work on it
  ///         has to be over. The MemoryOps must outlive it.
  ///         kInvalidArgument: no such device, or the share contradicts itself or what the driver finds; kUnsupported with the
  ///         reason: `device` cannot reach that GPU, a driver that lacks it; kCuda: the driver refuses
  virtual Result<MemoryBuffer> map_shared(int device, const MemoryShare& share, int fd);

  /// Lets kernels and copies of `device` get at host memory that is there: whole pages, of which none may be so mapped already.
  /// @return a buffer that names them and frees nothing: when it goes, which must be before they do and when the device's work on
  ///         them is over, the device gets at them no more. The MemoryOps must outlive it. kInvalidArgument: no such device;
  ///         kCuda, kUnsupported: the driver refuses
  virtual Result<MemoryBuffer> map_host(int device, void* host, size_t bytes);

  virtual Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) = 0;
  /// Makes a copier for device memory and mapped host memory. The MemoryOps must outlive it. Without a GPU: one that copies in
  /// `submit`.
  virtual Result<std::unique_ptr<SegmentCopier>> make_segment_copier(int device);
  /// Without a GPU: one that refuses everything.
  virtual std::unique_ptr<GpuOrder> make_gpu_order(int device);
};

/// Host memory standing in for device memory.
std::unique_ptr<MemoryOps> make_host_memory_ops();

/// The best that this machine offers: CUDA when this build has it and a GPU answers, else host memory standing in. Defined by
/// the device layer, so linking that layer decides for all code that only knows this header.
std::unique_ptr<MemoryOps> make_machine_memory_ops();

}  // namespace tcpx
