// Group "plugin": every library that could become the net plugin, and which one is taken.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "programs/doctor/plugin_probe.h"

namespace tcpx::doctor {

/// What is wrong with the library that tcpx-p2p takes is a failure; what is wrong with others that NCCL might find, a warning.
Findings check_plugin(const Machine& machine, PluginProbe& probe);

}  // namespace tcpx::doctor
