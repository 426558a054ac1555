// One end of a measurement: its agreement with the other, and the measuring of a row. What moves the bytes is an end of measure/.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/ends/pipeline.h"
#include "programs/perf/perf_output.h"
#include "programs/roles.h"
#include "transfer/local_machine.h"
#include "wire/bootstrap_channel.h"

namespace tcpx::perf {

/// Surroundings of an end. All parts must outlive it.
struct EndPlace {
  PerfOptions& options;  ///< the server puts in what the client asks for
  bool is_server = false;
  int gpu = 0;
  LocalMachine& machine;
  const std::atomic<bool>& stop;
  const ChannelDevices* devices = nullptr;          ///< null: the nearest to the GPU
  std::function<Status()> before_timing = nullptr;  ///< called once, when the first timed round is prepared; may be empty

  bool sends() const { return !is_server || options.mode != Pattern::kOneWay; }
  bool receives() const { return is_server || options.mode != Pattern::kOneWay; }
  bool on_gpu() const { return options.memory == MemoryType::kCuda && machine.memory->has_gpu(); }
  Deadline deadline() const { return Deadline::after(options.timeout); }
};

/// One thread.
class PerfEnd final : public programs::ProgramEnd {
 public:
  PerfEnd(const EndPlace& place, PerfOutput& output) : place_(place), options_(place.options), output_(output) {}

  Status prepare() override;
  void say(const std::string& text) override { output_.line(concat("# ", text)); }
  /// Agrees with the peer on what is measured, connects, measures every size, closes.
  Status run(BootstrapChannel& channel) override;

 private:
  struct NextRound {
    uint32_t transfers = 0;  // 0: the row is complete
    bool timed = false;
  };
  struct RowUnderWay {
    EndRow row;
    std::vector<uint64_t> samples_ns;
  };

  bool is_server() const { return place_.is_server; }
  bool is_pipeline() const { return options_.layer == Layer::kPipeline; }
  /// Every received byte is compared here, if any is received.
  bool verified() const;
  uint32_t channels() const;
  uint32_t longest_chunk_bytes() const;
  std::string unpacker() const;
  /// One line about this end.
  std::string describe() const;
  Deadline data_deadline(uint64_t bytes) const;
  /// For a peer that may still be comparing the round before, and fill for the next.
  Deadline round_deadline(uint64_t bytes) const;
  EndSetup end_setup() const;
  RowSetup row_of(uint64_t bytes) const;
  Result<uint64_t> room_per_direction() const;

  Status make_unpacker();
  Status make_pipeline();
  Status hear_request(BootstrapChannel& channel);
  Status agree(BootstrapChannel& channel);
  Status take_peer(const Parameters& theirs);
  Status open(BootstrapChannel& channel);
  Result<EndRow> measure(BootstrapChannel& channel, uint64_t bytes);
  Status run_rounds(BootstrapChannel& channel, uint64_t bytes, RowUnderWay& row);
  NextRound next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const;
  Result<NextRound> hear_round(BootstrapChannel& channel, uint64_t bytes);
  Status run_one(BootstrapChannel& channel, uint64_t bytes, const NextRound& round, RowUnderWay& row);
  Status compare(RowUnderWay& row);

  const EndPlace place_;
  PerfOptions& options_;
  PerfOutput& output_;
  std::vector<std::string> nics_;  // whose bytes are counted, each once
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<BenchEnd> end_;
  PipelineEnd* pipeline_ = nullptr;  // the same end where it is one
  int peer_gpu_ = 0;
  uint64_t largest_ = 0;    // transfer that both ends have room for
  uint64_t slot_room_ = 0;  // for the slots of one direction, at the end that has less
  TableHead head_;
  uint64_t round_ = 0;  // numbers the rounds of both ends alike
};

}  // namespace tcpx::perf
