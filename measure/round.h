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
