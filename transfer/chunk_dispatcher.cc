#include "transfer/chunk_dispatcher.h"

#include "base/text.h"
#include "transfer/placing_dispatcher.h"
#include "transfer/following_dispatcher.h"

namespace tcpx {

std::unique_ptr<ChunkDispatcher> ChunkDispatcher::create(const DispatcherParts& parts) {
  if (parts.channels.size() == 1) return std::make_unique<InOrderDispatcher>(parts);
  const Direction places = parts.sender_places ? Direction::kSend : Direction::kRecv;
  if (parts.channels.direction() == places) return std::make_unique<PlacingDispatcher>(parts);
  return std::make_unique<FollowingDispatcher>(parts);
}

Status ChunkDispatcher::take(PeerMessage type, std::span<const std::byte>) {
  return Status(Code::kProtocol, "read peer message", concat("an unexpected message ", static_cast<uint64_t>(type)));
}

Result<bool> InOrderDispatcher::post(TimePoint) {
  bool advanced = false;
  while (placing_ < transfers_.end()) {
    Transfer& transfer = transfers_[placing_];
    if (!channels_.try_post(0, transfer, transfer.placed_chunks)) break;
    advanced = true;
    if (++transfer.placed_chunks == transfer.plan.count()) ++placing_;
  }
  return advanced;
}

Status InOrderDispatcher::finished(size_t, std::span<const ChunkEnd> ends, TimePoint) {
  for (const ChunkEnd& end : ends) {
    Transfer& transfer = transfers_.count(end);
    if (transfer.all_finished()) transfers_.done(transfer);
  }
  return Status::ok();
}

}  // namespace tcpx
