#include "endpoint/inline_copies.h"

#include <cstring>

namespace tcpx {

Status InlineCopies::prepare() {
  if (buffer_) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(buffer_, memory_.allocate_mapped(device_, size_t{kSlots} * kMaxInlineBytes));
  for (uint32_t index = kSlots; index-- > 0;) free_.push_back(index);
  return Status::ok();
}

Result<uint32_t> InlineCopies::take_slot() {
  TCPX_RETURN_IF_ERROR(prepare());
  if (free_.empty()) return Status(Code::kExhausted, "copy inline message", "all slots are in use");
  const uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

Result<InlineCopies::Copy> InlineCopies::start(std::span<const HeldRange> ranges, bool reads, std::span<const std::byte> data) {
  TCPX_ASSIGN_OR_RETURN(const auto index, take_slot());
  if (!data.empty()) std::memcpy(slot(index), data.data(), data.size());
  std::byte* const begin = buffer_.device() + size_t{index} * kMaxInlineBytes;
  segments_.clear();
  size_t bytes = 0;
  for (const HeldRange& range : ranges) {
    if (reads) {
      segments_.push_back({begin + bytes, range.data, range.bytes});
    } else {
      segments_.push_back({range.data, begin + bytes, range.bytes});
    }
    bytes += range.bytes;
  }
  SegmentCopier* const own = ranges.empty() ? nullptr : ranges.front().region().access.copier;
  SegmentCopier& copier = own != nullptr ? *own : copier_;
  const auto ticket = copier.submit(segments_);
  if (ticket.is_ok()) return Copy{.slot = index, .copier = &copier, .ticket = *ticket, .bytes = bytes};
  free_.push_back(index);
  return ticket.status();
}

std::span<const std::byte> InlineCopies::bytes_of(const Copy& copy) const {
  return {slot(copy.slot), copy.bytes};
}

}  // namespace tcpx
