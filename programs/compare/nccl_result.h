// Parses the output of tests/nccl/bandwidth.py.
#pragma once

#include <string>
#include <string_view>

#include "programs/compare/soft_results.h"
#include "tcpx/status.h"

namespace tcpx::bench {

/// The last line of `output` that begins with `{`; "" when there is none. Other output, of libraries, is skipped.
std::string_view result_line(std::string_view output);

/// @param json one result line.
/// @return kProtocol saying what is wrong with it.
Result<NcclRun> parse_nccl_result(std::string_view json);

}  // namespace tcpx::bench
