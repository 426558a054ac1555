#include "measure/resources.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/words.h"
#include "measure/result_file.h"

namespace tcpx {
namespace {

constexpr size_t kMaxKernelFile = 64 * 1024;

/// The rest of the line that begins with `name`, without blanks before it.
std::string_view rest_behind(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::string_view rest = text.substr(at + name.size());
    rest = rest.substr(0, rest.find('\n'));
    return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
  }
  return {};
}

std::string kernel_file(const char* path) {
  Result<std::string> text = read_file(path, kMaxKernelFile);
  return text.is_ok() ? std::move(*text) : std::string();
}

}  // namespace

std::optional<uint64_t> available_in_meminfo(std::string_view meminfo) {
  constexpr std::string_view kUnit = " kB";
  constexpr uint64_t kMostKib = uint64_t{1} << 50;
  const std::string_view value = rest_behind(meminfo, "MemAvailable:");
  if (!value.ends_with(kUnit)) return std::nullopt;
  const std::optional<uint64_t> kib = number_of<uint64_t>(value.substr(0, value.size() - kUnit.size()));
  return kib && *kib <= kMostKib ? std::optional(*kib * 1024) : std::nullopt;
}

std::optional<uint64_t> available_in_group(std::string_view memory_max, std::string_view memory_stat) {
  const std::optional<uint64_t> limit = number_of<uint64_t>(memory_max.substr(0, memory_max.find('\n')));  // "max" without one
  const std::optional<uint64_t> anon = number_of<uint64_t>(rest_behind(memory_stat, "anon "));
  const std::optional<uint64_t> shmem = number_of<uint64_t>(rest_behind(memory_stat, "shmem "));
  if (!limit || !anon || !shmem) return std::nullopt;
  return *limit > *anon + *shmem ? *limit - *anon - *shmem : 0;
}

Result<uint64_t> free_host_bytes() {
  const std::optional<uint64_t> machine = available_in_meminfo(kernel_file("/proc/meminfo"));
  if (!machine) return Status(Code::kSystem, "ask for free memory", "/proc/meminfo has no MemAvailable");
  // In a container the root of its control group is where these lie.
  const auto group = available_in_group(kernel_file("/sys/fs/cgroup/memory.max"), kernel_file("/sys/fs/cgroup/memory.stat"));
  return group ? std::min(*machine, *group) : *machine;
}

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
  const std::vector<std::string> numbers = split(*text, " \n");
  const uint64_t pages = numbers.size() < 2 ? 0 : number_of<uint64_t>(numbers[1]).value_or(0);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

size_t sockets_that_received(uint64_t least) {
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(std::atoi(entry->path().filename().c_str()), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_bytes_received >= least) ++count;  // zero from a kernel before 4.1, which does not tell
  }
  return count;
}

}  // namespace tcpx
