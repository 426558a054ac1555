#include "endpoint/local_operations.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Fewer bytes of host memory go sooner in a frame to or from a peer that is awake: to copy them by oneself takes six system calls.
constexpr uint64_t kLeastLeased = 8192;

Result<bool> is_reached(const std::vector<std::unique_ptr<GpuMark>>& marks) {
  bool all = true;
  for (const auto& mark : marks) {
    const auto reached = mark->reached();
    if (!reached.is_ok()) return reached;
    all &= *reached;
  }
  return all;
}

}  // namespace

void LocalOperations::submit(Operation& operation) {
  LocalOperation* const added = book_.add(operation);
  if (added == nullptr) return link_.shared.operations.finish(operation, Status(Code::kExhausted, "allocate", "out of memory"));
  LocalOperation& local = *added;
  const bool receives = operation.kind == OperationKind::kRecv;
  // Data that had come whole before the connection ended can still be received.
  if (link_.stage >= LinkStage::kClosing && !(receives && receiver_.has_come(operation.sequence)))
    return book_.finish(local, link_.status);
  if (receives) receiver_.submit(local);
  if (operation.after.empty()) {
    (void)start(local);
  } else {
    book_.wait(local);
  }
}

bool LocalOperations::are_lanes_ready(const Operation& operation) {
  const bool receives = is_target(operation.kind);
  if (operation.bytes <= (receives ? link_.peer.inline_bytes : link_.inline_bytes)) return true;
  const Packing wanted = preferred_packing(operation.ranges, operation.bytes);
  return receives ? link_.lanes.is_ready_to_take(operation.ranges, wanted)
                  : link_.lanes.is_ready_to_offer(operation.ranges, wanted);
}

// @return false: a lane is not ready, and the operation waits
bool LocalOperations::start(LocalOperation& local) {
  Operation& operation = *local.operation;
  if (operation.rounds != nullptr && !std::exchange(local.has_round, true)) operation.rounds->next(operation);
  if (start_leased(local)) return true;
  if (!are_lanes_ready(operation)) {
    book_.wait(local);
    return false;
  }
  bool in_frame = operation.bytes <= link_.inline_bytes;
  // A send in a frame is done before its receive has been posted, which applications may count on.
  if (operation.kind == OperationKind::kWrite && in_frame) in_frame = !link_.lanes.beats_frames(operation.ranges);
  switch (operation.kind) {
    case OperationKind::kRecv:
      receiver_.post(local);
      break;
    case OperationKind::kRead:
      enter(local, Window::kRestOffers);
      break;
    case OperationKind::kSend:
      enter(local, in_frame ? Window::kSends : Window::kSendOffers);
      break;
    case OperationKind::kWrite:
      enter(local, in_frame ? Window::kRest : Window::kRestOffers);
      break;
  }
  return true;
}

// A write or read of slots that this end may use without asking. @return false: ask
bool LocalOperations::start_leased(LocalOperation& local) {
  const Operation& operation = *local.operation;
  const bool writes = operation.kind == OperationKind::kWrite;
  if ((!writes && operation.kind != OperationKind::kRead) || local.asks || operation.bytes == 0) return false;
  if (operation.bytes < kLeastLeased && !is_on_gpu(operation.ranges) && !link_.stream->peer_sleeps()) return false;
  auto job = job_of(local, Packing::kWhole);
  job->alone = link_.shared.operations.outstanding_but_receives() == 1;
  if (!link_.lanes.move_leased(job, operation.remote, writes)) return false;
  local.enter(Phase::kMoving);
  ++local.jobs;
  return true;
}

bool LocalOperations::progress_waiting() {
  bool advanced = false;
  // Taken out first, because a start may fail the link, which clears the list.
  for (const uint64_t number : book_.take_waiting()) {
    LocalOperation* const local = book_.find(number);
    if (local == nullptr || local->phase() != Phase::kGpu) continue;
    const Result<bool> ready = is_reached(local->operation->after);
    if (ready.is_ok() && !*ready) {
      book_.wait(*local);
      continue;
    }
    if (ready.is_ok()) {
      advanced |= start(*local);
    } else {
      end_early(*local, ready.status());
      advanced = true;
    }
  }
  const auto still_waits = [this](uint64_t number) {
    const LocalOperation* const local = book_.find(number);
    return local != nullptr && local->phase() == Phase::kWindow;
  };
  const auto can_be_offered = [this](uint64_t number) {
    const Operation& operation = *book_.find(number)->operation;
    return operation.bytes > 0 &&
           link_.lanes.is_ready_to_offer(operation.ranges, preferred_packing(operation.ranges, operation.bytes));
  };
  while (link_.broken.is_ok()) {
    const auto turn = window_queue_.next(link_.now, still_waits, can_be_offered);
    if (!turn) break;
    LocalOperation& local = *book_.find(turn->operation);
    if (turn->passes) {
      pass(local);
    } else {
      enter(local, Window::kSendOffers);
    }
    advanced = true;
  }
  return advanced;
}

