#include "base/mappings.h"

#include <linux/ioctl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tcpx {
namespace {

// Source: Linux 6.11, include/uapi/linux/fs.h, struct procmap_query and PROCMAP_QUERY. Headers of older kernels do not have it.
struct ProcmapQuery {
  uint64_t size, flags, address;
  uint64_t begin, end, access, page_bytes, offset, inode;
  uint32_t device_major, device_minor, name_bytes, build_id_bytes;
  uint64_t name, build_id;
};
static_assert(sizeof(ProcmapQuery) == 104 && offsetof(ProcmapQuery, begin) == 24 && offsetof(ProcmapQuery, access) == 40);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kQueryReadable = 1, kQueryWritable = 2;

struct Mapping {
  uintptr_t begin = 0, end = 0;
  bool readable = false, writable = false;
};

/// The mappings of the process. A mapping that does not change meanwhile is always found.
class Mappings {
 public:
  bool is_open() const { return file_ != nullptr; }

  /// The mapping of an address, which is beyond those of earlier calls. @return nullopt: nothing is mapped there
  std::optional<Mapping> at(uintptr_t address) {
    ProcmapQuery query{.size = sizeof query, .address = address};
    if (::ioctl(::fileno(file_.get()), kProcmapQuery, &query) == 0) {
      const bool readable = (query.access & kQueryReadable) != 0;
      return Mapping{query.begin, query.end, readable, readable && (query.access & kQueryWritable) != 0};
    }
    if (errno == ENOENT) return std::nullopt;
    // An older kernel, or one that does not answer this process: its text says it, too.
    auto mapping = next();
    while (mapping && mapping->end <= address) mapping = next();
    return mapping && mapping->begin <= address ? mapping : std::nullopt;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // In the order of addresses. A mapping may appear twice when another thread merges it with a neighbour.
  std::optional<Mapping> next() {
    // Source: proc(5), /proc/pid/maps: "begin-end rwxp offset device inode path", the numbers in hexadecimal.
    char line[512];
    while (std::fgets(line, sizeof line, file_.get()) != nullptr) {
      // When a line does not fit, the rest belongs to its path and could look like another line.
      if (std::strchr(line, '\n') == nullptr) skip_line();
      char* text = line;
      Mapping found;
      found.begin = std::strtoull(text, &text, 16);
      if (*text != '-') continue;
      found.end = std::strtoull(text + 1, &text, 16);
      if (*text != ' ') continue;
      found.readable = text[1] == 'r';
      found.writable = found.readable && text[2] == 'w';
      return found;
    }
    return std::nullopt;
  }
  void skip_line() {
    for (int c = std::getc(file_.get()); c != '\n' && c != EOF;) c = std::getc(file_.get());
  }

  const std::unique_ptr<std::FILE, Close> file_{std::fopen("/proc/self/maps", "re")};
};

}  // namespace

std::optional<HostAccess> host_access(const void* data, size_t bytes) {
  Mappings mappings;
  if (!mappings.is_open()) return std::nullopt;
  auto wanted = reinterpret_cast<uintptr_t>(data);
  size_t left = bytes;
  HostAccess access = HostAccess::kReadWrite;
  while (left != 0) {
    const auto mapping = mappings.at(wanted);
    if (!mapping || !mapping->readable) return HostAccess::kNone;
    if (!mapping->writable) access = HostAccess::kRead;
    const uintptr_t here = mapping->end - wanted;
    if (here >= left) break;
    wanted += here;
    left -= here;
  }
  return access;
}

std::optional<uint64_t> mapped_bytes(const void* address) {
  Mappings mappings;
  if (!mappings.is_open()) return std::nullopt;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const auto mapping = mappings.at(wanted);
  return mapping ? std::optional<uint64_t>(mapping->end - wanted) : std::nullopt;
}

}  // namespace tcpx
