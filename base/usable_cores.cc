#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>

#include "base/text.h"

namespace tcpx {
namespace {

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

// nullopt also for "max" and "-1", which are no limits.
std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// Of one group, in whole cores. @param folder where its files are
std::optional<uint64_t> quota_of(const std::string& folder) {
  std::optional<uint64_t> quota, period;
  if (const auto both = text_of_file(folder + "/cpu.max")) {
    quota = number_in(*both);
    if (const size_t space = both->find(' '); space != std::string::npos)
      period = number_in(std::string_view(*both).substr(space + 1));
  } else if (const auto first = text_of_file(folder + "/cpu.cfs_quota_us")) {
    quota = number_in(*first);
    period = number_in(text_of_file(folder + "/cpu.cfs_period_us").value_or(""));
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return (*quota + *period - 1) / *period;
}

// A line of /proc/self/cgroup is "number:controllers:path"; version 2 has one without controllers. A container sees its own group
// as the root, whatever the path says, so all folders on the way are asked.
uint64_t quota(const std::string& root) {
  uint64_t least = UINT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = concat(",", line.substr(first + 1, second - first - 1), ",");
    const bool is_version_2 = controllers == ",,";
    if (!is_version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mounted = concat(root, "/sys/fs/cgroup", is_version_2 ? "" : "/cpu");
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      if (const auto cores = quota_of(mounted + path)) least = std::min(least, *cores);
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace

uint32_t count_usable_cores(const std::string& root) {
  cpu_set_t allowed;
  // It fails where the kernel knows more cores than the set has room for.
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const uint64_t cores = known ? static_cast<uint64_t>(CPU_COUNT(&allowed)) : std::thread::hardware_concurrency();
  return static_cast<uint32_t>(std::clamp<uint64_t>(quota(root), 1, std::max<uint64_t>(cores, 1)));
}

uint32_t usable_cores() {
  static const uint32_t cores = count_usable_cores();
  return cores;
}

}  // namespace tcpx
