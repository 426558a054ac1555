#include "measure/end.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <thread>

#include "measure/result_file.h"
#include "transfer/backoff.h"

namespace tcpx::bench {

namespace {

// The second number of the file, in pages.
uint64_t read_resident_bytes() {
  const Result<std::string> text = read_file("/proc/self/statm", 4096);
  if (!text.is_ok()) return 0;
  const size_t space = text->find(' ');
  uint64_t pages = 0;
  if (space != std::string::npos) std::from_chars(text->data() + space + 1, text->data() + text->size(), pages);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Stopwatch Stopwatch::read() {
  const uint64_t resident = read_resident_bytes();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {.now_ns = std::chrono::steady_clock::now().time_since_epoch().count(),
          .cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .resident_bytes = resident};
}

Timing Stopwatch::until(const Stopwatch& end) const {
  return {.begin_ns = now_ns,
          .end_ns = end.now_ns,
          .cpu_seconds = end.cpu_seconds - cpu_seconds,
          .resident_begin_bytes = resident_bytes,
          .resident_end_bytes = end.resident_bytes};
}

Result<std::unique_ptr<BenchEnd>> make_bench_end(const EndSetup& setup) {
  switch (setup.kind) {
    case EndSetup::Kind::kPlugin:
      return make_plugin_end(setup);
    case EndSetup::Kind::kPipeline:
      return make_pipeline_end(setup);
    case EndSetup::Kind::kRawTcp:
      return make_raw_tcp_end(setup);
    case EndSetup::Kind::kEndpoint:
      return make_endpoint_end(setup);
  }
  return Status(Code::kInvalidArgument, "make end", "unknown kind");
}

Patience::Patience(std::string what, Deadline deadline, uint64_t bytes_under_way)
    : what_(std::move(what)),
      deadline_(deadline),
      sleeps_(bytes_under_way >= kMuch && Backoff::cores_are_few(std::thread::hardware_concurrency())) {}

Status Patience::after_turn(bool advanced) {
  if (advanced) {
    idle_turns_ = 0;
    return Status::ok();
  }
  if (++idle_turns_ % (sleeps_ ? Backoff::kSpinsOnFewCores : kTurnsAtOnce) != 0) return Status::ok();
  if (deadline_.expired()) return Status(Code::kTimeout, what_, "did not end in time");
  if (sleeps_) {
    std::this_thread::sleep_for(Backoff::kSleep);
  } else {
    std::this_thread::yield();
  }
  return Status::ok();
}

}  // namespace tcpx::bench
