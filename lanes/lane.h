// What lanes, the ways for bytes between two endpoints, have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_registry.h"
#include "tcpx/status.h"
#include "wire/messages.h"

namespace tcpx {

/// Bytes of a transfer at this end, which a lane moves.
struct Job {
  Job() = default;
  Job(const Job&) = delete;
  virtual ~Job() = default;
  Job& operator=(const Job&) = delete;

  uint64_t number = 0;                ///< of the operation, as its starter counts
  bool of_peer = false;               ///< which has started it
  std::span<const HeldRange> ranges;  ///< who ends the job keeps them until then
  Packing packing = Packing::kWhole;
  uint64_t bytes = 0;
  std::vector<uint64_t> unwanted;  ///< receive, without ranges: bytes of each range that the sender has, which go nowhere
  Status status;                   ///< of an ended job
};

/// It is the peer's, and uses that region.
inline bool is_of_peer(const Job& job, MemoryId region) {
  return job.of_peer && uses(job.ranges, region);
}

}  // namespace tcpx
