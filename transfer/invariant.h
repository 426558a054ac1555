// A check that stays on in every build: its failure is a bug of ours, and going on would hand out memory that is still in use.
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
