// OfferedSums: the checksums of GPU memory that the peer has been offered to copy by itself. The sender's GPU computes each while the
// peer's copies, and the peer is told it as soon as it is known, so that the end of the copy waits for no further message.
//
// Such a sum belongs to no job yet, and the operation may end without one. So a sum holds its memory itself, as registered memory, and
// what it says then is of no use to anybody.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/byte_sum.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/summing.h"
#include "wire/control_stream.h"

namespace tcpx {

/// For one connection. One thread at a time: the one that makes progress. The GPU must be current.
class OfferedSums {
 public:
  /// Sums that are kept; when there are more, the oldest one that is known is forgotten, or else the new one is not begun.
  static constexpr size_t kMost = 256;

  /// All must outlive this. @param key null: there are no checksums
  OfferedSums(std::shared_ptr<const ByteSumKey> key, const PullParts& parts, ControlStream& stream)
      : key_(std::move(key)), parts_(parts), stream_(stream) {}

  /// As Lane::begin_sum. Not of host memory: the threads that would sum it may be those that copy it.
  void begin(const OfferName& of, std::span<const HeldRange> ranges, std::span<const RegionUse> uses);
  /// As Lane::give_sum.
  void give(const OfferName& of, JobSum& sum);
  /// Tells the peer of the sums that are known now. @return true when something advanced
  bool progress();
  /// True when no sum is being computed.
  bool idle() const;
  /// Ends all early. Nothing is told any more.
  void stop();

 private:
  struct Sum {
    OfferName of;
    std::vector<HeldRange> ranges;     // empty once it is known
    std::vector<RegionUse> uses;       // likewise
    std::unique_ptr<Summing> summing;  // null until the offer has left, and once it is known
    uint64_t value = 0;
    bool is_known() const { return ranges.empty(); }
  };

  const std::shared_ptr<const ByteSumKey> key_;
  const PullParts& parts_;
  ControlStream& stream_;
  std::deque<Sum> sums_;
  bool stopped_ = false;
};

}  // namespace tcpx
