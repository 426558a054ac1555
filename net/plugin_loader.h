// Finds, opens and initialises the net plugin.
//
// Order: explicit path > UCCL_TCPX_PLUGIN_PATH > the places where GPUDirect-TCPX is installed > the software plugin in this
// build; UCCL_TCPX_NETWORK leaves out one of the last two. kEmbedded as a path means the last one. A library that is
// named, or that exists at an installed place, and does not load, has no table we know, has an incomplete table or whose init
// fails is an error: never a silent fall-back. One notice line in the log names the plugin in use and the reason.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/net_plugin.h"

namespace tcpx {

/// In place of a library's path: the software plugin that is linked in.
inline constexpr char kEmbedded[] = "embedded";

struct PluginLoadOptions {
  /// Library path or kEmbedded; empty: look at the environment, then at `installed_paths`, then take the embedded plugin.
  std::string path;
  std::vector<std::string> installed_paths = {"/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "/var/lib/tcpx/lib64/libnccl-net.so"};
  /// Replaces "/" in the checks for vendor traps (net/vendor_traps.h). For tests.
  std::string root = {};
};

/// Origin of the plugin in use.
struct PluginSource {
  std::string path;    ///< library path, or kEmbedded
  std::string reason;  ///< "named by UCCL_TCPX_PLUGIN_PATH", "no plugin at ...", ...
};

/// Pure: which plugin is loaded, and why.
/// @param named the value of UCCL_TCPX_PLUGIN_PATH, "" when it is unset @param network that of UCCL_TCPX_NETWORK
/// @param exists whether there is such a file
PluginSource choose_plugin(const PluginLoadOptions& options, const std::string& named, const std::string& network,
                           const std::function<bool(const std::string&)>& exists);

/// A plugin's `init` may run once per process (30), so loading the same library again returns the instance already loaded.
/// Plugins are never unloaded: they own threads. Thread-safe.
/// @return kNotFound: no such file; kUnsupported: cannot be opened, no known table, incomplete table, a machine whose NICs
/// GPUDirect-TCPX does not survive; kPlugin/kCuda/kPeerGone: init failed with the plugin's code; kPlugin: it threw; kBadConfig:
/// a variable of the log is malformed, or one of GPUDirect-TCPX (net/vendor_plugin.h), whose required ones are set before its
/// init unless set already.
class PluginLoader {
 public:
  struct Loaded {
    std::shared_ptr<NetPlugin> plugin;  // shared: the process-wide registry keeps one share forever, each user another
    PluginSource source;
  };
  static Result<Loaded> load(const PluginLoadOptions& options = {});
};

}  // namespace tcpx
