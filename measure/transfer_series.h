// Transfers of one size over one Connection, in order, several submitted ahead: the one way in which programs drive a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "transfer/pipeline.h"

namespace tcpx {

/// One thread at a time. After an error only destruction.
class TransferSeries {
 public:
  struct Plan {
    RegisteredMemory memory;
    uint64_t bytes = 0;
    /// Most that are submitted at once: chunks of several channels end in any order, so these must lie apart.
    uint64_t window = 1;
    std::function<uint64_t(uint64_t transfer)> offset_of;  ///< of a transfer, by its number, in `memory`
  };

  /// @param connection must outlive the series.
  explicit TransferSeries(Pipeline& pipeline) : pipeline_(pipeline) {}

  /// Begins anew with the transfer numbered `first`. Nothing is in flight.
  void start(Plan plan, uint64_t first = 0);
  /// Lets `count` more transfers go.
  void allow(uint64_t count) { end_ += count; }
  /// Submits what may go, as far as there is room, and drives the connection. @return whether anything happened.
  Result<bool> progress();
  /// Transfers of this start that are sent, or where they belong.
  uint64_t finished() const { return finished_ - begin_; }
  /// All that were allowed are finished.
  bool is_done() const { return finished_ == end_; }

 private:
  Status submit();
  Result<bool> finish();

  Pipeline& pipeline_;
  Plan plan_;
  // Numbers of transfers: begin_ <= finished_ <= submitted_ <= end_, of which no more than the window are submitted.
  uint64_t begin_ = 0, finished_ = 0, submitted_ = 0, end_ = 0;
  std::vector<TransferId> ids_;
};

}  // namespace tcpx
