// OperationBook: the list of operations that this end has started on one connection. Each is in it from submission to its end, with
// its phase, its deadline, and what is known of its transfer.
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
  Charge charge;                      ///< kWindow, kReadOut: its cost in the peer's window
  Packing packing = Packing::kWhole;  ///< of the offer or the posted receive
  std::vector<std::byte> offers;      ///< kWindow, kOffered: WireOffers
  WaySet ways = 0;                    ///< those of `offers`
  bool has_round = false;             ///< kGpu: it has the ranges of its round, and waits for a lane
  bool begun = false;                 ///< send, write: begun without a Go. Receive: a Posted was sent, so its send may begin
  uint32_t jobs = 0;                  ///< jobs that lanes have
  bool answered = false;              ///< send, write: the peer's answer came before the lane ended the job
  Status answer;
  Status corrupt;                     ///< write: checksums differed; kAnswer waits for the peer to have found that, too
  bool repeated = false;              ///< it has been started once more, or this round of it
  bool written = false;               ///< write: in place, without the peer, which is still to hear of its notification
  bool asks = false;                  ///< write, read: not without asking the peer, though its slots are leased
  Status ending;                      ///< why it ends early; ok: it does not
  TimePoint grace{};                  ///< latest time of its early end
  std::unique_ptr<NotifyMsg> notify;  ///< receive: came with the send
  Charge held;                        ///< receive: given back when the notification is delivered

  uint64_t number() const { return static_cast<uint64_t>(operation->id); }
  OperationKind kind() const { return operation->kind; }
  Phase phase() const { return phase_; }
  /// Goes back to kGpu: for its next round, or once more for the same one.
  void begin_again(bool same_round) {
    charge = {};
    packing = Packing::kWhole;
    offers.clear();
    ways = 0;
    has_round = repeated = same_round;
    begun = false;
    jobs = 0;
    answered = false;
    written = asks = false;
    answer = corrupt = Status();
    phase_ = Phase::kGpu;
  }
  /// Enters the next phase, which must be allowed to follow.
  void enter(Phase next) {
    assert(may_enter(phase_, next, kind()));
    phase_ = next;
  }

 private:
  Phase phase_ = Phase::kGpu;
};

std::unique_ptr<Job> job_of(const LocalOperation& local, Packing packing);

/// Enters kMoving: calls `give` with a job for a lane. From here on only the end of the job ends the operation.
template <class Give>
void start_moving(LocalOperation& local, Packing packing, Give give) {
  give(job_of(local, packing));  // first, because it may throw for want of memory
  if (local.phase() != Phase::kMoving) local.enter(Phase::kMoving);
  ++local.jobs;
}
/// One thread at a time.
class OperationBook {
 public:
  /// @param link must outlive this
  explicit OperationBook(LinkContext& link) : link_(link) {}

  /// @return null: out of memory
  LocalOperation* add(Operation& operation);
  /// @return null: the operation has ended
  LocalOperation* find(uint64_t number) {
    const auto found = operations_.find(number);
    return found == operations_.end() ? nullptr : &found->second;
  }
  /// Ends an operation with `status`, or with the reason of its early end. `local` is gone afterwards, unless a round has ended well
  /// and another one follows: then `local` waits for that.
  void finish(LocalOperation& local, Status status);
  /// Adds an operation in kGpu to `take_waiting`: it waits for the application's GPU work, for its next round, or for a lane.
  void wait(const LocalOperation& local) { waiting_.push_back(local.number()); }
  std::vector<uint64_t> take_waiting() { return std::exchange(waiting_, {}); }
  bool any_waiting() const { return !waiting_.empty(); }
  /// Notes that an operation ends early, but only when nothing touches its memory any more.
  /// @param grace the link must be closed if that takes longer
  void end_later(LocalOperation& local, Status why, TimePoint grace);
  /// Calls `visit` for each operation. `visit` may finish that one, but no other.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto next = operations_.begin(); next != operations_.end();) visit(next++->second);
  }

  /// Call `for_each_late` no later than this.
  TimePoint next_deadline() const { return next_deadline_; }
  /// Calls `end` with kTimeout for each operation whose deadline has passed.
  /// @return kTimeout: an operation did not end within its grace
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
