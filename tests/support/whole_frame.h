// Frames as they are on the wire, for tests that write them there by themselves.
#pragma once

#include <cstddef>
#include <vector>

#include "wire/frame.h"
#include "wire/messages.h"

namespace tcpx::testing {

/// Appends the frame with its check.
template <class Frame>
void append_whole(const Frame& frame, std::vector<std::byte>& out) {
  const size_t begin = out.size();
  encode(frame, out);
  append_check(out, begin);
}

}  // namespace tcpx::testing
