// The part of a Link that knows what this end has started.
#include <algorithm>
#include <cstring>
#include <new>
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

std::optional<NotifyText> notify_text(const Operation& operation) {
  if (operation.notify == nullptr) return std::nullopt;
  return NotifyText{operation.notify->name, operation.notify->msg};
}

}  // namespace

bool Link::on_gpu(const std::vector<HeldRange>& ranges) {
  return !ranges.empty() && ranges.front().use.region().type == MemoryType::kCuda;
}

void Link::submit(Operation& operation) {
  now_ = shared_.clock.now();
  const auto number = static_cast<uint64_t>(operation.id);
  try {
    local_.try_emplace(number);
  } catch (const std::bad_alloc&) {
    return shared_.operations.finish(operation, Status(Code::kExhausted, "allocate", "out of memory"));
  }
  Local& local = local_.find(number)->second;
  local.operation = &operation;
  local.trace = TraceRange(tcpx::name_of(operation.kind).data(), operation.bytes);
  if (operation.kind == OperationKind::kRecv) {
    // A connection that has ended still has what came whole before.
    const bool has_come = arrivals_.contains(operation.sequence) || cancelled_.contains(operation.sequence);
    if (state_ >= State::kClosing && !has_come) return finish(local, status_);
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
  const bool is_short = operation.bytes <= shared_.inline_bytes;
  switch (operation.kind) {
    case OperationKind::kRecv: {
      local.phase = Phase::kPosted;
      if (cancelled_.erase(operation.sequence)) {
        receives_.erase(operation.sequence);
        return finish(local, Status(Code::kCancelled, "receive", "the sender has given its send up"));
      }
      const auto arrived = arrivals_.find(operation.sequence);
      if (arrived == arrivals_.end()) return;
      return match(local, take_arrival(arrived));
    }
    case OperationKind::kRead:
      return enter(local, Window::kRestOffers);
    case OperationKind::kSend:
      return enter(local, is_short ? Window::kSends : Window::kSendOffers);
    case OperationKind::kWrite:
      return enter(local, is_short ? Window::kRest : Window::kRestOffers);
  }
}

// In order, but for a send whose place is before one that has been announced: the peer may post the receives in order, and then
// nothing would give room before that one.
void Link::enter(Local& local, Window window) {
  const Operation& operation = *local.operation;
  local.phase = Phase::kWindow;
  if (is_for_offers(window) && operation.kind != OperationKind::kRead) {
    const auto prepared = send_lane_.prepare(operation.ranges, preferred_packing(operation.ranges, operation.bytes));
    if (!prepared.is_ok()) return end_early(local, prepared.status());
    local.packing = *prepared;
  }
  local.charge = charge_for(local, window);
  local.waits_since = now_;
  auto& waits = window_waits_[static_cast<size_t>(window)];
  const bool first = waits.empty() || is_late(local);
  if (first && window_open(local)) return pass(local);
  const auto number = static_cast<uint64_t>(operation.id);
  waits.insert(first ? waits.begin() : waits.end(), number);
}

// As the peer counts what it hears.
Charge Link::charge_for(const Local& local, Window window) const {
  const Operation& operation = *local.operation;
  const bool reads = operation.kind == OperationKind::kRead;
  const bool in_frame = reads ? operation.bytes <= peer_.inline_bytes : !is_for_offers(window);
  const bool by_range = window == Window::kSendOffers && local.packing == Packing::kRanges;
  const size_t notify_bytes = operation.notify == nullptr ? 0 : operation.notify->name.size() + operation.notify->msg.size();
  return {window, window_cost(window, in_frame ? operation.bytes : 0, by_range ? operation.ranges.size() : 0,
                              operation.remote.size(), notify_bytes)};
}

bool Link::is_late(const Local& local) const {
  return local.charge.window == Window::kSendOffers && local.operation->sequence < next_announced_;
}

bool Link::window_open(const Local& local) const {
  const auto [window, bytes] = local.charge;
  if (is_for_offers(window) && stream_->backlog() >= kMuchBacklog) return false;
  const uint64_t kept = window == Window::kSendOffers && !is_late(local) ? kLateSendBytes : 0;
  const uint64_t left = window_left_[static_cast<size_t>(window)];
  return left >= kept && left - kept >= bytes;
}

// Sends of several threads may stand here in another order than their receives will be posted in. So whoever waits for long is
// offered like a long message, for which there is a larger window; the rest wait, because that is faster.
bool Link::waits_too_long(const Local& local) const {
  return local.charge.window == Window::kSends && local.operation->bytes > 0 && now_ - local.waits_since >= kWindowPatience;
}

// Takes its part of the window before memory is read. Else those behind it could take all of it meanwhile, which only the peer
// gives back, and the peer may wait for this one; and what was read would keep a slot that other connections need.
void Link::pass(Local& local) {
  const Operation& operation = *local.operation;
  window_left_[static_cast<size_t>(local.charge.window)] -= local.charge.bytes;
  if (operation.kind == OperationKind::kSend) next_announced_ = std::max(next_announced_, operation.sequence + 1);
  if (is_for_offers(local.charge.window)) {
    local.phase = Phase::kOffered;
    return write_offer(local);
  }
  if (on_gpu(operation.ranges)) return queue_copy(local, Phase::kReadOut);
  send_inline(local);
}

// What travels in front of a transfer that goes through the pipeline, or asks for one.
void Link::write_offer(const Local& local) {
  const Operation& operation = *local.operation;
  const auto number = static_cast<uint64_t>(operation.id);
  if (operation.kind == OperationKind::kRead)
    return stream_->send(ReadFrame{.operation = number, .bytes = operation.bytes, .ranges = operation.remote});
  if (operation.kind == OperationKind::kWrite)
    return stream_->send(WriteFrame{.operation = number,
                                    .bytes = operation.bytes,
                                    .packing = local.packing,
                                    .ranges = operation.remote,
                                    .notify = notify_text(operation)});
  std::vector<uint64_t> lengths;
  if (local.packing == Packing::kRanges) lengths = lengths_of(operation.ranges);
  stream_->send(SendFrame{.operation = number,
                          .sequence = operation.sequence,
                          .bytes = operation.bytes,
                          .packing = local.packing,
                          .lengths = lengths,
                          .notify = notify_text(operation)});
}

void Link::send_inline(Local& local) {
  Operation& operation = *local.operation;
  const auto number = static_cast<uint64_t>(operation.id);
  const bool sends = operation.kind == OperationKind::kSend;
  std::span<const std::byte> data;
  if (local.has_copy) {
    data = shared_.copies.bytes_of(local.copy);
  } else if (operation.ranges.size() == 1) {
    data = {operation.ranges.front().data, operation.ranges.front().bytes};
  } else {
    gather(operation.ranges);
    data = scratch_;
  }
  if (sends) {
    stream_->send(
        SendDataFrame{.operation = number, .sequence = operation.sequence, .notify = notify_text(operation), .data = data});
  } else {
    stream_->send(
        WriteDataFrame{.operation = number, .ranges = operation.remote, .notify = notify_text(operation), .data = data});
  }
  ++stats_.inline_sent;
  if (std::exchange(local.has_copy, false)) shared_.copies.release(local.copy);
  local.phase = sends ? Phase::kLeaving : Phase::kAnswer;
  if (sends) leaving_.push_back(number);
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
  const bool others_wait = !copies_.empty() && !local_.find(copies_.back())->second.has_copy;
  copies_.push_back(static_cast<uint64_t>(local.operation->id));
  local.phase = phase;
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
    if (local.phase == Phase::kReadOut) window_left_[static_cast<size_t>(local.charge.window)] += local.charge.bytes;
    if (local.phase == Phase::kReadOut && local.operation->kind == OperationKind::kSend) tell_cancelled(*local.operation, false);
    if (status.is_ok() && local.phase == Phase::kReadOut) status = status_;
    if (status.is_ok() && local.ending.is_ok()) deliver(std::move(local.notify), 0, false, std::exchange(local.held, {}));
    return finish(local, std::move(status));
  }
  send_inline(local);
}

