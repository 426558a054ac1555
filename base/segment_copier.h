// SegmentCopier: many scattered copies as one unit of work, for gathering and scattering the pieces of a vector transfer and for
// moving short messages between GPU and host memory. It also computes checksums (base/byte_sum.h), of memory that maybe nobody
// else reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tcpx/status.h"

namespace tcpx {

class ByteSumKey;

/// Copies `bytes` bytes (0 is allowed) from `from` to `to`. Each address is in memory that the device reaches or in mapped pinned
/// host memory (MemoryOps::allocate_mapped); when host memory stands in, it may be any host address. Any alignment.
struct CopySegment {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

/// Identifies one submit; ascending per copier, never reused.
enum class CopyTicket : uint64_t {};

/// The place of bytes in a string whose checksum is computed (base/byte_sum.h).
struct SumPlace {
  const ByteSumKey& key;
  uint64_t begin;  ///< position in the string of the first of the bytes
  uint64_t total;  ///< bytes of the string; those in question end within it
};

/// Most segments in one submit.
inline constexpr size_t kMaxCopySegments = 16384;

/// One thread at a time. The device must be current on it.
class SegmentCopier {
 public:
  /// Waits for copies in flight.
  virtual ~SegmentCopier() = default;

  /// Starts all copies and returns. The span may be reused at once; the memory must stay valid until the ticket is done. No
  /// segment in flight may write bytes that another one reads or writes.
  /// @param segments at most kMaxCopySegments
  /// @return kExhausted, before anything is started, when too much is in flight: query the oldest ticket and try again.
  /// kInvalidArgument: too many segments. kCuda with the native code; sticks. After an error no copy is running any more.
  virtual Result<CopyTicket> submit(std::span<const CopySegment> segments) = 0;

  /// As `submit`, of segments whose both ends are GPU memory, so that the driver need not be asked.
  virtual Result<CopyTicket> submit_between_gpus(std::span<const CopySegment> segments) { return submit(segments); }

  /// Starts the checksum of the `from` of all segments, one behind the other; `to` is not looked at. Otherwise as `submit`.
  /// @param key must stay valid until the ticket is done @param sum likewise; it has the value then
  virtual Result<CopyTicket> submit_sum(const ByteSumKey& key, std::span<const CopySegment> segments, uint64_t& sum) = 0;

  /// As `submit`, and computes the checksum of what then lies at the `to` of all segments, one behind the other: it is read again.
  /// @param place its key must stay valid until the ticket is done @param part likewise; it has the value then, which is what these
  /// bytes add to the sum of the string (ByteSumPart::value)
  virtual Result<CopyTicket> submit_summed(std::span<const CopySegment> segments, const SumPlace& place, uint64_t& part) = 0;

  /// True when every byte of that ticket is in place, visible to the host and to kernels launched later, or its sum is known.
  /// Tickets finish in the order of submission.
  virtual Result<bool> query(CopyTicket ticket) = 0;
  /// True when every byte of that ticket is in place, whether or not earlier tickets are done, as far as the copier can tell.
  virtual Result<bool> query_alone(CopyTicket ticket) { return query(ticket); }
};

}  // namespace tcpx
