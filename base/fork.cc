#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace tcpx {
namespace {

std::atomic<uint64_t> forks{0};

}  // namespace

uint64_t count_forks() {
  static const int installed = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)installed;  // fails only without memory; then a child is not recognised, and nothing worse
  return forks.load(std::memory_order_relaxed);
}

}  // namespace tcpx
