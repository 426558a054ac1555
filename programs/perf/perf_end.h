// One end of a measurement: its agreement with the other, and the measuring of a row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "programs/perf/mover.h"
#include "programs/perf/row_table.h"

namespace tcpx::perf {

/// Progress of a row under way.
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
  PerfEnd(const EndPlace& place, PerfListener listener);

  /// Preparation that needs no peer. An end that fails here still tells its peer so (BootstrapChannel::finish).
  Status prepare() { return mover_->prepare(); }
  /// Agrees with the peer, connects, measures every size, closes. The channel must not be moved any more.
  Status run(BootstrapChannel& channel);

  /// After a failure: this end's part of the row under way; count 0 when none.
  const EndRow& unfinished() const { return unfinished_; }
  uint64_t unfinished_bytes() const { return unfinished_bytes_; }

 private:
  struct NextRound {
    uint32_t transfers = 0;  // 0: the row is complete
    bool timed = false;
  };

  bool is_server() const { return place_.is_server; }
  bool verified() const { return mover_->verifies() || !place_.receives(); }
  Deadline data_deadline(uint64_t bytes) const;
  Result<uint64_t> room_per_direction() const;
  Status agree(BootstrapChannel& channel);
  Status take_peer(const Parameters& theirs);

  Result<EndRow> measure(BootstrapChannel& channel, uint64_t bytes);
  Status run_rounds(BootstrapChannel& channel, uint64_t bytes, EndRow& row, RoundTimes& times);
  NextRound next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const;
  Result<NextRound> agree_on_round(BootstrapChannel& channel, const NextRound& mine, uint64_t bytes);
  Status run_one(BootstrapChannel& channel, const RoundPlan& plan, bool timed, RoundTimes& times);

  const EndPlace place_;
  const PerfOptions& options_;
  const PerfListener listener_;
  const std::unique_ptr<Mover> mover_;
  uint64_t largest_ = 0;    // transfer that both ends have room for
  uint64_t slot_room_ = 0;  // for the slots of one direction, at the end that has less
  TableHead head_;
  uint64_t round_ = 0;  // numbers the rounds of both ends alike
  EndRow unfinished_;
  uint64_t unfinished_bytes_ = 0;
};

}  // namespace tcpx::perf
