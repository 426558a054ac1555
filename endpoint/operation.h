// Operations: what an application has started and not yet polled to its end.
//
// A slot of the table goes  free -> pending -> done or failed -> free.  The caller's thread takes a free one and fills it, the
// progress thread alone works on it while it is pending and ends it once, and whoever polls its end gives it back. No step takes
// a lock that another thread holds while it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/gpu_order.h"
#include "endpoint/memory_registry.h"
#include "endpoint/wire.h"
#include "tcpx/endpoint.h"

namespace tcpx {

enum class OperationKind : uint8_t { kSend, kRecv, kWrite, kRead };
std::string_view name_of(OperationKind kind);

/// One local range of an operation: held, checked.
struct HeldRange {
  RegionUse use;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Filled by the caller's thread before it is submitted, the progress thread's from then to the end.
struct Operation {
  OperationId id{};
  OperationKind kind = OperationKind::kSend;
  ConnId conn{};
  uint64_t sequence = 0;  ///< kSend, kRecv: which of the connection
  uint64_t bytes = 0;
  std::vector<HeldRange> ranges;
  std::vector<WireRange> remote;  ///< kWrite, kRead: as many as ranges
  std::unique_ptr<NotifyMsg> notify;
  std::vector<std::unique_ptr<GpuMark>> after;  ///< memory is touched only when all are reached
  std::unique_ptr<GpuSignal> signal;            ///< fired at the end
  TimePoint submitted_at, deadline;
  std::atomic<bool> cancel{false};  ///< set by any thread, seen by the progress thread
};

/// All functions from any thread unless they say otherwise.
class OperationTable {
 public:
  /// @param capacity 1 ... 2^20. Memory is taken in steps of 256 operations as it is needed.
  explicit OperationTable(uint32_t capacity);
  ~OperationTable();

  /// A free slot with a new id, pending. @return kExhausted: `capacity` operations have not been polled to their end
  Result<Operation*> acquire();
  /// Gives an acquired operation back that was never submitted.
  void abandon(Operation& operation);

  /// The end. Progress thread, once per operation. Releases ranges, marks and notification, fires the signal, then shows the
  /// state and wakes who waits. `operation` must not be touched afterwards.
  void finish(Operation& operation, Status status);

  /// As Endpoint::poll.
  OperationAnswer poll(OperationId id);
  /// True when `id` is neither pending nor ended-and-not-polled.
  bool is_unknown(OperationId id) const;
  /// Waits for the end, without taking it: poll does. Spins for `spin` first. @return false at the deadline
  bool wait(OperationId id, Deadline deadline, Duration spin);
  /// Marks a pending operation for the progress thread. @return false: not pending
  bool request_cancel(OperationId id);
  /// True once when `request_cancel` has been called since the last time. Progress thread.
  bool take_cancel_requests();
  /// The event of a known operation; nullptr without one. kNotFound.
  Result<void*> event_of(OperationId id);

  uint64_t outstanding() const;  ///< acquired and not given back

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tcpx