void LocalOperations::enter(LocalOperation& local, Window window) {
  const Operation& operation = *local.operation;
  local.enter(Phase::kWindow);
  const bool reads = operation.kind == OperationKind::kRead;
  if (is_for_offers(window) && !reads) {
    const std::vector<RegionUse>& uses = (operation.whole != nullptr ? operation.whole : &operation)->uses;
    auto offer = link_.lanes.offer({.operation = local.number()}, operation.ranges, operation.bytes, true, uses);
    if (!offer.is_ok()) return end_early(local, offer.status());
    local.packing = offer->packing;
    local.offers = std::move(offer->others);
    local.ways = offer->ways;
  } else if (is_for_offers(window) && link_.eager && operation.bytes > link_.peer.inline_bytes) {
    const auto prepared = link_.lanes.prepare_recv(operation.ranges, preferred_packing(operation.ranges, operation.bytes));
    if (!prepared.is_ok()) return end_early(local, prepared.status());
    local.packing = *prepared;
  }
  local.charge = charge_of(operation, window, local.packing, link_.peer.inline_bytes, local.offers.size());
  WindowQueue::Waiter waiter{.operation = local.number(), .charge = local.charge, .sequence = {}, .since = link_.now};
  if (operation.kind == OperationKind::kSend) waiter.sequence = operation.sequence;
  if (window_queue_.enter(waiter)) pass(local);
}

// The operation takes its part of the window before its memory is read. Otherwise operations behind it could take the whole window
// meanwhile, while the peer waits for this one, and its bytes would occupy a slot of InlineCopies that other connections need.
void LocalOperations::pass(LocalOperation& local) {
  const Operation& operation = *local.operation;
  if (local.written) return sender_.send_notify(local);
  if (!is_for_offers(local.charge.window)) return sender_.send_short(local);
  local.begun = sender_.may_begin(local);
  announce(*link_.stream, operation, local.packing, local.offers, local.begun);
  if (!local.begun) return local.enter(Phase::kOffered);
  start_moving(local, local.packing, [this](auto job) { link_.lanes.send_begun(std::move(job)); });
}

Status LocalOperations::on(const DoneFrame& frame) {
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr) {  // the operation was given up in the meantime
    receiver_.forget_read(frame.operation);
    return Status::ok();
  }
  LocalOperation& local = *found;
  // A begun send gets an answer only if its receive was given up.
  if (local.phase() == Phase::kMoving &&
      (local.kind() == OperationKind::kWrite || (local.kind() == OperationKind::kSend && local.begun))) {
    local.answered = true;
    local.answer = frame.status;
    return Status::ok();
  }
  const bool refused = local.phase() == Phase::kOffered && !frame.status.is_ok();
  if (local.phase() != Phase::kAnswer && !refused) return unexpected(frame, "it is not waiting for an answer");
  if (!local.corrupt.is_ok()) {
    end_corrupt(local, local.corrupt, frame.status.code());
    return Status::ok();
  }
  book_.finish(local, frame.status);
  return Status::ok();
}

void LocalOperations::end_moved(const Job& job, bool received) {
  LocalOperation& local = *book_.find(job.number);
  if (local.jobs > 1) {  // a begun write got a Go, and its second job is still under way
    --local.jobs;
    return;
  }
  if (job.lease == Job::Lease::kEnded && local.ending.is_ok()) {
    if (link_.has_failed()) return book_.finish(local, link_.status);
    book_.wait(local);
    local.begin_again(true);
    local.asks = true;
    return;
  }
  const bool well = job.status.is_ok() && local.ending.is_ok();
  if (local.kind() == OperationKind::kWrite && well && job.lease == Job::Lease::kLasts) return end_written(local);
  if (local.kind() == OperationKind::kWrite && well && !local.answered) {
    if (link_.has_failed()) return book_.finish(local, link_.status);
    local.jobs = 0;
    return local.enter(Phase::kAnswer);
  }
  if (received && well) receiver_.deliver_notify(local);
  // Both ends have found that checksums differ, and the own message names what the caller knows.
  if (job.status.code() == Code::kCorrupt) {
    const bool writes = local.kind() == OperationKind::kWrite;
    if (!writes || local.answered || !may_repeat(local))
      return end_corrupt(local, job.status, writes ? local.answer.code() : Code::kCorrupt);
    // The answer may still come, and would be taken for that to the repetition, which has the same number.
    local.corrupt = job.status;
    local.jobs = 0;
    return local.enter(Phase::kAnswer);
  }
  book_.finish(local, local.answered ? local.answer : job.status);
}

