// What a net plugin's library tells when it is opened, and no more: none of its functions is called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tcpx::doctor {

/// A data symbol ncclNetPlugin_v<version>.
struct PluginTable {
  int version = 0;
  std::string name;   ///< as the table gives it
  std::string lacks;  ///< what is wrong with it; "" when it is complete, or of a version that we do not know
};

struct PluginLoad {
  enum class End : uint8_t {
    kLoaded,
    kRefused,  ///< by the dynamic linker
    kDied,     ///< the process that opened it ended
    kHung,
  };
  End end = End::kRefused;
  std::string detail;               ///< of all but kLoaded: the linker's words, or how the process ended
  std::vector<PluginTable> tables;  ///< oldest first
  /// It has brought libmnl, which only the 2026 state of GPUDirect-TCPX needs (google/nccl-plugin-gpudirecttcpx @ 91e8693).
  bool uses_libmnl = false;
};

class PluginProbe {
 public:
  virtual ~PluginProbe() = default;
  /// @param path of a file, with a slash
  virtual PluginLoad load(const std::string& path) = 0;
};

/// Opens the library in a child process: its constructors run there, and may exit, crash or hang there.
/// @param limit for each library
std::unique_ptr<PluginProbe> make_plugin_probe(Duration limit = std::chrono::seconds(4));

}  // namespace tcpx::doctor
