// Resources of this process: threads, descriptors, memory, processor time.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace tcpx::testing {

inline size_t entries_in(const char* directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

inline size_t thread_count() {
  return entries_in("/proc/self/task");
}

/// Number of descriptors, including the one used for counting. Without pipes: the undefined behaviour sanitizer opens one for a
/// moment where it looks at a type for the first time, on any thread.
inline size_t descriptor_count() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (!gone && !target.starts_with("pipe:")) ++count;
  }
  return count;
}

inline size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  EXPECT_NE(file, nullptr);
  unsigned long total = 0, resident = 0;
  EXPECT_EQ(std::fscanf(file, "%lu %lu", &total, &resident), 2);
  std::fclose(file);
  return resident * 4096;
}

/// Processor time of all threads, user and system.
inline double processor_seconds() {
  rusage usage;
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Processor time of other threads while this one only waits.
inline double idle_seconds(int milliseconds) {
  const double before = processor_seconds();
  EXPECT_EQ(::poll(nullptr, 0, milliseconds), 0);
  return processor_seconds() - before;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsChecked = true;  // far slower, and the checkers use memory of their own
#else
inline constexpr bool kIsChecked = false;
#endif

}  // namespace tcpx::testing
