// OperationTable: the operations that an application has started and not yet polled to their end.
//
// A slot of the table goes  free -> pending -> ended -> free.  The caller's thread takes a free slot and fills it. The progress thread
// alone works on it while it is pending, and ends it once. The thread that polls the end gives the slot back. No step takes a lock
// that another thread holds while it works.
//
// One atomic word per slot holds the state and the generation, which is part of the id. So an id tells whether its operation still
// has the slot, and an old id never touches the operation that has the slot now.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/gpu_order.h"
#include "base/memory_registry.h"
#include "base/mutex.h"
#include "endpoint/event_signal.h"
#include "endpoint/planned_ranges.h"
#include "endpoint/submission_queue.h"
#include "tcpx/endpoint.h"
#include "wire/messages.h"

namespace tcpx {

enum class OperationKind : uint8_t { kSend, kRecv, kWrite, kRead };
std::string_view name_of(OperationKind kind);
/// True if the operation writes memory of this end.
inline bool is_target(OperationKind kind) {
  return kind == OperationKind::kRecv || kind == OperationKind::kRead;
}

/// The caller's thread fills it before submitting it; from then to the end it belongs to the progress thread.
struct alignas(64) Operation {
  OperationId id{};
  OperationKind kind = OperationKind::kSend;
  ConnId conn{};
  uint64_t link = 0;      ///< Connection::link
  uint64_t sequence = 0;  ///< kSend, kRecv: number among those of the connection, from 0
  uint64_t bytes = 0;
  std::vector<RegionUse> uses;  ///< of the regions of `ranges`; what has parts holds those of all its parts
  std::vector<HeldRange> ranges;
  std::vector<WireRange> remote;          ///< kWrite, kRead: as many as `ranges`
  std::pair<size_t, size_t> named;        ///< of the ranges or blocks that the call names: begin and end of those in `ranges`
  std::unique_ptr<PlannedRounds> rounds;  ///< of a plan: `bytes`, `ranges` and `remote` are those of the current round
  std::unique_ptr<NotifyMsg> notify;
  std::vector<std::unique_ptr<GpuMark>> after;  ///< memory is touched only when all are reached
  TimePoint submitted_at, deadline;
  Operation* next_submitted = nullptr;  ///< used by SubmissionQueue
  /// Of a part: the operation that it is a part of, which is never submitted and ends with its last part.
  Operation* whole = nullptr;

  /// Fires `signal` at the end and keeps it until the end has been polled. Caller's thread, at most once.
  void set_signal(std::unique_ptr<GpuSignal> signal);
  /// True when no round follows the current one.
  bool is_last_round() const { return rounds == nullptr || rounds->done(); }
  /// True when a caller wants it, or what it is a part of, to end early. Progress thread.
  bool cancel_requested() const;
  /// If it ends well now, all that it is a part of has ended well. Progress thread.
  bool ends_whole() const { return whole == nullptr || (whole->parts_ == 1 && whole->status_.is_ok()); }
  /// If it fails now, this is the first failure of what it is a part of. Progress thread.
  bool fails_whole() const { return whole == nullptr || whole->status_.is_ok(); }

 private:
  friend class OperationTable;
  /// Generation, flags and state; see operation.cc.
  std::atomic<uint64_t> word_{0};
  std::atomic<uint32_t> next_free_{0};  ///< while free: index + 1 of the slot below in the free list, 0: none
  size_t kept_bytes_ = 0;               ///< of its lists, when the slot was emptied last
  std::unique_ptr<GpuSignal> signal_;
  std::atomic<void*> event_{nullptr};  ///< of `signal_`, for threads that may read it after the slot has been reused
  Status status_;                      ///< written before the end becomes visible, read by the thread that takes the end
  uint32_t parts_ = 0;                 ///< of a whole: those that have not ended, `last_part_` included
  Operation* last_part_ = nullptr;     ///< of a whole: begins when all others have ended well
};

/// Any thread, unless a function says otherwise.
class OperationTable {
 public:
  /// @param capacity 1 ... 2^20. Memory is taken in steps of 256 operations as it is needed.
  /// @param ended raised at every end; may be null
  explicit OperationTable(uint32_t capacity, const EventSignal* ended = nullptr);
  ~OperationTable();
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  /// A free slot with a new id and this kind, pending; everything else in it is empty.
  /// @return kExhausted: `capacity` operations have not been polled to their end
  Result<Operation*> acquire(OperationKind kind = OperationKind::kSend);
  /// Gives back an acquired operation whose end nobody will poll.
  void abandon(Operation& operation);
  /// Makes one operation of several, before they are submitted: it ends when they have ended, with the first error of them, and nobody
  /// else hears of their ends.
  /// @param parts at least one. @param last nullptr, or one more part, which begins when all others have ended well
  void join(Operation& whole, std::span<Operation* const> parts, Operation* last);

