// NCCL's own socket transport, measured by PyTorch in two processes (tests/nccl/bandwidth.py), for a place beside ours.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/child.h"
#include "programs/compare/measured_run.h"
#include "tcpx/status.h"

namespace tcpx {

/// The text of tests/nccl/bandwidth.py.
extern const char* const kNcclScript;

struct NcclOptions {
  std::string script = kNcclScript;  ///< text of a Python program
  std::pair<int, int> gpus{0, 1};
  std::vector<uint64_t> sizes;            ///< one way
  std::vector<uint64_t> ping_pong_sizes;  ///< may be empty
  int milliseconds = 200;                 ///< of all samples of a row together, about
};

/// A setting of NCCL and what it is called.
struct NcclSetting {
  std::string label;
  EnvironmentOverrides variables;
};
/// The default, and those that `tests/nccl/run_nccl.sh search` has found to be the fastest at some size, on several machines.
const std::vector<NcclSetting>& nccl_settings();

/// "NCCL 2.28.9, PyTorch 2.9.0". @return kUnsupported, with the reason, when NCCL cannot be measured here.
Result<std::string> find_nccl(const NcclOptions& options, const std::atomic<bool>& stop);

/// Two processes, one per GPU. @return kSystem with the last line of the one that failed, kTimeout, kProtocol.
Result<MeasuredRun> run_nccl(const NcclSetting& setting, const NcclOptions& options, const std::atomic<bool>& stop);

/// The last line of `output` that begins with `{`; "" when there is none. Other output, of libraries, is skipped.
std::string_view result_line(std::string_view output);
/// @param json one result line of bandwidth.py.
/// @return kProtocol saying what is wrong with it.
Result<MeasuredRun> parse_nccl_result(std::string_view json);

}  // namespace tcpx
