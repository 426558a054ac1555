#include "programs/doctor/interfaces.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace tcpx::doctor {

std::string default_interface(const Machine& machine) {
  const std::string routes = machine.files.read("/proc/net/route").value_or("");
  for (size_t at = 0; at < routes.size();) {
    const size_t end = std::min(routes.find('\n', at), routes.size());
    const std::string_view line = std::string_view(routes).substr(at, end - at);
    const size_t tab = line.find('\t');
    if (tab != std::string_view::npos && line.substr(tab + 1).starts_with("00000000\t")) return std::string(line.substr(0, tab));
    at = end + 1;
  }
  return "";
}

std::vector<std::string> data_interfaces(const Machine& machine, const std::string& control) {
  std::vector<std::string> names;
  for (const std::string& name : machine.files.list("/sys/class/net")) {
    const auto driver = machine.files.resolve(concat("/sys/class/net/", name, "/device/driver"));
    if (driver && driver->ends_with("/gve") && name != control) names.push_back(name);
  }
  return names;
}

}  // namespace tcpx::doctor
