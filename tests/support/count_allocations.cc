#include "tests/support/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
thread_local uint64_t limit = UINT64_MAX;
thread_local uint64_t refusals = 0;  // beyond the limit, at most

void* allocate(size_t bytes) {
  return ++count > limit && count - limit <= refusals ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
}  // namespace

namespace tcpx::testing {
uint64_t allocation_count() {
  return count;
}
NoMemory::NoMemory(uint64_t left, uint64_t most) {
  limit = count + left;
  refusals = most;
}
NoMemory::~NoMemory() {
  limit = UINT64_MAX;
}
bool NoMemory::refused() {
  return count > limit;
}
}  // namespace tcpx::testing

// Array forms end up here too. So would the nothrow form, but a sanitizer brings its own.
void* operator new(size_t bytes) {
  if (void* address = allocate(bytes)) return address;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void operator delete(void* address) noexcept {
  std::free(address);
}
void operator delete(void* address, size_t) noexcept {
  std::free(address);
}
