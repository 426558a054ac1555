// Group "environment": every variable of the table, and what looks like one of them.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

struct EnvironmentFacts {
  Variables variables;
  Expectation expected;
  std::vector<std::string> interfaces;  ///< all names
  std::vector<std::string> data;        ///< those that carry data on an A3 machine
  std::string control;                  ///< that of the default route
  bool has_rxdm_directory = false;
};
EnvironmentFacts environment_facts(const Machine& machine);

Findings check_environment(const EnvironmentFacts& facts);

/// Export lines that set what this machine needs and nobody has set, for `eval`. Comments say why. Variables set wrongly are
/// unset, so that the defaults hold.
std::string environment_block(const EnvironmentFacts& facts);

}  // namespace tcpx::doctor
