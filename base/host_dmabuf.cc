#include "base/host_dmabuf.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr char kDevice[] = "/dev/udmabuf";

/// The allocations, by address.
struct Exportable {
  struct Memory {
    UniqueFd file;
    size_t bytes = 0;
  };
  Mutex mutex;
  std::map<const std::byte*, Memory> memory TCPX_GUARDED_BY(mutex);
};

Exportable& exportable() {
  static Exportable& all = *new Exportable;  // buffers may be freed at the very end of the process
  return all;
}

void forget_exportable(std::byte* begin, size_t bytes) {
  {
    const MutexLock lock(exportable().mutex);
    exportable().memory.erase(begin);
  }
  ::munmap(begin, bytes);
}

}  // namespace

bool has_udmabuf() {
  static const bool has = ::access(kDevice, R_OK | W_OK) == 0;
  return has;
}

Result<MemoryBuffer> allocate_exportable(size_t bytes) {
  const size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  UniqueFd file(::memfd_create("tcpx-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // What is exported must not shrink.
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(whole)) != 0 || ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return system_error(concat("allocate ", bytes, " bytes"), errno);
  void* const mapping = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) return system_error(concat("allocate ", bytes, " bytes"), errno);
  auto* const begin = static_cast<std::byte*>(mapping);
  const MutexLock lock(exportable().mutex);
  exportable().memory[begin] = {std::move(file), whole};
  return MemoryBuffer(begin, begin, bytes, [begin, whole] { forget_exportable(begin, whole); });
}

Result<UniqueFd> export_host_dmabuf(const Pages& pages) {
  constexpr const char* kOperation = "export host memory";
  const MutexLock lock(exportable().mutex);
  auto found = exportable().memory.upper_bound(pages.begin);
  const bool is_after = found != exportable().memory.begin();
  if (is_after) --found;
  const size_t off = is_after ? static_cast<size_t>(pages.begin - found->first) : 0;
  if (!is_after || off > found->second.bytes || pages.bytes > found->second.bytes - off)
    return Status(Code::kUnsupported, kOperation, "it was not allocated for that");
  const UniqueFd maker(::open(kDevice, O_RDWR | O_CLOEXEC));
  udmabuf_create request{};
  request.memfd = static_cast<uint32_t>(found->second.file.get());
  request.flags = UDMABUF_FLAGS_CLOEXEC;
  request.offset = off;
  request.size = pages.bytes;
  UniqueFd made(maker ? ::ioctl(maker.get(), UDMABUF_CREATE, &request) : -1);
  if (!made) return Status(Code::kUnsupported, kOperation, concat(kDevice, " gives no dma-buf of it"), Domain::kErrno, errno);
  return made;
}

}  // namespace tcpx
