// The seam where a plugin's result codes become Statuses. No code above it sees or compares such a code.
#pragma once

#include <string_view>

#include "base/log.h"
#include "net/abi/nccl_net_common.h"
#include "tcpx/status.h"

namespace tcpx {

/// "ncclSystemError" for 2, ...; "unknown result" for codes that version 8 of the ABI does not name.
std::string_view nccl_result_name(int result);

/// Status for a non-zero `result` that `plugin` answered to `operation`, domain kNccl, native code kept: ncclUnhandledCudaError
/// is kCuda, ncclSystemError kPeerGone, or kExhausted where `words` tell of a shortage, ncclInvalidArgument kInvalidArgument,
/// anything else kPlugin. Logs it at `level`.
/// @param words the plugin's own message about it, appended to the detail
Status plugin_failure(std::string_view plugin, std::string_view operation, int result, LogLevel level = LogLevel::kWarning,
                      std::string_view words = {});

/// Status for a plugin, or data of a plugin, that we refuse. Logs it as a warning.
Status plugin_refused(Code code, std::string_view operation, std::string detail);

}  // namespace tcpx
