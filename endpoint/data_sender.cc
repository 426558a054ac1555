#include "endpoint/data_sender.h"

#include <utility>

namespace tcpx {
namespace {

// A transfer begins before its Go only while the sending lane has at most this many bytes: what has begun cannot be taken back.
constexpr uint64_t kBegunBytes = 16u << 20;
// Posted receives of the peer that are remembered for sends to come.
constexpr size_t kMaxPosted = 1024;

}  // namespace

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

void DataSender::send_notify(LocalOperation& local) {
  link_.stream->send(NotifyFrame{.notify = *notify_of(*local.operation)});
  local.enter(Phase::kLeaving);
  leaving_.push_back(local.number());
}

void DataSender::say(LocalOperation& local, std::span<const std::byte> data) {
  const Operation& operation = *local.operation;
  const bool sends = operation.kind == OperationKind::kSend;
  send_with_data(*link_.stream, operation, data);
  ++link_.stats.inline_sent;
  local.enter(sends ? Phase::kLeaving : Phase::kAnswer);
  if (sends) leaving_.push_back(local.number());
}

void DataSender::end_left() {
  for (const uint64_t number : leaving_) {
    LocalOperation* const local = book_.find(number);
    if (local != nullptr && local->phase() == Phase::kLeaving) book_.finish(*local, Status::ok());
  }
  leaving_.clear();
}

void DataSender::tell_cancelled(const LocalOperation& local, bool announced) {
  using What = CancelFrame::What;
  link_.stream->send(CancelFrame{
      .operation = local.number(), .sequence = local.operation->sequence, .what = announced ? What::kSend : What::kReadOrUntold});
}

bool DataSender::may_begin(LocalOperation& local) {
  const Operation& operation = *local.operation;
  if (!link_.eager || operation.kind == OperationKind::kRead) return false;
  const uint64_t queued = link_.lanes.bytes_to_send();
  const bool has_room = queued == 0 || queued + operation.bytes <= kBegunBytes;
  if (operation.kind == OperationKind::kWrite) return has_room && link_.begins_writes;
  const auto found = posted_.find(operation.sequence);
  if (found == posted_.end()) return false;
  const PostedFrame posted = found->second;
  posted_.erase(found);
  if (!has_room || posted.bytes != operation.bytes) return false;
  if (posted.packing == local.packing) return true;
  // kRanges cannot change any more: the lengths of the ranges are part of the charge.
  if (posted.packing != Packing::kPacked || local.packing != Packing::kWhole) return false;
  if (!link_.lanes.is_ready_to_offer(operation.ranges, Packing::kPacked)) return false;
  if (!link_.lanes.prepare_send(operation.ranges, Packing::kPacked).is_ok()) return false;
  local.packing = Packing::kPacked;
  return true;
}

Status DataSender::on(const PostedFrame& frame) {
  if (!link_.eager || frame.packing == Packing::kRanges) return unexpected(frame.kType, frame.sequence, "not on this link");
  if (frame.bytes == 0) {
    posted_.erase(frame.sequence);
    return Status::ok();
  }
  posted_[frame.sequence] = frame;
  if (posted_.size() > kMaxPosted) posted_.erase(posted_.begin());  // the oldest, whose send may have gone before
  return Status::ok();
}

Status DataSender::on(const GoFrame& frame) {
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr) {
    if (!link_.eager) return unexpected(frame, "no such operation");
    tell_gone(frame.operation);
    return Status::ok();
  }
  LocalOperation& local = *found;
  const OperationKind kind = local.operation->kind;
  const bool again = kind == OperationKind::kWrite && std::exchange(local.begun, false);
  if (!again && (local.phase() != Phase::kOffered || (kind != OperationKind::kSend && kind != OperationKind::kWrite)))
    return unexpected(frame, "it was not offered");
  if (again) {
    link_.begins_writes = false;
    if (!local.ending.is_ok()) {
      tell_gone(frame.operation);
      return Status::ok();
    }
  }
  const std::string_view objection = link_.lanes.objection_to(frame, local.operation->ranges, local.ways);
  if (!objection.empty()) return unexpected(frame, objection);
  start_moving(local, frame.packing, [&](auto job) { link_.lanes.send(std::move(job), frame); });
  return Status::ok();
}

void DataSender::tell_gone(uint64_t write) {
  link_.stream->send(CancelFrame{.operation = write, .what = CancelFrame::What::kGone});
}

bool DataSender::progress() {
  const auto end = [this](Status copied) { end_copy(*book_.find(copies_.front()), std::move(copied)); };
  const auto drop = [this] { book_.finish(*book_.find(copies_.front()), link_.status); };
  const bool advanced = copies_.end_those_done(link_.has_failed(), end, drop);
  link_.break_with(copies_.start());
  return advanced;
}

void DataSender::end_copy(LocalOperation& local, Status status) {
  if (status.is_ok() && local.ending.is_ok() && !link_.has_failed()) {
    return say(local, copies_.front_bytes());
  }
  give_up(local, status.is_ok() ? link_.status : std::move(status));
}

// For an operation that the peer has not been told of.
void DataSender::give_up(LocalOperation& local, Status why) {
  link_.windows.put_back(local.charge);
  if (local.kind() == OperationKind::kSend) tell_cancelled(local, false);
  book_.finish(local, std::move(why));
}

}  // namespace tcpx
