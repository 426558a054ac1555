// Cost of a frame in each window of its receiver, written down once more from wire/credit_windows.h and not computed by
// it: 0 short sends, 1 short writes and notifications, 2 announced sends, 3 all else that is announced.
#pragma once

#include <cstdint>

#include "tests/support/raw_frame.h"

namespace tcpx::testing {

inline constexpr uint64_t kWindowSizes[4] = {4u << 20, 4u << 20, 16u << 20, 16u << 20};

struct WindowUse {
  size_t window = 0;
  uint64_t bytes = 0;  ///< 0: it uses none
};

/// @param bytes of the header. @param inline_bytes longest inline message of the end that answers a read
inline WindowUse use_of(FrameType type, uint64_t bytes, const OperationPayload& payload, uint64_t inline_bytes) {
  const uint64_t parts = 8 * payload.lengths.size() + 32 * payload.ranges.size() + offers_of(payload.sources, payload.ring).size() +
                         (payload.has_notify ? payload.notify_name.size() + payload.notify_text.size() : 0);
  switch (type) {
    case FrameType::kSendData:
      return {0, 64 + bytes + parts};
    case FrameType::kWriteData:
      return {1, 64 + bytes + parts};
    case FrameType::kNotify:
      return {1, 64 + bytes};
    case FrameType::kSend:
      return {2, 256 + parts};
    case FrameType::kWrite:
      return {3, 256 + parts};
    case FrameType::kRead:
      return {3, 256 + parts + (bytes <= inline_bytes ? bytes : 0)};
    default:
      return {};
  }
}

}  // namespace tcpx::testing
