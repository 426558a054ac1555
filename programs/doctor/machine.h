// What several groups of checks ask of a machine: its files, its variables, and which path it is meant for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "programs/doctor/file_tree.h"

namespace tcpx::doctor {

/// UCCL_TCPX_PLUGIN_PATH's word for the plugin that is linked in.
inline constexpr char kEmbedded[] = "embedded";

using Variables = std::vector<std::pair<std::string, std::string>>;

struct Machine {
  FileTree files;
  Variables variables;

  /// nullopt when it is unset or empty.
  std::optional<std::string> variable(std::string_view name) const;
  std::optional<std::string> variable(Variable id) const { return variable(environment_info(id).name); }
};

/// Places where GPUDirect-TCPX is installed, in the order in which the loader looks.
const std::vector<std::string>& installed_plugin_paths();
/// Where the receive datapath manager has its sockets by its own default.
inline constexpr std::string_view kRxdmDirectory = "/run/tcpx";

/// Whether a machine is meant to run GPUDirect-TCPX. Only then is it a failure that something of it is missing; elsewhere the
/// software plugin is the right path, and such checks do not apply.
struct Expectation {
  bool vendor_path = false;
  std::string because;  ///< either way
};
Expectation expected_path(const Machine& machine);

}  // namespace tcpx::doctor
