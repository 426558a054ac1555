// PairMeter: how fast one rank sends to another, over a connection made for that pair.
//
// The timed part: a number of transfers, submitted at once and moved back to back, from the moment both ends are ready to the
// moment the receiver has the last byte in place. One transfer before that warms the connection up. Filling, blanking and
// comparing every byte are outside the timed part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "measure/ends/pipeline.h"
#include "programs/mesh/mesh_message.h"
#include "tcpx/status.h"
#include "tcpx/types.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/local_machine.h"

namespace tcpx::mesh {

struct MeterOptions {
  size_t transfer_bytes = 0;  ///< at least 1; times `transfers` at most kMostMeterBytes
  uint32_t transfers = 0;     ///< 1 ... 1000
  MemoryType memory = MemoryType::kCuda;
  UnpackKind unpack{};
  int gpu = 0;
  ChannelDevices devices;     ///< as many at every rank
  PipelineSettings pipeline;  ///< all but `channels`, which follows from the devices
  Duration timeout{};
  const std::atomic<bool>* stop = nullptr;  ///< true ends measurements early; may be null
};

/// In each direction.
inline constexpr size_t kMostMeterBytes = 0x7ffff000;

/// A sending and a receiving measurement may run at the same time, in two threads.
class PairMeter {
 public:
  /// Allocates memory for both directions. `machine` must outlive the meter.
  static Result<std::unique_ptr<PairMeter>> create(LocalMachine& machine, const MeterOptions& options);

  /// A MeasurePair (programs/mesh/mesh_rounds.h).
  /// @return kMismatch at the receiver when a byte is wrong; kTimeout; the error of connection, plugin or peer.
  Result<PairResult> measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start);

  /// The most that one measurement takes.
  Duration limit() const;

 private:
  PairMeter(LocalMachine& machine, const MeterOptions& options) : machine_(machine), options_(options) {}
  Status make_end(bool sends);
  RowSetup row() const;
  Result<PairResult> measure_with(PipelineEnd& end, BootstrapChannel& peer, bool sends, const std::function<Status()>& start);
  /// Moves the transfers of a round that is prepared. Both ends begin when both are ready.
  Result<Timing> run(PipelineEnd& end, BootstrapChannel& peer) const;

  uint64_t total_bytes() const { return options_.transfer_bytes * options_.transfers; }
  Duration data_time() const;
  Deadline data_deadline() const { return Deadline::after(data_time()); }

  LocalMachine& machine_;
  const MeterOptions options_;
  std::unique_ptr<PipelineEnd> ends_[2];  // the receiving and the sending one
};

}  // namespace tcpx::mesh
