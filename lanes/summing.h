// Summing: the checksum of a job's bytes while it is computed (base/byte_sum.h), by whoever reads the memory: threads of the
// host, or a GPU. It only reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/byte_sum.h"
#include "base/memory_registry.h"
#include "lanes/host_area.h"
#include "tcpx/status.h"

namespace tcpx {

/// One thread at a time: the one that makes progress. The GPU must be current.
class Summing {
 public:
  virtual ~Summing() = default;
  /// Begins the sum of these ranges, which are in one kind of memory. They, `parts` and the key must stay until it is done.
  static std::unique_ptr<Summing> begin(std::shared_ptr<const ByteSumKey> key, std::span<const HeldRange> ranges,
                                        const PullParts& parts);

  /// Call it until it is not false; the memory is not read any more then. @return true: `sum` is the checksum; an error: there
  /// is none
  virtual Result<bool> is_done() = 0;
  virtual uint64_t sum() const = 0;
  /// Ends it early: it is done as soon as nothing reads the memory, or nothing but a thread that hangs.
  virtual void stop() = 0;
  /// Ends it although the memory may never answer.
  virtual void abandon() = 0;
};

}  // namespace tcpx
