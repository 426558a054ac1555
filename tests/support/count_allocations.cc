#include "tests/support/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
}  // namespace

namespace tcpx::testing {
uint64_t allocation_count() {
  return count;
}
}  // namespace tcpx::testing

// Array forms end up here too. So would the nothrow form, but a sanitizer brings its own.
void* operator new(size_t bytes) {
  ++count;
  if (void* address = std::malloc(bytes == 0 ? 1 : bytes)) return address;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* address) noexcept {
  std::free(address);
}
void operator delete(void* address, size_t) noexcept {
  std::free(address);
}
