#include "endpoint/wire.h"

namespace tcpx {

std::string_view name_of(ControlType type) {
  switch (type) {
    case ControlType::kSend:
      return "send";
    case ControlType::kSendData:
      return "send with data";
    case ControlType::kWrite:
      return "write";
    case ControlType::kWriteData:
      return "write with data";
    case ControlType::kRead:
      return "read";
    case ControlType::kReadData:
      return "read data";
    case ControlType::kReady:
      return "ready";
    case ControlType::kGo:
      return "go";
    case ControlType::kDone:
      return "done";
    case ControlType::kCancel:
      return "cancel";
    case ControlType::kCredit:
      return "credit";
    case ControlType::kNotify:
      return "notify";
    case ControlType::kPeer:
      return "peer message";
    case ControlType::kBye:
      return "bye";
  }
  return "unknown";
}

}  // namespace tcpx
