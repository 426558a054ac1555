// Counts what a program takes from the heap, so that a test can say that a call takes nothing. A program that wants it lists
// support/count_allocations.cc among its SOURCES; that file replaces the global operator new.
#pragma once

#include <cstdint>

namespace tcpx::testing {

/// Allocations of this thread so far.
uint64_t allocation_count();

}  // namespace tcpx::testing
