#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

namespace tcpx {
namespace {

// One bit per descriptor, so that the child can read it without a lock. Linux gives a process 1024 descriptors by default, and at
// most 2^20 unless `fs.nr_open` is changed; the child keeps descriptors beyond that.
constexpr int kMaxFd = 1 << 20;
constexpr int kBits = 64;
std::array<std::atomic<uint64_t>, kMaxFd / kBits> dropped{};
std::atomic<int> end_of_dropped{0};  // words in use
std::atomic<uint64_t> forks{0};

// Runs in the child, where only async-signal-safe calls may be made.
void begin_as_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  int null = -1;
  const int words = end_of_dropped.load(std::memory_order_relaxed);
  for (int word = 0; word < words; ++word) {
    for (uint64_t left = dropped[word].exchange(0, std::memory_order_relaxed); left != 0; left &= left - 1) {
      const int fd = word * kBits + std::countr_zero(left);
      ::close(fd);  // before the open, so that a descriptor is free for /dev/null
      if (null < 0) null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (null >= 0 && null != fd) (void)::dup3(null, fd, O_CLOEXEC);
      if (null == fd) null = -1;  // /dev/null got that very number, and stays there
    }
  }
  if (null >= 0) ::close(null);
}

void install() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, begin_as_child);
  (void)installed;  // fails only when out of memory; then a child is not recognised, and nothing else goes wrong
}

}  // namespace

uint64_t count_forks() {
  install();
  return forks.load(std::memory_order_relaxed);
}

void drop_in_child(int fd) {
  if (fd < 0 || fd >= kMaxFd) return;
  install();
  int words = end_of_dropped.load(std::memory_order_relaxed);
  while (words <= fd / kBits && !end_of_dropped.compare_exchange_weak(words, fd / kBits + 1, std::memory_order_relaxed)) {
  }
  dropped[fd / kBits].fetch_or(uint64_t{1} << fd % kBits, std::memory_order_relaxed);
}

void keep_in_child(int fd) {
  if (fd < 0 || fd >= kMaxFd) return;
  const uint64_t bit = uint64_t{1} << fd % kBits;
  std::atomic<uint64_t>& word = dropped[fd / kBits];
  if ((word.load(std::memory_order_relaxed) & bit) != 0) word.fetch_and(~bit, std::memory_order_relaxed);
}

}  // namespace tcpx
