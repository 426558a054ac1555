#include "measure/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>

#include "measure/result_file.h"

namespace tcpx {

uint64_t process_cpu_ns() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// The second number of the file, in pages.
uint64_t process_resident_bytes() {
  const Result<std::string> text = read_file("/proc/self/statm", 4096);
  if (!text.is_ok()) return 0;
  const size_t space = text->find(' ');
  uint64_t pages = 0;
  if (space != std::string::npos) std::from_chars(text->data() + space + 1, text->data() + text->size(), pages);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tcpx
