// Group "plugin": the libraries that could be the net plugin, of tcpx-p2p or of NCCL, and which of them is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "doctor/child_answer.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

/// A data symbol ncclNetPlugin_v<version>.
struct PluginTable {
  int version = 0;
  std::string name;   ///< as the table gives it
  std::string lacks;  ///< its defect; "" when it is complete, or of a version that we do not know
};

/// Facts a library shows when it is opened, and no more: none of its functions is called.
struct PluginLoad : LibraryAnswer {
  std::vector<PluginTable> tables;  ///< oldest first
  /// It has brought libmnl, which only the 2026 state of GPUDirect-TCPX needs (google/nccl-plugin-gpudirecttcpx @ 91e8693).
  bool uses_libmnl = false;
};
/// Opens the library in a child process: its constructors run there, and may exit, crash or hang there.
/// @param path of a file, with a slash
PluginLoad load_plugin(const std::string& path, Duration limit = std::chrono::seconds(4));

struct LibraryFile {
  std::string path;
  std::string origin;  ///< "named by UCCL_TCPX_PLUGIN_PATH", "in LD_LIBRARY_PATH", ...; several joined by ", "
  std::string real;    ///< with all links followed
};

struct PluginCandidate {
  LibraryFile file;
  bool is_there = false;
  bool readable = false;
  std::string elf_problem;         ///< why it can be no library of this program; "" when it can
  bool noexec = false;             ///< it lies where programs cannot be run from
  std::optional<PluginLoad> load;  ///< nullopt: not tried

  bool can_be_loaded() const { return readable && elf_problem.empty() && !noexec; }
};

/// A name that NCCL opens, and the files that have it, in the order in which the dynamic linker looks; it takes the first.
struct OpenedName {
  std::string name;
  std::vector<LibraryFile> files;
};

struct PluginFacts {
  Expectation expected;
  /// The library that tcpx-p2p would open, by the order of net/plugin_loader.h: a file, "embedded", or a bare name that leads
  /// nowhere; the origin as the loader logs it.
  LibraryFile choice;
  /// Each file once, in the order in which they are looked for: the named one and the installed ones, be there such files or not,
  /// then every libnccl-net.so and libnccl-net-*.so on the dynamic linker's way.
  std::vector<PluginCandidate> candidates;
  std::vector<OpenedName> names;
};
/// Without loading anything.
/// @param linker_cache what `ldconfig -p` prints
PluginFacts plugin_facts(const Machine& machine, const std::string& linker_cache);
/// Loads those that can be; stops after two that hang, because each may take the whole limit.
void load_candidates(PluginFacts& facts, Duration limit = std::chrono::seconds(4));

Findings check_plugin(const PluginFacts& facts);

}  // namespace tcpx::doctor
