// The variables of GPUDirect-TCPX that are not in our table: they configure its plugin and nothing of ours. And what it makes of
// values, whosever they are.
#pragma once

#include <string_view>

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"

namespace tcpx::doctor {

/// Whether it reads `name`, which our table does not have.
bool is_vendor_variable(std::string_view name);

/// For a machine that is meant to run it. Appends nothing where all is well.
void check_vendor_variables(const Machine& machine, Findings& findings);

}  // namespace tcpx::doctor
