// Finds misspelt names of environment variables, and the variable that was meant.
#pragma once

#include <string_view>

#include "base/environment.h"

namespace tcpx {

inline constexpr std::string_view kOwnPrefix = "UCCL_TCPX_", kVendorPrefix = "NCCL_GPUDIRECTTCPX_";

/// The variable of the table that was probably meant by `name`. nullptr: none.
const VariableInfo* meant_variable(std::string_view name);

/// Logs a warning for each environment variable that begins with kOwnPrefix and is not in the table. Only the first call in a
/// process does so.
void warn_of_unknown_variables();

}  // namespace tcpx
