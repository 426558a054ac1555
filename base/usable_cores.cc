#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <thread>

#include "base/cgroup.h"

namespace tcpx {
namespace {

std::atomic<uint32_t> determined{0};

// The limit of one control group in whole cores, rounded up. nullopt: no limit. @param folder that contains the group's files
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

uint64_t quota(const std::string& root) {
  uint64_t least = UINT64_MAX;
  for_each_control_group(root, "cpu", [&least](const std::string& folder) {
    if (const auto cores = quota_of(folder)) least = std::min(least, *cores);
  });
  return least;
}

}  // namespace

uint32_t count_usable_cores(const std::string& root) {
  cpu_set_t allowed;
  // The call fails when the kernel knows more cores than the set has room for.
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const uint64_t cores = known ? static_cast<uint64_t>(CPU_COUNT(&allowed)) : std::thread::hardware_concurrency();
  return static_cast<uint32_t>(std::clamp<uint64_t>(quota(root), 1, std::max<uint64_t>(cores, 1)));
}

uint32_t usable_cores() {
  uint32_t cores = known_usable_cores();
  if (cores == 0) determined.store(cores = count_usable_cores(), std::memory_order_relaxed);
  return cores;
}

uint32_t known_usable_cores() noexcept {
  return determined.load(std::memory_order_relaxed);
}

}  // namespace tcpx
