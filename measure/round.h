// A round: some transfers of one size, back to back or to and fro, from the moment both ends are ready to the last completion.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "measure/test_memory.h"
#include "transfer/pipeline.h"

namespace tcpx {

/// One thread at a time. After an error only destruction.
class TransferSeries {
 public:
  struct Plan {
    RegisteredMemory memory;
    uint64_t bytes = 0;
    /// Most that are submitted at once: chunks of several channels end in any order, so these must lie apart.
    uint64_t window = 1;
    std::function<uint64_t(uint64_t transfer)> offset_of;  ///< of a transfer, by its number, in `memory`
  };

  /// @param connection must outlive the series.
  explicit TransferSeries(Pipeline& pipeline) : pipeline_(pipeline) {}

  /// Begins anew with the transfer numbered `first`. Nothing is in flight.
  void start(Plan plan, uint64_t first = 0);
  /// Lets `count` more transfers go.
  void allow(uint64_t count) { end_ += count; }
  /// Submits what may go, as far as there is room, and drives the connection. @return whether anything happened.
  Result<bool> progress();
  /// Transfers of this start that are sent, or where they belong.
  uint64_t finished() const { return finished_ - begin_; }
  /// All that were allowed are finished.
  bool is_done() const { return finished_ == end_; }

 private:
  Status submit();
  Result<bool> finish();

  Pipeline& pipeline_;
  Plan plan_;
  // Numbers of transfers: begin_ <= finished_ <= submitted_ <= end_, of which no more than the window are submitted.
  uint64_t begin_ = 0, finished_ = 0, submitted_ = 0, end_ = 0;
  std::vector<TransferId> ids_;
};

/// Bytes that went through one network interface.
using NicBytes = std::map<std::string, uint64_t>;

/// One direction of an end.
struct Half {
  TestMemory memory;
  std::unique_ptr<Pipeline> pipeline;  // goes before its memory
  RegisteredMemory registered;

  /// Takes what opening the connection gave, and registers `memory` with it.
  Status take(Result<std::unique_ptr<Pipeline>> opened);
};

struct RoundPlan {
  bool ping_pong = false;  ///< one transfer at a time, there and back
  bool begins = false;     ///< then: this end sends first
  uint64_t bytes = 0;
  uint64_t stride = 0;     ///< transfer i of the round lies at i times as many bytes; at least `bytes`
  uint32_t transfers = 0;  ///< each way, at least 1
};

struct RoundWait {
  Deadline deadline;
  const std::atomic<bool>* stop = nullptr;
  /// Called about ten times a second with the transfers done; must not block. An error ends the round with it.
  std::function<Status(uint32_t done)> on_tick;
};

/// Times of a round at this end.
struct RoundTimes {
  /// Of each transfer: from the completion before it, or the begin of the round, to its completion; of receives where this end
  /// receives, else of sends; those seen to complete at once share the time. Ping-pong: half of the round trip at the end that
  /// begins, nothing at the other.
  std::vector<uint64_t> samples_ns;
  uint64_t busy_ns = 0;
  uint64_t cpu_ns = 0;
  NicBytes nics;
};

/// Both ends call it at once, behind a barrier.
/// @param send, receive null where this end does not
/// @param times is added to, also when the round fails
/// @return kTimeout at the deadline, after logging what was in flight; kCancelled when stopped; an error of the
/// connection or of on_tick.
Status run_round(const RoundPlan& plan, Half* send, Half* receive, const RoundWait& wait, RoundTimes& times);

}  // namespace tcpx
