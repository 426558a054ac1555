// Bytes that end where readable memory ends: reading the first byte after them faults, with and without sanitizers.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>

namespace tcpx::testing {

class GuardedBytes {
 public:
  explicit GuardedBytes(std::span<const std::byte> content) : size_(content.size()) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t readable = (size_ + page - 1) / page * page;
    mapped_ = readable + page;
    base_ = static_cast<std::byte*>(::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || ::mprotect(base_ + readable, page, PROT_NONE) != 0) std::abort();
    begin_ = base_ + readable - size_;
    std::copy(content.begin(), content.end(), begin_);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(base_, mapped_); }

  std::span<const std::byte> get() const { return {begin_, size_}; }

 private:
  size_t size_;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  std::byte* begin_ = nullptr;
};

}  // namespace tcpx::testing
