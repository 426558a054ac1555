// What the process costs while nothing is to be done.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

namespace tcpx::testing {

/// Processor time of all threads so far, in seconds.
inline double process_seconds() {
  rusage usage;
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Processor time that other threads take while this one waits for nothing.
inline double idle_seconds(int milliseconds) {
  const double before = process_seconds();
  EXPECT_EQ(::poll(nullptr, 0, milliseconds), 0);
  return process_seconds() - before;
}

}  // namespace tcpx::testing
