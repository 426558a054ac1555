#include "measure/free_memory.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "measure/result_file.h"

namespace tcpx::perf {
namespace {

constexpr size_t kMaxKernelFile = 64 * 1024;

std::optional<uint64_t> leading_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

/// The number behind `name`, which begins a line, and blanks.
std::optional<uint64_t> number_behind(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::string_view rest = text.substr(at + name.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return leading_number(rest);
  }
  return std::nullopt;
}

std::string kernel_file(const char* path) {
  Result<std::string> text = read_file(path, kMaxKernelFile);
  return text.is_ok() ? std::move(*text) : std::string();
}

}  // namespace

std::optional<uint64_t> available_in_meminfo(std::string_view meminfo) {
  const std::optional<uint64_t> kib = number_behind(meminfo, "MemAvailable:");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

std::optional<uint64_t> available_in_group(std::string_view memory_max, std::string_view memory_stat) {
  const std::optional<uint64_t> limit = leading_number(memory_max);  // "max" without one
  const std::optional<uint64_t> anon = number_behind(memory_stat, "anon "), shmem = number_behind(memory_stat, "shmem ");
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

}  // namespace tcpx::perf
