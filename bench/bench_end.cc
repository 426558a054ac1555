#include "bench/bench_end.h"

#include <sched.h>
#include <sys/resource.h>

namespace tcpx::bench {

Stopwatch Stopwatch::read() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {std::chrono::steady_clock::now().time_since_epoch().count(), seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

Status Patience::after_turn(bool advanced) {
  if (advanced) {
    idle_turns_ = 0;
    return Status::ok();
  }
  if (++idle_turns_ % kTurnsAtOnce != 0) return Status::ok();
  if (deadline_.expired()) return Status(Code::kTimeout, what_, "did not end in time");
  ::sched_yield();
  return Status::ok();
}

}  // namespace tcpx::bench