// A receive and the send that it meets.
void Link::match(Local& local, Arrival arrival) {
  Operation& operation = *local.operation;
  receives_.erase(operation.sequence);
  if (arrival.bytes != operation.bytes) {
    Status mismatch(Code::kMismatch, "receive",
                    concat("the sender sends ", arrival.bytes, " bytes, ", operation.bytes, " were posted"));
    refuse_arrival(arrival, mismatch);
    return finish(local, std::move(mismatch));
  }
  if (arrival.with_data) {
    keep_notify(local, std::move(arrival.notify), arrival.charge);
    ++stats_.inline_received;
    return take_data(local, arrival.data);
  }
  Packing packing = arrival.packing;
  if (packing == Packing::kWhole && operation.ranges.size() > 1) packing = Packing::kPacked;
  if (packing == Packing::kRanges && lengths_of(operation.ranges) != arrival.lengths) packing = Packing::kPacked;
  const auto prepared = recv_lane_.prepare(operation.ranges, packing);
  if (!prepared.is_ok()) {
    refuse_arrival(arrival, prepared.status());
    return finish(local, prepared.status());
  }
  keep_notify(local, std::move(arrival.notify), arrival.charge);
  push_receive(local, arrival.number, false, *prepared);
}

void Link::push_receive(Local& local, uint64_t number, bool mine, Packing packing) {
  auto job = std::make_unique<Job>();
  job->operation = local.operation;
  job->number = static_cast<uint64_t>(local.operation->id);
  job->bytes = local.operation->bytes;
  job->packing = packing;
  recv_lane_.push(std::move(job));
  local.phase = Phase::kMoving;  // from here on only the lane ends it
  say_go(number, mine, packing);
}

