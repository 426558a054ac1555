// Moving the messages of a round at an end that polls: the same for the plugin's lanes and for the pipeline's, so that the
// difference between the two is the pipeline's.
#pragma once

#include "measure/end.h"
#include "measure/message_memory.h"

namespace tcpx {

/// @param memory of a round that has begun; both lanes are started. A lane has `allow`, `progress`, `finished` and `is_done`, as
///        TransferSeries (measure/round.h) has them.
template <class Sender, class Receiver>
Result<Timing> run_lanes(const MessageMemory& memory, Sender& sender, Receiver& receiver, Deadline deadline) {
  const bool one_way = memory.row().pattern == Pattern::kOneWay;
  Patience patience(one_way ? "one-way round" : "ping-pong", deadline, one_way ? memory.plan().bytes_under_way() : 0);
  const auto turn = [&]() -> Status {
    bool advanced = false;
    const auto drive = [&](auto& lane) -> Status {
      const Result<bool> progress = lane.progress();
      if (progress.is_ok()) advanced |= *progress;
      return progress.status();
    };
    if (memory.sends()) TCPX_RETURN_IF_ERROR(drive(sender));
    if (memory.receives()) TCPX_RETURN_IF_ERROR(drive(receiver));
    return patience.after_turn(advanced);
  };

  const Stopwatch begin = Stopwatch::read();
  if (one_way) {
    if (memory.sends()) sender.allow(memory.count());
    while (!(memory.sends() ? sender.is_done() : receiver.is_done())) TCPX_RETURN_IF_ERROR(turn());
  } else {
    for (uint64_t i = 0; i < memory.count(); ++i) {
      if (memory.leads()) sender.allow(1);
      while (receiver.finished() <= i) TCPX_RETURN_IF_ERROR(turn());
      if (!memory.leads()) sender.allow(1);
    }
    while (!sender.is_done()) TCPX_RETURN_IF_ERROR(turn());
  }
  return begin.until(Stopwatch::read());
}

}  // namespace tcpx
