#include "measure/end.h"

#include <thread>

#include "base/usable_cores.h"
#include "measure/resources.h"
#include "transfer/backoff.h"

namespace tcpx {

namespace {

int64_t now_ns() {
  return Clock::steady().now().time_since_epoch().count();
}

double cpu_seconds() {
  return static_cast<double>(process_cpu_ns()) / 1e9;
}

}  // namespace

// The memory is asked for outside the time that is measured.
Stopwatch::Stopwatch() {
  begin_.resident_begin_bytes = process_resident_bytes();
  begin_.cpu_seconds = cpu_seconds();
  begin_.begin_ns = now_ns();
}

Timing Stopwatch::stop() const {
  Timing timing = begin_;
  timing.end_ns = now_ns();
  timing.cpu_seconds = cpu_seconds() - begin_.cpu_seconds;
  timing.resident_end_bytes = process_resident_bytes();
  return timing;
}

Status BenchEnd::verify() {
  const Result<ComparedBytes> compared = compare();
  return compared.is_ok() ? compared->first : compared.status();
}

bool on_this_machine(const SocketAddress& peer) {
  return peer.host() == SocketAddress::loopback(0).host() || peer.host() == "::1";
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
    : what_(std::move(what)), deadline_(deadline), sleeps_(bytes_under_way >= kMuch && cores_are_few()) {}

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

}  // namespace tcpx
