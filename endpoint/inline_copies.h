// InlineCopies: copies inline messages between GPU memory and the host buffers of a control connection. Each copy takes a slot of
// mapped pinned memory while the GPU works. No peer can make that longer, so all links of an endpoint share the slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_ops.h"
#include "base/segment_copier.h"
#include "endpoint/operation.h"
#include "wire/messages.h"

namespace tcpx {

/// One thread at a time: the one that makes progress. The GPU must be current.
class InlineCopies {
 public:
  struct Copy {
    uint32_t slot = 0;
    SegmentCopier* copier = nullptr;
    CopyTicket ticket{};
    size_t bytes = 0;
  };

  /// @param copier for memory that the endpoint's GPU reaches
  InlineCopies(MemoryOps& memory, SegmentCopier& copier, int device) : memory_(memory), copier_(copier), device_(device) {}

  /// Makes the slots now instead of at the first copy.
  Status prepare();
  /// Starts copying the ranges, at most kMaxInlineBytes in all, into a slot. @return kExhausted: try again after some progress
  Result<Copy> read(std::span<const HeldRange> ranges) { return start(ranges, true, {}); }
  /// Starts copying `data`, which may be reused at once, into ranges of as many bytes. @return kExhausted as for `read`
  Result<Copy> write(std::span<const HeldRange> ranges, std::span<const std::byte> data) { return start(ranges, false, data); }
  /// True when the copy has ended. Until `release`, `bytes_of` then returns what was read.
  Result<bool> is_done(const Copy& copy) { return copy.copier->query(copy.ticket); }
  std::span<const std::byte> bytes_of(const Copy& copy) const;
  void release(const Copy& copy) { free_.push_back(copy.slot); }

 private:
  static constexpr uint32_t kSlots = 128;
  std::byte* slot(uint32_t index) const { return buffer_.host() + size_t{index} * kMaxInlineBytes; }
  Result<uint32_t> take_slot();
  Result<Copy> start(std::span<const HeldRange> ranges, bool reads, std::span<const std::byte> data);

  MemoryOps& memory_;
  SegmentCopier& copier_;
  const int device_;
  MemoryBuffer buffer_;  // made at the first copy
  std::vector<uint32_t> free_;
  std::vector<CopySegment> segments_;  // reused
};

}  // namespace tcpx
