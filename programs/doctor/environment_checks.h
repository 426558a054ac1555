// Group "environment": every variable of the table, and what looks like one of them.
#pragma once

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"

namespace tcpx::doctor {

Findings check_environment(const Machine& machine);

/// Export lines that set what this machine needs and nobody has set, for `eval`. Comments say why. What is set wrongly is unset,
/// so that the default holds.
std::string environment_block(const Machine& machine);

}  // namespace tcpx::doctor