  /// Ends an operation. Progress thread, once per operation. Releases ranges, marks and notification, fires the GPU's signal, then makes
  /// the end visible, wakes waiting threads, and raises the descriptor. `operation` must not be touched afterwards.
  void finish(Operation& operation, Status status);
  /// Last parts whose turn has come are pushed to `queue`. Call it before anything is submitted.
  void submit_last_parts_to(SubmissionQueue<Operation>& queue) { last_parts_ = &queue; }

  /// As Endpoint::poll. If several threads poll, one gets the end.
  OperationAnswer poll(OperationId id);
  /// True when `id` is neither pending nor ended-and-not-polled.
  bool is_unknown(OperationId id) const;
  /// True when it has not ended.
  bool is_pending(OperationId id) const;
  /// Waits for the end without taking it (`poll` does). Spins for `spin` first.
  /// @return false: still pending at the deadline. True at once for an unknown id.
  bool wait(OperationId id, Deadline deadline, Duration spin);
  /// Marks a pending operation for the progress thread. @return false: not pending
  bool request_cancel(OperationId id);
  /// True if `request_cancel` has marked operations since the last call. Progress thread.
  bool take_cancel_requests();
  /// @return the event of a known operation, nullptr: it has none; kNotFound
  Result<void*> event_of(OperationId id) const;

  /// Operations acquired and not given back.
  uint64_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }
  /// Outstanding operations that are no receives, which are posted ahead and wait for the peer. Not exact while others start or end.
  uint64_t outstanding_but_receives() const { return outstanding() - receives_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kBlockSlots = 256;

  /// The slot of this id's index, which another operation may have now; nullptr: there is none.
  Operation* slot_of(OperationId id) const;
  Operation& at(uint32_t index) const;
  /// Takes a free slot. @return false: all are taken
  bool take_index(uint32_t& index);
  bool pop_free(uint32_t& index);
  void push_free(uint32_t index);
  void empty(Operation& operation);
  void keep_lists(Operation& operation);
  void give_back(Operation& operation);
  void finish_part(Operation& part, Status status);

  const uint32_t capacity_;
  const EventSignal* const signal_;
  SubmissionQueue<Operation>* last_parts_ = nullptr;
  /// A block is published with all its slots, and stays until the table ends.
  const std::unique_ptr<std::atomic<Operation*>[]> blocks_;
  std::atomic<uint32_t> slots_{0};  ///< existing slots
  Mutex grow_mutex_;
  /// Top of the free list: changes so far << 21 | index + 1. Last in, first out, because the slot used last is warm in the cache.
  std::atomic<uint64_t> free_{0};
  std::atomic<uint64_t> outstanding_{0}, receives_{0};
  std::atomic<size_t> kept_bytes_{0};  ///< of all slots
  std::atomic<bool> cancel_requested_{false};
};

/// An operation that is being filled, and those that will be its parts. What is not let go is abandoned. One thread.
class NewOperations {
 public:
  explicit NewOperations(OperationTable& table) : table_(table) {}
  ~NewOperations() { drop_to(0); }
  NewOperations(const NewOperations&) = delete;
  NewOperations& operator=(const NewOperations&) = delete;

  /// Call it once. @return as OperationTable::acquire
  Result<Operation*> first(OperationKind kind);
  /// Adds `count`, at most kMaxParts + 1, with kind, connection and times of the first. @return false: there are not so many, none was added
  bool add(size_t count);
  std::span<Operation* const> all() const { return std::span(all_).first(count_); }
  void let_go() { count_ = 0; }

 private:
  void drop_to(size_t count);

  OperationTable& table_;
  std::array<Operation*, kMaxParts + 2> all_;
  size_t count_ = 0;
};

}  // namespace tcpx
