#include "programs/doctor/machine.h"

#include "base/text.h"
#include "net/plugin_loader.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kSoftwareName = "libnccl-net-tcpx-soft.so";

}  // namespace

std::optional<std::string> Machine::variable(std::string_view name) const {
  for (const auto& [known, value] : variables) {
    if (known == name && !value.empty()) return value;
  }
  return std::nullopt;
}

const std::vector<std::string>& installed_plugin_paths() {
  static const std::vector<std::string> paths = PluginLoadOptions{}.installed_paths;
  return paths;
}

Expectation expected_path(const Machine& machine) {
  if (const auto named = machine.variable(Variable::kPluginPath)) {
    const bool software = *named == kEmbedded || named->ends_with(kSoftwareName);
    return {!software, concat(environment_info(Variable::kPluginPath).name, "=", *named)};
  }
  for (const std::string& path : installed_plugin_paths()) {
    if (machine.files.exists(path)) return {true, concat("a plugin is installed at ", path)};
  }
  if (machine.files.exists(kRxdmDirectory)) return {true, concat("there is ", kRxdmDirectory, ", the directory of RxDM")};
  return {false, "no GPUDirect-TCPX plugin is named or installed"};
}

}  // namespace tcpx::doctor
