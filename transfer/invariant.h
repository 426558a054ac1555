// A check that stays on in every build. When it fails, this library has a bug, and going on would hand out memory still in use.
#pragma once

#include <cstdlib>

#include "base/log.h"

namespace tcpx {

inline void require(bool holds, const char* invariant) {
  if (holds) return;
  log(LogLevel::kError, "broken invariant: ", invariant);
  std::abort();
}

}  // namespace tcpx
