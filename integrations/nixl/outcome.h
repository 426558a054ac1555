// NIXL's numbers for our Statuses, and one line of log for each error that NIXL would show as a number only.
#pragma once

#include "base/log.h"
#include "integrations/nixl/nixl_abi.h"
#include "tcpx/status.h"

namespace tcpx::nixl {

constexpr abi::NixlStatus nixl_code(Code code) {
  switch (code) {
    case Code::kOk:
      return abi::NixlStatus::kSuccess;
    case Code::kInvalidArgument:
    case Code::kBadConfig:
      return abi::NixlStatus::kInvalidParam;
    case Code::kNotFound:
      return abi::NixlStatus::kNotFound;
    case Code::kUnsupported:
      return abi::NixlStatus::kNotSupported;
    case Code::kMismatch:
    case Code::kCorrupt:
      return abi::NixlStatus::kMismatch;
    case Code::kPeerGone:
      return abi::NixlStatus::kRemoteDisconnect;
    case Code::kCancelled:
      return abi::NixlStatus::kCanceled;
    case Code::kTimeout:
    case Code::kProtocol:
    case Code::kPlugin:
    case Code::kCuda:
    case Code::kSystem:
    case Code::kExhausted:
    case Code::kInternal:
      return abi::NixlStatus::kBackend;
  }
  return abi::NixlStatus::kUnknown;
}

/// @param subject what it concerns: an agent's name
inline abi::NixlStatus said(const Status& status, const std::string& subject) {
  if (!status.is_ok()) log(LogLevel::kWarning, "NIXL back-end: ", subject, ": ", status.to_string());
  return nixl_code(status.code());
}

}  // namespace tcpx::nixl
