// OperationBook: the operations that this end has started on one connection, each from submission to its one end.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/trace_range.h"
#include "endpoint/link_context.h"
#include "endpoint/operation_phase.h"

namespace tcpx {

struct LocalOperation {
  Operation* operation = nullptr;
  TraceRange trace;
  Charge charge;                      ///< kWindow, kReadOut: its cost there
  Packing packing = Packing::kWhole;  ///< of a send or write that is offered
  std::vector<WireSource> sources;    ///< kWindow, kOffered: of the same
  bool begun = false;                 ///< send, write: without a Go. Receive: its send may have, the peer knows of it
  uint32_t jobs = 0;                  ///< that a lane has
  bool answered = false;              ///< send, write: the peer has said how it went, before the lane has
  Status answer;
  Status ending;                      ///< why it ends early; ok: it does not
  TimePoint grace{};                  ///< until when its early end may take
  std::unique_ptr<NotifyMsg> notify;  ///< receive: came with the send
  Charge held;                        ///< receive: by the notification

  uint64_t number() const { return static_cast<uint64_t>(operation->id); }
  OperationKind kind() const { return operation->kind; }
  Phase phase() const { return phase_; }
  /// Goes back to kGpu, for its next round.
  void begin_again() {
    charge = {};
    packing = Packing::kWhole;
    sources.clear();
    begun = false;
    jobs = 0;
    answered = false;
    answer = Status();
    phase_ = Phase::kGpu;
  }
  /// Goes on to a phase that may follow.
  void enter(Phase next) {
    assert(may_enter(phase_, next, kind()));
    phase_ = next;
  }

 private:
  Phase phase_ = Phase::kGpu;
};

std::unique_ptr<Job> job_of(const LocalOperation& local, Packing packing);

/// Calls `give` with its job for a lane, which alone ends it from here on.
template <class Give>
void start_moving(LocalOperation& local, Packing packing, Give give) {
  give(job_of(local, packing));  // before anything is changed, because it may want memory
  if (local.phase() != Phase::kMoving) local.enter(Phase::kMoving);
  ++local.jobs;
}
/// One thread at a time.
class OperationBook {
 public:
  /// @param link must outlive this
  explicit OperationBook(LinkContext& link) : link_(link) {}

  /// @return null: there is no memory for it
  LocalOperation* add(Operation& operation);
  /// @return null: it has ended
  LocalOperation* find(uint64_t number) {
    const auto found = operations_.find(number);
    return found == operations_.end() ? nullptr : &found->second;
  }
  /// The end: with `status`, or with why it ends early. `local` is gone afterwards, unless a round of it has ended well and another
  /// one is to come: then it `waits`.
  void finish(LocalOperation& local, Status status);
  /// It comes up in `take_waiting`: in kGpu, for the application's GPU work or its next round.
  void wait(const LocalOperation& local) { waiting_.push_back(local.number()); }
  std::vector<uint64_t> take_waiting() { return std::exchange(waiting_, {}); }
  bool any_waiting() const { return !waiting_.empty(); }
  /// It ends early, but not before nothing touches its memory any more.
  /// @param grace the link has to be closed when that takes longer
  void end_later(LocalOperation& local, Status why, TimePoint grace);
  /// Calls `visit` for each, which may finish it and no other.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto next = operations_.begin(); next != operations_.end();) visit(next++->second);
  }

  /// When `for_each_late` is to be called, at the latest.
  TimePoint next_deadline() const { return next_deadline_; }
  /// Calls `end` for each whose deadline has passed, with kTimeout.
  /// @return kTimeout when one has not ended early within its grace
  template <class End>
  Status for_each_late(End end) {
    Status stuck;
    next_deadline_ = TimePoint::max();
    for_each([&](LocalOperation& local) {
      const bool ends = !local.ending.is_ok();
      const TimePoint at = ends ? local.grace : local.operation->deadline;
      if (link_.now < at) return note_deadline(at);
      if (ends) {
        stuck = too_slow(local);
      } else {
        end(local, too_late(local));
      }
    });
    return stuck;
  }

  bool empty() const { return operations_.empty(); }
  size_t size() const { return operations_.size(); }
  /// A line for each of the first few.
  std::string flight_record() const;

 private:
  void note_deadline(TimePoint at);
  Status too_slow(const LocalOperation& local) const;
  Status too_late(const LocalOperation& local) const;

  LinkContext& link_;
  std::unordered_map<uint64_t, LocalOperation> operations_;
  std::vector<uint64_t> waiting_;
  TimePoint next_deadline_ = TimePoint::max();
};

}  // namespace tcpx
