#include "base/cpu_affinity.h"

#include <charconv>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace tcpx {

std::optional<cpu_set_t> parse_cpu_list(std::string_view text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const auto number = [&](int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  };
  while (!text.empty()) {
    int first = 0;
    if (!number(first)) return std::nullopt;
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!number(last) || last < first) return std::nullopt;
    }
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &set);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return set;
}

bool run_near(int numa_node, const std::string& root) {
  if (numa_node < 0) return false;
  std::ifstream file(concat(root, "/sys/devices/system/node/node", numa_node, "/cpulist"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto near = parse_cpu_list(text);
  cpu_set_t allowed;
  if (!near || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t both;
  CPU_AND(&both, &*near, &allowed);
  return CPU_COUNT(&both) > 0 && ::sched_setaffinity(0, sizeof both, &both) == 0;
}

}  // namespace tcpx
