// What the doctor prints.
#pragma once

#include <string>
#include <vector>

#include "programs/doctor/finding.h"

namespace tcpx::doctor {

/// One line per finding, below each one that is not ok why it matters and what mends it.
/// @param colour with terminal colours
std::string group_text(const GroupFindings& group, bool colour);
/// How many findings there are of each kind; the last line.
std::string findings_summary(const std::vector<GroupFindings>& groups);

/// {"version": ..., "verdict": "ok|warn|fail", "groups": [{"name", "findings": [{"check", "verdict", "found", "why", "mend"}]}]}
/// What is no UTF-8 in foreign texts is replaced.
std::string findings_json(const std::vector<GroupFindings>& groups);

}  // namespace tcpx::doctor
