// Counts heap allocations, so that a test can check that a call makes none, and refuses them. A program that needs it lists
// support/count_allocations.cc among its SOURCES; that file replaces the global operator new.
#pragma once

#include <cstdint>

namespace tcpx::testing {

/// Allocations of this thread so far.
uint64_t allocation_count();

/// While it lives, this thread gets no memory from `new`, once it has had so many allocations.
struct NoMemory {
  /// @param most refusals; later allocations succeed again
  explicit NoMemory(uint64_t left = 0, uint64_t most = UINT64_MAX);
  ~NoMemory();
  /// An allocation was refused since it was made.
  static bool refused();
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace tcpx::testing
