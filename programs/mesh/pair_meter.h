// PairMeter: how fast one rank sends to another, over a connection made for that pair.
//
// What is timed: a number of transfers, submitted at once and moved back to back, from the moment both ends are ready to the
// moment the receiver has the last byte in place. One transfer before that warms the connection up. Filling, blanking and
// comparing every byte are outside the timed part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "tcpx/status.h"
#include "tcpx/types.h"
#include "programs/mesh/mesh_message.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/connection_setup.h"
#include "transfer/default_endpoint.h"

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
  static Result<std::unique_ptr<PairMeter>> create(DefaultEndpoint& endpoint, const MeterOptions& options);

  /// A MeasurePair (programs/mesh/mesh_member.h).
  /// @return kMismatch at the receiver when a byte is wrong; kTimeout; what connection, plugin or peer say.
  Result<PairResult> measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start);

  /// The most that one measurement takes.
  Duration limit() const;

 private:
  struct Side {
    MemoryBuffer buffer;
    std::unique_ptr<CopyLane> lane;
    std::unique_ptr<Unpacker> unpacker;  // of the receiving side
    std::vector<std::byte> piece;        // of host memory, to fill and compare with
  };

  PairMeter(DefaultEndpoint& endpoint, const MeterOptions& options) : endpoint_(endpoint), options_(options) {}
  Status prepare(Side& side, bool receives);
  Result<PairResult> send(BootstrapChannel& peer, const std::function<Status()>& start);
  Result<PairResult> receive(BootstrapChannel& peer, const std::function<Status()>& start);
  Status run(Connection& connection, const RegisteredMemory& memory, uint32_t transfers, BootstrapChannel& peer,
             Duration& elapsed);
  /// Also between pieces of memory that is filled or compared, which may take seconds.
  Status check_stop() const;
  Status fill(Side& side);
  Status blank(Side& side);
  Status verify(Side& side, size_t bytes);

  size_t total_bytes() const { return options_.transfer_bytes * options_.transfers; }
  std::byte* address(const Side& side) const {
    return options_.memory == MemoryType::kCuda ? side.buffer.device() : side.buffer.host();
  }
  Duration data_time() const;
  Deadline step_deadline() const { return Deadline::after(options_.timeout); }
  Deadline data_deadline() const { return Deadline::after(data_time()); }
  ConnectionOptions connection_options(Direction direction) const;
  HandshakeWait handshake_wait(BootstrapChannel& peer) const { return {step_deadline(), &peer, options_.stop}; }
  PairResult result(Duration elapsed, bool verified) const;

  DefaultEndpoint& endpoint_;
  const MeterOptions options_;
  Side sending_, receiving_;
};

}  // namespace tcpx::mesh