// Without the peer. It still has to hear of a notification, which has arrived as far as this end is concerned once it lies in the memory
// that both share.
void LocalOperations::end_written(LocalOperation& local) {
  const auto notify = notify_of(*local.operation);
  if (!notify) return book_.finish(local, Status::ok());
  if (link_.has_failed()) return book_.finish(local, link_.status);
  local.written = true;
  local.enter(Phase::kWindow);
  local.charge = charge_of(*notify);
  if (window_queue_.enter({.operation = local.number(), .charge = local.charge, .sequence = {}, .since = link_.now})) pass(local);
}

bool LocalOperations::may_repeat(const LocalOperation& local) const {
  const bool one_sided = local.kind() == OperationKind::kWrite || local.kind() == OperationKind::kRead;
  return one_sided && link_.shared.repeats && !local.repeated && local.ending.is_ok() && link_.stage == LinkStage::kOpen;
}

// Nothing more comes for what the peer has found corrupt, too: its answer to a write was the last frame, and a reader has told its sum
// before it asks again. A send is not repeated, because its receive has ended at the peer.
void LocalOperations::end_corrupt(LocalOperation& local, const Status& found, Code at_peer) {
  if (at_peer != Code::kCorrupt || !may_repeat(local)) return book_.finish(local, found);
  log(LogLevel::kWarning, "started once more: ", found.to_string());
  book_.wait(local);  // what may want memory is done before the operation changes
  ++link_.stats.operations_repeated;
  local.begin_again(true);
}

void LocalOperations::end_early(LocalOperation& local, Status why) {
  const OperationKind kind = local.kind();
  switch (early_end_of(local.phase(), kind)) {
    case EarlyEnd::kUntold:
      if (kind == OperationKind::kSend) sender_.tell_cancelled(local, false);
      if (kind == OperationKind::kRecv) receiver_.give_up(local);
      return book_.finish(local, std::move(why));
    case EarlyEnd::kAtOnce:
      if (kind == OperationKind::kRead) receiver_.give_up_read(local);
      return book_.finish(local, std::move(why));
    case EarlyEnd::kAsksPeer:
      if (kind == OperationKind::kSend) {
        sender_.tell_cancelled(local, true);
      } else {  // a write: at the peer, its target may still wait for the GPU
        link_.stream->send(CancelFrame{.operation = local.number(), .what = CancelFrame::What::kWrite});
      }
      return book_.end_later(local, std::move(why), link_.now + kGrace);
    case EarlyEnd::kAfterTransfer:
      return book_.end_later(local, std::move(why), link_.now + kGrace);
    case EarlyEnd::kAfterCopy:
      return book_.end_later(local, std::move(why), TimePoint::max());
  }
}

void LocalOperations::take_cancel_requests() {
  book_.for_each([this](LocalOperation& local) {
    if (local.ending.is_ok() && local.operation->cancel_requested())
      end_early(local, Status(Code::kCancelled, "cancel", "given up by the caller"));
  });
}

void LocalOperations::cancel_all(const Status& why) {
  book_.for_each([&](LocalOperation& local) {
    if (local.ending.is_ok()) end_early(local, why);
  });
}

Status LocalOperations::end_late() {
  return book_.for_each_late([this](LocalOperation& local, Status late) { end_early(local, std::move(late)); });
}

void LocalOperations::end_all() {
  book_.for_each([this](LocalOperation& local) {
    if (!touches_memory(local.phase(), local.kind())) book_.finish(local, link_.status);
  });
  receiver_.end();
  sender_.end();
  (void)book_.take_waiting();
  window_queue_.clear();
}

void LocalOperations::end_rest() {
  book_.for_each([this](LocalOperation& local) { book_.finish(local, link_.status); });
}

}  // namespace tcpx
