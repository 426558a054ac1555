// The part of a Link that knows what this end has started.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "endpoint/link.h"
#include "endpoint/link_rules.h"

namespace tcpx {
namespace {

std::vector<uint64_t> lengths_of(const std::vector<HeldRange>& ranges) {
  std::vector<uint64_t> lengths;
  for (const HeldRange& range : ranges) lengths.push_back(range.bytes);
  return lengths;
}

}  // namespace

bool Link::on_gpu(const std::vector<HeldRange>& ranges) {
  return !ranges.empty() && ranges.front().use.region().type == MemoryType::kCuda;
}

void Link::submit(Operation& operation) {
  now_ = shared_.clock.now();
  const auto number = static_cast<uint64_t>(operation.id);
  Local& local = local_[number];
  local.operation = &operation;
  local.trace = TraceRange(tcpx::name_of(operation.kind).data(), operation.bytes);
  if (operation.kind == OperationKind::kRecv) {
    // A connection that has ended still has what came whole before.
    if (state_ >= State::kClosing && !arrivals_.contains(operation.sequence)) return finish(local, status_);
    receives_[operation.sequence] = number;
  } else if (state_ >= State::kClosing) {
    return finish(local, status_);
  }
  note_deadline(operation.deadline);
  if (operation.after.empty()) return start(local);
  gpu_waits_.push_back(number);
}

void Link::notify(std::unique_ptr<Notification> notification) {
  if (state_ == State::kOpen) notify_waits_.push_back(std::move(notification));
}

void Link::start(Local& local) {
  Operation& operation = *local.operation;
  switch (operation.kind) {
    case OperationKind::kRecv: {
      local.phase = Phase::kPosted;
      const auto arrived = arrivals_.find(operation.sequence);
      if (arrived == arrivals_.end()) return;
      return match(local, take_arrival(arrived));
    }
    case OperationKind::kRead:
      return offer(local, ControlType::kRead);
    case OperationKind::kSend:
    case OperationKind::kWrite:
      break;
  }
  if (operation.bytes > shared_.inline_bytes)
    return offer(local, operation.kind == OperationKind::kSend ? ControlType::kSend : ControlType::kWrite);
  local.phase = Phase::kWindow;
  if (waits_of(local).empty() && window_open(local)) return begin_inline(local);
  waits_of(local).push_back(static_cast<uint64_t>(operation.id));
  local.waits_since = now_;
}

// Sends of several threads may stand here in another order than their receives will be posted in. So whoever waits for long is
// offered like a long message, which needs no part of the window; the rest wait, because that is faster.
bool Link::waits_too_long(const Local& local) const {
  return local.operation->kind == OperationKind::kSend && local.operation->bytes > 0 &&
         now_ - local.waits_since >= kWindowPatience;
}

void Link::offer(Local& local, ControlType type) {
  if (stream_->backlog() >= kMuchBacklog) {
    local.phase = Phase::kWindow;
    offer_waits_.push_back(static_cast<uint64_t>(local.operation->id));
    return;
  }
  const Operation& operation = *local.operation;
  Packing packing = Packing::kWhole;
  if (type != ControlType::kRead) {
    const auto prepared = send_lane_.prepare(operation.ranges, preferred_packing(operation.ranges, operation.bytes));
    if (!prepared.is_ok()) {
      local.phase = Phase::kWindow;
      return end_early(local, prepared.status());
    }
    packing = *prepared;
  }
  local.phase = Phase::kOffered;
  write_offer(operation, type, packing);
}

// What travels in front of a transfer that goes through the pipeline, or asks for one.
void Link::write_offer(const Operation& operation, ControlType type, Packing packing) {
  const ControlHeader header =
      make_header(type, static_cast<uint64_t>(operation.id), operation.sequence, operation.bytes, packing);
  OperationPayload payload;
  if (type == ControlType::kSend && packing == Packing::kRanges) payload.lengths = lengths_of(operation.ranges);
  payload.ranges = operation.remote;
  put_notify(operation, payload);
  append_operation_payload(stream_->begin_frame(header), payload);
  stream_->end_frame();
}

void Link::put_notify(const Operation& operation, OperationPayload& payload) {
  if (operation.notify == nullptr) return;
  payload.has_notify = true;
  payload.notify_name = operation.notify->name;
  payload.notify_text = operation.notify->msg;
}

uint64_t& Link::window_left(const Local& local) {
  return window_left_[static_cast<size_t>(window_of(*local.operation))];
}

std::deque<uint64_t>& Link::waits_of(const Local& local) {
  return window_waits_[static_cast<size_t>(window_of(*local.operation))];
}

bool Link::window_open(const Local& local) {
  return window_left(local) >= window_cost(local.operation->bytes);
}

// Takes its part of the window before memory is read. Else those behind it could take all of it meanwhile, which only the peer
// gives back, and the peer may wait for this one; and what was read would keep a slot that other connections need.
void Link::begin_inline(Local& local) {
  window_left(local) -= window_cost(local.operation->bytes);
  if (on_gpu(local.operation->ranges)) return queue_copy(local, Phase::kReadOut);
  send_inline(local);
}

void Link::send_inline(Local& local) {
  Operation& operation = *local.operation;
  const bool sends = operation.kind == OperationKind::kSend;
  OperationPayload payload;
  payload.ranges = operation.remote;
  put_notify(operation, payload);
  if (local.has_copy) {
    payload.data = shared_.copies.bytes_of(local.copy);
  } else if (operation.ranges.size() == 1) {
    payload.data = {operation.ranges.front().data, operation.ranges.front().bytes};
  } else {
    gather(operation.ranges);
    payload.data = scratch_;
  }
  append_operation_payload(
      stream_->begin_frame(make_header(sends ? ControlType::kSendData : ControlType::kWriteData,
                                       static_cast<uint64_t>(operation.id), operation.sequence, operation.bytes)),
      payload);
  stream_->end_frame();
  ++stats_.inline_sent;
  if (std::exchange(local.has_copy, false)) shared_.copies.release(local.copy);
  local.phase = sends ? Phase::kLeaving : Phase::kAnswer;
  if (sends) leaving_.push_back(static_cast<uint64_t>(operation.id));
}

// Host memory, into `scratch_`.
void Link::gather(const std::vector<HeldRange>& ranges) {
  scratch_.clear();
  for (const HeldRange& range : ranges) scratch_.insert(scratch_.end(), range.data, range.data + range.bytes);
}

void Link::scatter(const std::vector<HeldRange>& ranges, std::span<const std::byte> data) {
  for (const HeldRange& range : ranges) {
    if (range.bytes > 0) std::memcpy(range.data, data.data(), range.bytes);
    data = data.subspan(range.bytes);
  }
}

void Link::queue_copy(Local& local, Phase phase) {
  local.phase = phase;
  const bool others_wait = !copies_.empty() && !local_.find(copies_.back())->second.has_copy;
  copies_.push_back(static_cast<uint64_t>(local.operation->id));
  if (!others_wait) (void)begin_copy(local);
}

// @return false: no slot; or it has failed, which end_copy will tell
bool Link::begin_copy(Local& local) {
  auto copy = local.phase == Phase::kReadOut ? shared_.copies.read(local.operation->ranges)
                                             : shared_.copies.write(local.operation->ranges, local.data);
  if (copy.is_ok()) {
    local.copy = *copy;
    local.has_copy = true;
    return true;
  }
  if (copy.status().code() != Code::kExhausted) fail(copy.status());
  return false;
}

void Link::end_copy(Local& local, Status status) {
  if (local.phase == Phase::kWriteIn || !status.is_ok() || !local.ending.is_ok() || state_ >= State::kFailed) {
    if (std::exchange(local.has_copy, false)) shared_.copies.release(local.copy);
    if (local.phase == Phase::kReadOut) window_left(local) += window_cost(local.operation->bytes);
    if (local.phase == Phase::kReadOut && local.operation->kind == OperationKind::kSend) tell_cancelled(*local.operation, false);
    if (status.is_ok() && local.phase == Phase::kReadOut) status = status_;
    if (status.is_ok() && local.ending.is_ok()) deliver(std::move(local.notify), 0, false, 0);
    return finish(local, std::move(status));
  }
  send_inline(local);
}

// A receive and the send that it meets.
void Link::match(Local& local, Arrival arrival) {
  Operation& operation = *local.operation;
  receives_.erase(operation.sequence);
  if (arrival.cancelled) return finish(local, Status(Code::kCancelled, "receive", "the sender has given its send up"));
  if (arrival.bytes != operation.bytes) {
    Status mismatch(Code::kMismatch, "receive",
                    concat("the sender sends ", arrival.bytes, " bytes, ", operation.bytes, " were posted"));
    if (arrival.with_data) {
      give_back(Window::kSends, window_cost(arrival.bytes));
    } else {
      answer(arrival.number, mismatch);
    }
    return finish(local, std::move(mismatch));
  }
  local.notify = std::move(arrival.notify);
  if (arrival.with_data) {
    give_back(Window::kSends, window_cost(arrival.bytes));
    ++stats_.inline_received;
    return take_data(local, arrival.data);
  }
  Packing packing = arrival.packing;
  if (packing == Packing::kWhole && operation.ranges.size() > 1) packing = Packing::kPacked;
  if (packing == Packing::kRanges && lengths_of(operation.ranges) != arrival.lengths) packing = Packing::kPacked;
  const auto prepared = recv_lane_.prepare(operation.ranges, packing);
  if (!prepared.is_ok()) {
    answer(arrival.number, prepared.status());
    return finish(local, prepared.status());
  }
  push_receive(local, arrival.number, false, *prepared);
}

void Link::push_receive(Local& local, uint64_t number, bool mine, Packing packing) {
  auto job = std::make_unique<Job>();
  job->operation = local.operation;
  job->number = static_cast<uint64_t>(local.operation->id);
  job->bytes = local.operation->bytes;
  job->packing = packing;
  local.phase = Phase::kMoving;
  recv_lane_.push(std::move(job));
  say_go(number, mine, packing);
}

// The order of these is the order of the jobs in the receiving lane here and in the sending lane there.
void Link::say_go(uint64_t number, bool mine, Packing packing) {
  stream_->send(make_header(ControlType::kGo, number, mine ? 1 : 0, 0, packing));
}

void Link::take_data(Local& local, std::span<const std::byte> data) {
  if (data.empty() || !on_gpu(local.operation->ranges)) {
    scatter(local.operation->ranges, data);
    deliver(std::move(local.notify), 0, false, 0);
    return finish(local, Status::ok());
  }
  local.data.assign(data.begin(), data.end());
  queue_copy(local, Phase::kWriteIn);
}

// @param offered the peer has been told of it, and answers
void Link::tell_cancelled(const Operation& operation, bool offered) {
  if (state_ > State::kClosing) return;
  stream_->send(make_header(ControlType::kCancel, static_cast<uint64_t>(operation.id), operation.sequence, offered ? 1 : 0));
}

void Link::end_early(Local& local, Status why) {
  Operation& operation = *local.operation;
  const bool sends = operation.kind == OperationKind::kSend;
  switch (local.phase) {
    case Phase::kGpu:
    case Phase::kWindow:
      if (sends) tell_cancelled(operation, false);
      [[fallthrough]];
    case Phase::kPosted:
      if (operation.kind == OperationKind::kRecv) give_up_receive(operation.sequence);
      return finish(local, std::move(why));
    case Phase::kLeaving:
    case Phase::kAnswer:
      return finish(local, std::move(why));
    case Phase::kOffered:
      if (operation.kind == OperationKind::kRead) return finish(local, std::move(why));  // the target hears of it when it asks
      if (sends) tell_cancelled(operation, true);
      break;
    case Phase::kReadOut:
    case Phase::kWriteIn:
    case Phase::kMoving:
      break;
  }
  local.ending = std::move(why);
  const bool gpu_only = local.phase == Phase::kReadOut || local.phase == Phase::kWriteIn;
  local.grace = gpu_only ? TimePoint::max() : now_ + kGrace;
  note_deadline(local.grace);
}

// Its place stays taken: the n-th send meets nobody.
void Link::give_up_receive(uint64_t sequence) {
  receives_.erase(sequence);
  const auto arrived = arrivals_.find(sequence);
  if (arrived == arrivals_.end()) {
    given_up_.insert(sequence);
    return;
  }
  refuse_arrival(take_arrival(arrived));
}

Link::Arrival Link::take_arrival(std::unordered_map<uint64_t, Arrival>::iterator arrived) {
  Arrival arrival = std::move(arrived->second);
  arrivals_.erase(arrived);
  arrived_ranges_ -= arrival.lengths.size();
  return arrival;
}

void Link::refuse_arrival(const Arrival& arrival) {
  if (arrival.cancelled) return;
  if (arrival.with_data) return give_back(Window::kSends, window_cost(arrival.bytes));
  answer(arrival.number, Status(Code::kCancelled, "send", "the receiver has given its receive up"));
}

// A job has come back from its lane: nothing touches its memory any more.
void Link::end_moved(std::unique_ptr<Job> job, bool received) {
  if (job->operation == nullptr) {
    if (!received) return;  // a read of the peer, which knows by its own lane
    if (job->status.is_ok()) return deliver(std::move(job->notify), job->number, true, 0);
    return answer(job->number, job->status);
  }
  Local& local = local_.find(job->number)->second;
  if (local.operation->kind == OperationKind::kWrite && job->status.is_ok() && local.ending.is_ok() && !local.answered) {
    if (state_ >= State::kFailed) return finish(local, status_);
    local.phase = Phase::kAnswer;
    return;
  }
  if (received && job->status.is_ok() && local.ending.is_ok()) deliver(std::move(local.notify), 0, false, 0);
  finish(local, local.answered ? local.answer : job->status);
}

}  // namespace tcpx
