// The loop that a tool runs around `Pipeline::progress`.
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
  /// Called about ten times a second with the bytes done so far; may be empty. Must not block. An error ends the run, which
  /// returns it.
  std::function<Status(uint64_t bytes_done)> on_tick = {};
};

/// Drives `pipeline` until transfer `id` has ended. While nothing advances it waits as backoff.h describes.
/// @return true: done. false: stopped by the flag, and nothing has failed. kTimeout at the deadline; the transfer's error;
/// kNotFound for an id that names no transfer. Unless the result is true the transfer may still be pending: `cancel` or destroy
/// the pipeline.
Result<bool> run_until_done(Pipeline& pipeline, TransferId id, const RunOptions& options);

/// Finds out why a peer has failed. A failing peer first closes its comms, which ends this end's transfers with kPeerGone, and
/// then reports the reason. This waits for the report for half a second, or until `deadline`.
/// @param mine this end's error. @return the peer's report when `mine` is kPeerGone and a report comes, otherwise `mine`
Status peers_reason(BootstrapChannel& channel, const Status& mine, Deadline deadline = Deadline(TimePoint::max()));

}  // namespace tcpx
