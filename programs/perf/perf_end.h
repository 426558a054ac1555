// One end of a measurement: what it brings (memory, unpacker, connections), what both ends agree on, and how a row is measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "programs/perf/perf_options.h"
#include "programs/perf/round.h"
#include "programs/perf/row_result.h"
#include "programs/perf/row_table.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/default_endpoint.h"

namespace tcpx::perf {

/// Where a row under way stands.
struct RowProgress {
  uint64_t bytes = 0;
  bool timed = false;  ///< else warming up
  uint64_t done = 0;   ///< transfers, timed ones once `timed`
  uint64_t busy_ns = 0;
};

/// Told what happens; nothing may be empty, nothing may block.
struct PerfListener {
  std::function<void(const TableHead&)> on_begin;
  std::function<void(const RowProgress&)> on_progress;
  std::function<void(const PerfRow&)> on_row;
};

/// One thread. All parts must outlive it.
class PerfEnd {
 public:
  PerfEnd(const PerfOptions& options, bool is_server, int gpu, DefaultEndpoint& endpoint, const std::atomic<bool>& stop,
          PerfListener listener);

  /// What needs no peer: devices, unpacker, room. An end that fails here still tells its peer so (BootstrapChannel::finish).
  Status prepare();
  /// Agrees with the peer, connects, measures every size, closes. The channel must not be moved any more.
  Status run(BootstrapChannel& channel);

  /// After a failure: what this end had of the row under way; count 0 when nothing.
  const EndRow& unfinished() const { return unfinished_; }
  uint64_t unfinished_bytes() const { return unfinished_bytes_; }

 private:
  struct NextRound {
    uint32_t transfers = 0;  // 0: the row is complete
    bool timed = false;
  };

  bool sends() const { return !is_server_ || options_.mode != PerfMode::kOneWay; }
  bool receives() const { return is_server_ || options_.mode != PerfMode::kOneWay; }
  /// The unpacker that received messages go through here; "" when there is none.
  std::string unpack() const;
  bool verifies() const { return options_.unpack != UnpackKind::kNone || options_.memory == MemoryType::kHost; }
  Deadline deadline() const { return Deadline::after(options_.timeout); }
  Deadline data_deadline(uint64_t bytes) const;
  std::string describe() const;

  Result<uint64_t> room_per_direction() const;
  Status make_unpacker();
  Status agree(BootstrapChannel& channel);
  Status take_peer(const Parameters& theirs);
  Status open(BootstrapChannel& channel);
  Status open_half(BootstrapChannel& channel, bool sending);
  Status close();

  Result<EndRow> measure(BootstrapChannel& channel, uint64_t bytes);
  Status run_rounds(BootstrapChannel& channel, uint64_t bytes, EndRow& row, RoundTimes& times);
  NextRound next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const;
  Result<NextRound> agree_on_round(BootstrapChannel& channel, const NextRound& mine, uint64_t bytes);
  Status run_one(BootstrapChannel& channel, uint64_t bytes, const NextRound& next, RoundTimes& times);
  Status fill(uint64_t bytes, uint32_t transfers);
  Status verify(uint64_t bytes, uint32_t transfers, EndRow& row);
  uint64_t seed(uint32_t slot, bool from_server) const;

  const PerfOptions& options_;
  const bool is_server_;
  const int gpu_;
  DefaultEndpoint& endpoint_;
  const std::atomic<bool>& stop_;
  const PerfListener listener_;

  ChannelDevices devices_;
  std::vector<std::string> nics_;  // of the devices, each once, sorted
  std::unique_ptr<CopyLane> lane_;
  std::unique_ptr<Unpacker> unpacker_;
  uint64_t largest_ = 0;    // transfer that both ends have room for
  uint64_t slot_room_ = 0;  // for the slots of one direction, at the end that has less
  TableHead head_;
  Half send_, receive_;
  uint64_t round_ = 0;  // numbers the rounds of both ends alike
  EndRow unfinished_;
  uint64_t unfinished_bytes_ = 0;
};

}  // namespace tcpx::perf
