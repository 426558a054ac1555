#include "endpoint/operation_book.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

void count_latency(LatencyHistogram& latency, Duration taken) {
  // Negative if the operation was submitted after `now` of this turn was taken.
  const auto whole = std::max(std::chrono::duration_cast<std::chrono::microseconds>(taken), std::chrono::microseconds(0));
  const auto bucket = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(whole.count(), 1))) - 1;
  ++latency.buckets[std::min<size_t>(static_cast<size_t>(bucket), latency.buckets.size() - 1)];
  ++latency.count;
  latency.sum += whole;
}

}  // namespace

std::unique_ptr<Job> job_of(const LocalOperation& local, Packing packing) {
  auto job = std::make_unique<Job>();
  job->number = local.number();
  job->named = local.operation->named;
  job->ranges = local.operation->ranges;
  job->bytes = local.operation->bytes;
  job->packing = packing;
  return job;
}

LocalOperation* OperationBook::add(Operation& operation) {
  LocalOperation* local = nullptr;
  try {
    local = &operations_[static_cast<uint64_t>(operation.id)];
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  local->operation = &operation;
  local->trace = TraceRange(name_of(operation.kind).data(), operation.bytes);
  note_deadline(operation.deadline);
  return local;
}

void OperationBook::finish(LocalOperation& local, Status status) {
  Operation& operation = *local.operation;
  // Do this first and only once: it can run out of memory, and `finish` is then called again.
  link_.give_back(std::exchange(local.held, {}));
  if (!local.ending.is_ok()) status = local.ending;
  if (status.is_ok()) {
    const bool sends = operation.kind == OperationKind::kSend || operation.kind == OperationKind::kWrite;
    (sends ? link_.stats.bytes_sent : link_.stats.bytes_received) += operation.bytes;
    if (!operation.is_last_round()) {
      if (link_.stage == LinkStage::kOpen) {
        local.begin_again(false);
        return wait(local);
      }
      status = link_.status;
    }
  }
  if (status.is_ok() && operation.ends_whole()) {
    ++link_.stats.operations_done;
    count_latency(link_.stats.latency, link_.now - operation.submitted_at);
  } else if (!status.is_ok() && operation.fails_whole()) {
    ++link_.stats.operations_failed;
  }
  operations_.erase(local.number());
  link_.shared.operations.finish(operation, std::move(status));
}

void OperationBook::end_later(LocalOperation& local, Status why, TimePoint grace) {
  local.ending = std::move(why);
  local.grace = grace;
  note_deadline(grace);
}

void OperationBook::note_deadline(TimePoint at) {
  next_deadline_ = std::min(next_deadline_, at);
}

Status OperationBook::too_slow(const LocalOperation& local) const {
  return Status(Code::kTimeout, std::string(name_of(local.kind())),
                concat("operation ", local.number(), " ", name_of(local.phase()), " and did not end within ",
                       milliseconds(kGrace), " ms: the connection is closed so that nothing touches its memory"));
}

Status OperationBook::too_late(const LocalOperation& local) const {
  return Status(Code::kTimeout, std::string(name_of(local.kind())),
                concat("deadline passed after ", milliseconds(link_.now - local.operation->submitted_at), " ms; it ",
                       name_of(local.phase())));
}

std::string OperationBook::flight_record() const {
  std::string text;
  size_t shown = 0;
  for (const auto& [number, local] : operations_) {
    if (++shown > 8) break;
    text += concat("\n  operation ", number, ", ", name_of(local.kind()), " of ", local.operation->bytes,
                   " bytes: ", name_of(local.phase()));
  }
  return text;
}

}  // namespace tcpx
