#include "base/usable_memory.h"

#include <unistd.h>

#include <algorithm>

#include "base/cgroup.h"

namespace tcpx {

uint64_t count_usable_memory(const std::string& root) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  uint64_t least = pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : UINT64_MAX;
  for_each_control_group(root, "memory", [&least](const std::string& folder) {
    for (const char* const file : {"/memory.max", "/memory.limit_in_bytes"}) {
      if (const auto limit = number_in(text_of_file(folder + file).value_or(""))) least = std::min(least, *limit);
    }
  });
  return least;
}

uint64_t usable_memory() {
  static const uint64_t bytes = count_usable_memory();
  return bytes;
}

}  // namespace tcpx
