// Names of environment variables that nobody reads, and which was meant.
#pragma once

#include <string_view>

#include "base/environment.h"

namespace tcpx {

inline constexpr std::string_view kOwnPrefix = "UCCL_TCPX_", kVendorPrefix = "NCCL_GPUDIRECTTCPX_";

/// The variable of the table that somebody who wrote `name` may have meant. nullptr: none.
const VariableInfo* meant_variable(std::string_view name);

/// Logs a warning for each variable of this process that begins with kOwnPrefix and is not in the table. Once in a process.
void warn_of_unknown_variables();

}  // namespace tcpx
