#include "net/plugin_status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/text.h"
#include "tcpx/help.h"
#include "tcpx/types.h"

namespace tcpx {
namespace {

// A plugin has one result for every failed system call: its words tell when this process or machine is out of something. NCCL's own
// plugins and GPUDirect-TCPX end theirs with the text of the errno; ours gives the Status.
bool tell_of_shortage(std::string_view words) {
  if (words.find(name_of(Code::kExhausted)) != std::string_view::npos) return true;
  constexpr int kShortages[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};
  return std::any_of(std::begin(kShortages), std::end(kShortages),
                     [&](int error) { return words.find(std::strerror(error)) != std::string_view::npos; });
}

Code code_of(int result, std::string_view words) {
  switch (result) {
    case abi::kNcclUnhandledCudaError:
      return Code::kCuda;
    // GPUDirect-TCPX says "system error" for a failed socket call and for the end of a control connection, never "remote error".
    case abi::kNcclSystemError:
      return tell_of_shortage(words) ? Code::kExhausted : Code::kPeerGone;
    case abi::kNcclInvalidArgument:
      return Code::kInvalidArgument;
    default:
      return Code::kPlugin;
  }
}

// Result 3 of a post may be a plugin's only sign that its queue is full (11).
std::string what_it_may_mean(std::string_view operation, int result) {
  const bool post = operation == "isend" || operation == "irecv";
  if (!post || result != abi::kNcclInternalError) return "";
  return concat(", as a post beyond ", kQueueDepth, " outstanding requests is", name_in_detail(Hint::kTooManyRequests));
}

Status logged(LogLevel level, Status status) {
  log(level, status.to_string());
  return status;
}

}  // namespace

std::string_view nccl_result_name(int result) {
  switch (result) {
    case abi::kNcclSuccess:
      return "ncclSuccess";
    case abi::kNcclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case abi::kNcclSystemError:
      return "ncclSystemError";
    case abi::kNcclInternalError:
      return "ncclInternalError";
    case abi::kNcclInvalidArgument:
      return "ncclInvalidArgument";
    case abi::kNcclInvalidUsage:
      return "ncclInvalidUsage";
    case abi::kNcclRemoteError:
      return "ncclRemoteError";
    case abi::kNcclInProgress:
      return "ncclInProgress";
    default:
      return "unknown result";
  }
}

Status plugin_failure(std::string_view plugin, std::string_view operation, int result, LogLevel level, std::string_view words) {
  return logged(level, Status(code_of(result, words), std::string(operation),
                              concat(plugin, " answered ", nccl_result_name(result), what_it_may_mean(operation, result),
                                     words.empty() ? "" : ": ", words),
                              Domain::kNccl, result));
}

Status plugin_refused(Code code, std::string_view operation, std::string detail) {
  return logged(LogLevel::kWarning, Status(code, std::string(operation), std::move(detail)));
}

}  // namespace tcpx
