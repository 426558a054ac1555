// Operations that an application has started and not yet polled to their end.
//
// A slot of the table goes  free -> pending -> ended -> free.  The caller's thread takes a free one and fills it, the progress
// thread alone works on it while it is pending and ends it once, and the poller of its end gives it back. No step takes a lock
// that another thread holds while it works.
//
// One atomic word per slot holds the state and the generation, which is part of the id. So an id says by itself whether the slot
// still is what it names, and an old id never touches the operation that has the slot now.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/gpu_order.h"
#include "base/mutex.h"
#include "endpoint/event_signal.h"
#include "base/memory_registry.h"
#include "endpoint/planned_ranges.h"
#include "wire/messages.h"
#include "tcpx/endpoint.h"

namespace tcpx {

enum class OperationKind : uint8_t { kSend, kRecv, kWrite, kRead };
std::string_view name_of(OperationKind kind);
/// The memory of this end is written.
inline bool is_target(OperationKind kind) {
  return kind == OperationKind::kRecv || kind == OperationKind::kRead;
}

/// Filled by the caller's thread before it is submitted, the progress thread's from then to the end.
struct alignas(64) Operation {
  OperationId id{};
  OperationKind kind = OperationKind::kSend;
  ConnId conn{};
  uint64_t link = 0;      ///< which of the connection's links, when it is made anew
  uint64_t sequence = 0;  ///< kSend, kRecv: which of the connection
  uint64_t bytes = 0;
  std::vector<HeldRange> ranges;
  std::vector<WireRange> remote;          ///< kWrite, kRead: as many as ranges
  std::unique_ptr<PlannedRounds> rounds;  ///< of a plan: `bytes`, `ranges` and `remote` are those of a round at a time
  std::unique_ptr<NotifyMsg> notify;
  std::vector<std::unique_ptr<GpuMark>> after;  ///< memory is touched only when all are reached
  TimePoint submitted_at, deadline;
  Operation* next_submitted = nullptr;  ///< of the queue it is submitted to

  /// The operation will fire `signal` at its end, and keep it until that has been polled. Caller's thread, at most once.
  void set_signal(std::unique_ptr<GpuSignal> signal);
  /// No round comes behind the one it is in.
  bool is_last_round() const { return rounds == nullptr || rounds->done(); }
  /// Somebody wants it to end early. Progress thread.
  bool cancel_requested() const;

 private:
  friend class OperationTable;
  /// Generation, flags and state; see operation.cc.
  std::atomic<uint64_t> word_{0};
  std::atomic<uint32_t> next_free_{0};  ///< while free: index + 1 of the slot below in the list of free ones, 0: none
  std::unique_ptr<GpuSignal> signal_;
  std::atomic<void*> event_{nullptr};  ///< of `signal_`, for threads that may come too late
  Status status_;                      ///< written before the end is shown, read by the one who takes it
};

/// All functions from any thread unless they say otherwise.
class OperationTable {
 public:
  /// @param capacity 1 ... 2^20. Memory is taken in steps of 256 operations as it is needed.
  /// @param ended raised at every end; may be null
  explicit OperationTable(uint32_t capacity, const EventSignal* ended = nullptr);
  ~OperationTable();
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  /// A free slot with a new id, pending; everything else in it is empty.
  /// @return kExhausted: `capacity` operations have not been polled to their end
  Result<Operation*> acquire();
  /// Gives an acquired operation back that was never submitted.
  void abandon(Operation& operation);

  /// The end. Progress thread, once per operation. Releases ranges, marks and notification, fires the GPU's signal, then shows
  /// the state, wakes who waits, and raises the descriptor. `operation` must not be touched afterwards.
  void finish(Operation& operation, Status status);

  /// As Endpoint::poll. Of several threads one gets the end.
  OperationAnswer poll(OperationId id);
  /// True when `id` is neither pending nor ended-and-not-polled.
  bool is_unknown(OperationId id) const;
  /// Waits for the end, without taking it: poll does. Spins for `spin` first.
  /// @return false: still pending at the deadline. True at once for an unknown id.
  bool wait(OperationId id, Deadline deadline, Duration spin);
  /// Marks a pending operation for the progress thread. @return false: not pending
  bool request_cancel(OperationId id);
  /// True once when `request_cancel` has marked operations since the last time. Progress thread.
  bool take_cancel_requests();
  /// The event of a known operation; nullptr without one. kNotFound.
  Result<void*> event_of(OperationId id) const;

  /// Acquired and not given back.
  uint64_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kBlockSlots = 256;

  /// The slot that has had an operation of this id, in any state now; nullptr: none.
  Operation* slot_of(OperationId id) const;
  Operation& at(uint32_t index) const;
  /// An index that nobody else has. @return false: all are taken
  bool take_index(uint32_t& index);
  bool pop_free(uint32_t& index);
  void push_free(uint32_t index);
  void empty(Operation& operation);
  void give_back(Operation& operation);

  const uint32_t capacity_;
  const EventSignal* const signal_;
  /// Published when all its slots are there, never taken away before the end.
  const std::unique_ptr<std::atomic<Operation*>[]> blocks_;
  std::atomic<uint32_t> slots_{0};  ///< that exist
  Mutex grow_mutex_;
  /// Top of the list of free slots: changes so far << 21 | index + 1. A list and not a queue, because the slot used last is warm.
  std::atomic<uint64_t> free_{0};
  std::atomic<uint64_t> outstanding_{0};
  std::atomic<bool> cancel_requested_{false};
};

}  // namespace tcpx
