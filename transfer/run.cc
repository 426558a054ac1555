#include "transfer/run.h"

#include <thread>

#include "base/log.h"
#include "transfer/backoff.h"

namespace tcpx {
namespace {

constexpr Duration kReportEvery = std::chrono::milliseconds(100);

}  // namespace

Result<bool> run_until_done(Pipeline& pipeline, TransferId id, const RunOptions& options) {
  Backoff backoff;
  TimePoint next_report = Clock::steady().now() + kReportEvery;
  for (;;) {
    const bool advanced = pipeline.progress();
    TransferAnswer answer = pipeline.poll(id);
    switch (answer.state) {
      case TransferState::kDone:
        return true;
      case TransferState::kFailed:
        return std::move(answer.status);
      case TransferState::kUnknown:
        return Status(Code::kNotFound, "wait for transfer", concat("no transfer ", static_cast<uint64_t>(id)));
      case TransferState::kPending:
        break;
    }
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) return false;
    const TimePoint now = Clock::steady().now();
    if (now >= options.deadline.at()) {
      Status status(Code::kTimeout, "wait for transfer", "deadline passed");
      log(LogLevel::kError, status.to_string(), "; ", pipeline.flight_record());
      return status;
    }
    if (options.on_tick && now >= next_report) {
      TCPX_RETURN_IF_ERROR(options.on_tick(answer.bytes_done));
      next_report = now + kReportEvery;
    }
    if (advanced) {
      backoff.reset();
    } else {
      backoff.wait(pipeline.in_flight() >= Backoff::kMuchUnderWay);
    }
  }
}

Status peers_reason(BootstrapChannel& channel, const Status& mine, Deadline deadline) {
  if (mine.code() != Code::kPeerGone) return mine;
  deadline = deadline.earlier(Deadline::after(std::chrono::milliseconds(500)));
  while (!deadline.expired() && (channel.stop() == nullptr || !channel.stop()->load())) {
    TCPX_RETURN_IF_ERROR(channel.peer_status());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return mine;
}

}  // namespace tcpx
