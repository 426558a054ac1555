// The loop a tool runs around `Pipeline::progress`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "wire/bootstrap_channel.h"
#include "transfer/pipeline.h"

namespace tcpx {

struct RunOptions {
  Deadline deadline;
  const std::atomic<bool>* stop = nullptr;  ///< true ends the run early (Ctrl-C); may be null
  /// Called about ten times a second with the bytes done so far; may be empty. Must not block. An error ends the run with it.
  std::function<Status(uint64_t bytes_done)> on_tick = {};
};

/// Drives `pipeline` until transfer `id` has ended. Waits as backoff.h says while nothing advances.
/// @return true: done. false: stopped by the flag, nothing has failed. kTimeout at the deadline, the transfer's error, kNotFound
/// for an id that names no transfer. Except for `done` the transfer may be pending still: `cancel` or destroy the pipeline.
Result<bool> run_until_done(Pipeline& pipeline, TransferId id, const RunOptions& options);

/// The reason that a failed peer has given. A peer closes its comms first, which is what ends this end's transfers with
/// kPeerGone, and then says why: so that is waited for, for half a second, within `deadline`. @return `mine` for other errors, or
/// when nothing comes
Status peers_reason(BootstrapChannel& channel, const Status& mine, Deadline deadline = Deadline(TimePoint::max()));

}  // namespace tcpx
