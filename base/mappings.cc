#include "base/mappings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tcpx {
namespace {

struct Mapping {
  uintptr_t begin = 0, end = 0;
  bool readable = false, writable = false;
};

/// Reads the mappings of the process in the order of addresses. A mapping that does not change meanwhile is always among them. It
/// may appear twice when another thread merges it with a neighbour.
class MappingReader {
 public:
  bool is_open() const { return file_ != nullptr; }

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

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void skip_line() {
    for (int c = std::getc(file_.get()); c != '\n' && c != EOF;) c = std::getc(file_.get());
  }

  const std::unique_ptr<std::FILE, Close> file_{std::fopen("/proc/self/maps", "re")};
};

}  // namespace

std::optional<HostAccess> host_access(const void* data, size_t bytes) {
  MappingReader mappings;
  if (!mappings.is_open()) return std::nullopt;
  auto wanted = reinterpret_cast<uintptr_t>(data);
  size_t left = bytes;
  HostAccess access = HostAccess::kReadWrite;
  while (left != 0) {
    const auto mapping = mappings.next();
    if (!mapping || mapping->begin > wanted) return HostAccess::kNone;
    if (mapping->end <= wanted) continue;
    if (!mapping->readable) return HostAccess::kNone;
    if (!mapping->writable) access = HostAccess::kRead;
    const uintptr_t here = mapping->end - wanted;
    if (here >= left) break;
    wanted += here;
    left -= here;
  }
  return access;
}

std::optional<uint64_t> mapped_bytes(const void* address) {
  MappingReader mappings;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  while (mappings.is_open()) {
    const auto mapping = mappings.next();
    if (!mapping || mapping->begin > wanted) return std::nullopt;
    if (wanted < mapping->end) return mapping->end - wanted;
  }
  return std::nullopt;
}

}  // namespace tcpx
