// Mover of the transfers of a measurement at one end: the library's pipeline, or one of the layers below and above it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure/round.h"
#include "programs/perf/perf_options.h"
#include "programs/perf/row_result.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/local_machine.h"

namespace tcpx::perf {

/// One end, as both the measurement and its mover see it. All parts must outlive both.
struct EndPlace {
  const PerfOptions& options;
  bool is_server = false;
  int gpu = 0;
  LocalMachine& endpoint;
  const std::atomic<bool>& stop;

  bool sends() const { return !is_server || options.mode != PerfMode::kOneWay; }
  bool receives() const { return is_server || options.mode != PerfMode::kOneWay; }
  bool on_gpu() const { return options.memory == MemoryType::kCuda && endpoint.memory->has_gpu(); }
  std::string memory_text() const;  ///< "GPU 1, GPU memory"
  Deadline deadline() const { return Deadline::after(options.timeout); }
};

/// One thread. After an error only destruction.
class Mover {
 public:
  virtual ~Mover() = default;

  /// Preparation that needs no peer.
  virtual Status prepare() = 0;
  /// One line about this end.
  virtual std::string describe() const = 0;
  /// The unpacker that received messages go through here; "" when there is none.
  virtual std::string unpack() const { return ""; }
  /// True when received bytes are compared, at an end that receives.
  virtual bool verifies() const { return true; }
  /// The network interfaces whose bytes are counted, each once.
  virtual std::vector<std::string> nics() const { return {}; }
  virtual uint32_t channels() const = 0;

  /// Connects with the other end. @param slot_room_bytes for what lies side by side, in each direction (measure/message_plan.h)
  virtual Status open(BootstrapChannel& channel, uint64_t slot_room_bytes) = 0;
  /// Fills what this end sends in a round. @param round its number, from which the data follows
  virtual Status fill(const RoundPlan& plan, uint64_t round) = 0;
  /// Moves the transfers of the round; as run_round (measure/round.h).
  virtual Status run(const RoundPlan& plan, const RoundWait& wait, RoundTimes& times) = 0;
  /// Compares the bytes this end received; errors go into `row`.
  virtual Status verify(const RoundPlan& plan, uint64_t round, EndRow& row) = 0;
  virtual Status close() = 0;
};

std::unique_ptr<Mover> make_pipeline_mover(const EndPlace& place);
/// For every layer but the pipeline.
std::unique_ptr<Mover> make_layer_mover(const EndPlace& place);

}  // namespace tcpx::perf
