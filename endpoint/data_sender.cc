#include "endpoint/data_sender.h"

#include <utility>

namespace tcpx {

void DataSender::send_short(LocalOperation& local) {
  const Operation& operation = *local.operation;
  if (!is_on_gpu(operation.ranges)) {
    const auto data = gather(operation.ranges, room_);
    return data.is_ok() ? say(local, *data) : give_up(local, data.status());
  }
  copies_.push_read(local.number(), operation.ranges);
  local.enter(Phase::kReadOut);
  link_.break_with(copies_.start());
}

void DataSender::say(LocalOperation& local, std::span<const std::byte> data) {
  const Operation& operation = *local.operation;
  const bool sends = operation.kind == OperationKind::kSend;
  send_with_data(*link_.stream, operation, data);
  ++link_.stats.inline_sent;
  local.enter(sends ? Phase::kLeaving : Phase::kAnswer);
  if (sends) leaving_.push_back(local.number());
}

bool DataSender::end_left() {
  if (leaving_.empty()) return false;
  for (const uint64_t number : leaving_) {
    LocalOperation* const local = book_.find(number);
    if (local != nullptr && local->phase() == Phase::kLeaving) book_.finish(*local, Status::ok());
  }
  leaving_.clear();
  return true;
}

void DataSender::tell_cancelled(const LocalOperation& local, bool announced) {
  using What = CancelFrame::What;
  link_.stream->send(CancelFrame{
      .operation = local.number(), .sequence = local.operation->sequence, .what = announced ? What::kSend : What::kReadOrUntold});
}

Status DataSender::on(const GoFrame& frame) {
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr) return unexpected(frame, "no such operation");
  LocalOperation& local = *found;
  const OperationKind kind = local.operation->kind;
  if (local.phase() != Phase::kOffered || (kind != OperationKind::kSend && kind != OperationKind::kWrite))
    return unexpected(frame, "it was not offered");
  if (is_on_host(frame.packing)) {
    if (!is_offered(frame.packing, way_on_host(local.sources))) return unexpected(frame, kNotOffered);
    if (frame.packing == Packing::kPulled) return end_pulled(local);
    if (!link_.send_shared.gives(local.operation->ranges)) return unexpected(frame, kNotOffered);
    start_moving(local, link_.send_shared);
    return Status::ok();
  }
  // Ranges of nothing are no ranges here, so both ends count the same.
  if (frame.packing == Packing::kWhole && local.operation->ranges.size() != 1) return unexpected(frame, kNoWholeVector);
  start_moving(local, link_.send_lane, frame.packing);
  return Status::ok();
}

// The peer has copied all of it. A write goes on to its answer.
Status DataSender::end_pulled(LocalOperation& local) {
  if (local.kind() == OperationKind::kWrite && local.ending.is_ok()) {
    local.enter(Phase::kAnswer);
  } else {
    book_.finish(local, Status::ok());
  }
  return Status::ok();
}

bool DataSender::progress() {
  bool advanced = false;
  while (!copies_.empty()) {
    LocalOperation& local = *book_.find(copies_.front());
    if (link_.has_failed() && !copies_.front_started()) {
      book_.finish(local, link_.status);
      copies_.pop();
      continue;
    }
    const auto done = copies_.front_done();
    if (done.is_ok() && !*done) break;
    end_copy(local, done.is_ok() ? Status::ok() : done.status());
    copies_.pop();
    advanced = true;
  }
  link_.break_with(copies_.start());
  return advanced;
}

void DataSender::end_copy(LocalOperation& local, Status status) {
  if (status.is_ok() && local.ending.is_ok() && !link_.has_failed()) {
    return say(local, copies_.front_bytes());
  }
  give_up(local, status.is_ok() ? link_.status : std::move(status));
}

// Nothing of it has been said to the peer.
void DataSender::give_up(LocalOperation& local, Status why) {
  link_.windows.put_back(local.charge);
  if (local.kind() == OperationKind::kSend) tell_cancelled(local, false);
  book_.finish(local, std::move(why));
}

}  // namespace tcpx
