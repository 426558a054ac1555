// What the doctor prints.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace tcpx::doctor {

/// One line per finding, below each one that is not ok why it matters and what mends it, and a summary at the end.
/// @param colour with terminal colours
std::string findings_text(const std::vector<GroupFindings>& groups, bool colour);

/// {"version": ..., "verdict": "ok|warn|fail", "groups": [{"name", "findings": [{"check", "verdict", "found", "why", "mend"}]}]}
/// What is no UTF-8 in foreign texts is replaced.
std::string findings_json(const std::vector<GroupFindings>& groups);

}  // namespace tcpx::doctor