// The order of these is the order of the jobs in the receiving lane here and in the sending lane there.
void Link::say_go(uint64_t number, bool mine, Packing packing) {
  stream_->send(GoFrame{.operation = number, .of_read = mine, .packing = packing});
}

void Link::take_data(Local& local, std::span<const std::byte> data) {
  if (data.empty() || !on_gpu(local.operation->ranges)) {
    scatter(local.operation->ranges, data);
    deliver(std::move(local.notify), 0, false, std::exchange(local.held, {}));
    return finish(local, Status::ok());
  }
  local.data.assign(data.begin(), data.end());
  queue_copy(local, Phase::kWriteIn);
}

// @param offered the peer has been told of it, and answers
void Link::tell_cancelled(const Operation& operation, bool offered) {
  if (state_ > State::kClosing) return;
  stream_->send(
      CancelFrame{.operation = static_cast<uint64_t>(operation.id), .sequence = operation.sequence, .announced = offered});
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
  if (cancelled_.erase(sequence)) return;
  const auto arrived = arrivals_.find(sequence);
  if (arrived == arrivals_.end()) return given_up_.insert(sequence);
  refuse_arrival(take_arrival(arrived), given_up_by_receiver());
}

Link::Arrival Link::take_arrival(std::unordered_map<uint64_t, Arrival>::iterator arrived) {
  Arrival arrival = std::move(arrived->second);
  arrivals_.erase(arrived);
  return arrival;
}

Status Link::given_up_by_receiver() {
  return Status(Code::kCancelled, "send", "the receiver has given its receive up");
}

// One with data was done before anybody could refuse it.
void Link::refuse_arrival(const Arrival& arrival, const Status& why) {
  give_back(arrival.charge);
  if (!arrival.with_data) answer(arrival.number, why);
}

// What the send's part of the window is kept for, if for anything.
void Link::keep_notify(Local& local, std::unique_ptr<NotifyMsg> notify, const Charge& charge) {
  local.notify = std::move(notify);
  if (local.notify == nullptr) return give_back(charge);
  local.held = charge;
}

// A job has come back from its lane: nothing touches its memory any more.
void Link::end_moved(std::unique_ptr<Job> job, bool received) {
  if (job->operation == nullptr) {
    if (!received) return give_back(job->charge);  // a read of the peer, which knows by its own lane
    if (job->status.is_ok()) return deliver(std::move(job->notify), job->number, true, job->charge);
    give_back(job->charge);
    return answer(job->number, job->status);
  }
  Local& local = local_.find(job->number)->second;
  local.phase = Phase::kAnswer;
  if (local.operation->kind == OperationKind::kWrite && job->status.is_ok() && local.ending.is_ok() && !local.answered) {
    if (state_ >= State::kFailed) finish(local, status_);
    return;
  }
  if (received && job->status.is_ok() && local.ending.is_ok())
    deliver(std::move(local.notify), 0, false, std::exchange(local.held, {}));
  finish(local, local.answered ? local.answer : job->status);
}

}  // namespace tcpx
