#include <sys/mman.h>

#include <cerrno>

#include "base/guarded_copy.h"
#include "base/host_dmabuf.h"
#include "base/mappings.h"
#include "base/memory_ops.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

class HostCopyLane final : public CopyLane {
 public:
  Status copy(void* dst, const void* src, size_t bytes) override {
    const int error = guarded_copy(dst, src, bytes);
    return error == 0 ? Status::ok() : system_error("copy host memory", error);
  }
};

class ImmediateCopy final : public AsyncCopy {
 public:
  explicit ImmediateCopy(CopyLane& lane) : lane_(lane) {}
  Status start(void* dst, const void* src, size_t bytes) override { return lane_.copy(dst, src, bytes); }
  Result<bool> is_done() override { return true; }
  void wait() override {}

 private:
  CopyLane& lane_;
};

class HostMemoryOps final : public MemoryOps {
 public:
  bool has_gpu() const override { return false; }
  int device_count() const override { return 1; }
  Result<int> current_device() const override { return 0; }
  Status set_current_device(int device) override { return check_device(device); }

  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override { return allocate(device, bytes); }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    return bytes > 0 && has_udmabuf() ? allocate_exportable(bytes) : allocate(device, bytes);
  }
  Result<UniqueFd> export_dmabuf(int device, const Pages& pages) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    return export_host_dmabuf(pages);
  }

  bool host_readable(const void*) const override { return true; }
  bool is_device_memory(const void*) const override { return true; }

  std::optional<uint64_t> extent(const void* address) const override { return mapped_bytes(address); }

  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override {
    TCPX_RETURN_IF_ERROR(check_device(device));
    return std::unique_ptr<CopyLane>(std::make_unique<HostCopyLane>());
  }

 private:
  static Status check_device(int device) {
    if (device == 0) return Status::ok();
    return Status(Code::kInvalidArgument, "select device",
                  concat("no GPU here: only device 0 (host memory) exists, asked for ", device));
  }

  // mmap zeroes pages lazily, and munmap returns them at once: a large pool costs only the part that is used.
  static Result<MemoryBuffer> allocate(int device, size_t bytes) {
    TCPX_RETURN_IF_ERROR(check_device(device));
    if (bytes == 0) return Status(Code::kInvalidArgument, "allocate memory", "0 bytes");
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return system_error(concat("allocate ", bytes, " bytes"), errno);
    return MemoryBuffer(memory, memory, bytes, [memory, bytes] { ::munmap(memory, bytes); });
  }
};

}  // namespace

Result<std::unique_ptr<AsyncCopy>> CopyLane::make_async_copy() {
  return std::unique_ptr<AsyncCopy>(std::make_unique<ImmediateCopy>(*this));
}

Result<EnteredDevice> MemoryOps::enter(int device) {
  TCPX_ASSIGN_OR_RETURN(const int current, current_device());
  if (current == device) return EnteredDevice();
  TCPX_RETURN_IF_ERROR(set_current_device(device));
  return EnteredDevice([this, current] { (void)set_current_device(current); });
}

Result<UniqueFd> MemoryOps::export_dmabuf(int, const Pages&) {
  return Status(Code::kUnsupported, "export device memory", "this memory is no device's");
}

Result<MemoryShare> MemoryOps::share(const void*, UniqueFd& fd) {
  fd.reset();
  return Status(Code::kUnsupported, "share GPU memory", "no GPU memory here: another process reads host memory where it lies");
}

Result<MemoryBuffer> MemoryOps::map_host(int /*device*/, void* host, size_t bytes) {
  return MemoryBuffer(host, host, bytes, {});
}

Result<MemoryBuffer> MemoryOps::map_shared(int, const MemoryShare&, int) {
  return Status(Code::kUnsupported, "map shared GPU memory", "no GPU here that could map it");
}

std::unique_ptr<MemoryOps> make_host_memory_ops() {
  return std::make_unique<HostMemoryOps>();
}

}  // namespace tcpx
