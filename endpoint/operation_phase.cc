#include "endpoint/operation_phase.h"

namespace tcpx {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kGpu:
      return "waits for the GPU's work";
    case Phase::kReadOut:
      return "is copied from the GPU";
    case Phase::kWindow:
      return "waits for the peer's window";
    case Phase::kLeaving:
      return "leaves";
    case Phase::kPosted:
      return "waits for a send";
    case Phase::kOffered:
      return "waits for the peer";
    case Phase::kMoving:
      return "moves";
    case Phase::kWriteIn:
      return "is copied to the GPU";
    case Phase::kAnswer:
      return "waits for the peer's answer";
  }
  return "";
}

}  // namespace tcpx
