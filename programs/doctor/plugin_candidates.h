// Which files could become the net plugin, of tcpx-p2p or of NCCL.
#pragma once

#include <string>
#include <vector>

#include "programs/doctor/machine.h"

namespace tcpx::doctor {

struct PluginCandidate {
  std::string path;
  std::string origin;  ///< "named by UCCL_TCPX_PLUGIN_PATH", "in LD_LIBRARY_PATH", ...; several joined by ", "
};

/// What tcpx-p2p would open, by the order of net/plugin_loader.h.
struct PluginChoice {
  std::string path;    ///< a file, "embedded", or a bare name that leads nowhere
  std::string reason;  ///< as the loader logs it
};
PluginChoice plugin_choice(const Machine& machine);

/// Each file once, in the order in which they are looked for: the named one and the installed ones, be there such files or not,
/// then every libnccl-net.so and libnccl-net-*.so in the directories of LD_LIBRARY_PATH, in the dynamic linker's cache and in its
/// own directories.
std::vector<PluginCandidate> plugin_candidates(const Machine& machine);

/// Files that have this bare name, in the order in which the dynamic linker looks; it takes the first.
std::vector<PluginCandidate> found_by_name(const Machine& machine, const std::string& name);

/// The mount point that `path` lies on, when programs cannot be run from there; else "".
std::string noexec_mount_of(const Machine& machine, const std::string& path);

}  // namespace tcpx::doctor
