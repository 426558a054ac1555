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
#include "measure/round.h"
#include "programs/mesh/mesh_message.h"
#include "tcpx/status.h"
#include "tcpx/types.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/local_machine.h"
#include "transfer/pipeline_setup.h"

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
  /// Allocates memory for both directions. `endpoint` must outlive the meter.
  static Result<std::unique_ptr<PairMeter>> create(LocalMachine& endpoint, const MeterOptions& options);

  /// A MeasurePair (programs/mesh/mesh_member.h).
  /// @return kMismatch at the receiver when a byte is wrong; kTimeout; the error of connection, plugin or peer.
  Result<PairResult> measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start);

  /// The most that one measurement takes.
  Duration limit() const;

 private:
  PairMeter(LocalMachine& endpoint, const MeterOptions& options) : endpoint_(endpoint), options_(options) {}
  Status prepare();
  Result<PairResult> send(BootstrapChannel& peer, const std::function<Status()>& start);
  Result<PairResult> receive(BootstrapChannel& peer, const std::function<Status()>& start);
  /// Moves the first `transfers` transfers. Both ends begin when both are ready. @return how long it took
  Result<Duration> run(Half* send, Half* receive, uint32_t transfers, BootstrapChannel& peer);
  /// Calls `work(off, bytes)` on piece after piece, which may take seconds, until it fails or the meter is stopped.
  Status by_pieces(uint64_t bytes, const std::function<Status(uint64_t off, uint64_t bytes)>& work);
  Status verify(uint64_t bytes);
  Status blank();

  uint64_t total_bytes() const { return options_.transfer_bytes * options_.transfers; }
  Duration data_time() const;
  Deadline data_deadline() const { return Deadline::after(data_time()); }
  PipelineOptions pipeline_options(Direction direction) const;
  HandshakeWait handshake_wait(BootstrapChannel& peer) const { return {Deadline::after(options_.timeout), &peer, options_.stop}; }
  PairResult result(Duration elapsed, bool verified) const;

  LocalMachine& endpoint_;
  const MeterOptions options_;
  std::unique_ptr<CopyLane> lane_;  // of the receiving side, as this
  std::unique_ptr<Unpacker> unpacker_;
  Half send_, receive_;
};

}  // namespace tcpx::mesh
