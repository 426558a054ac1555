#include "base/cgroup.h"

#include <charconv>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace tcpx {

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// A line of /proc/self/cgroup is "number:controllers:path"; version 2 has one line without controllers. A container sees its own
// group as the root, whatever the path says, so all folders up to the root are visited.
void for_each_control_group(const std::string& root, std::string_view controller,
                            const std::function<void(const std::string& folder)>& look) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = concat(",", line.substr(first + 1, second - first - 1), ",");
    const bool is_version_2 = controllers == ",,";
    if (!is_version_2 && controllers.find(concat(",", controller, ",")) == std::string::npos) continue;
    const std::string mounted = is_version_2 ? concat(root, "/sys/fs/cgroup") : concat(root, "/sys/fs/cgroup/", controller);
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      look(mounted + path);
      if (path.rfind('/') == std::string::npos) break;
    }
  }
}

}  // namespace tcpx
