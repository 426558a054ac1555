// Threads that have to share a core.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

namespace tcpx::testing {

/// Binds the calling thread to the first core that it may use.
inline void run_on_first_core() {
  cpu_set_t allowed, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

}  // namespace tcpx::testing
