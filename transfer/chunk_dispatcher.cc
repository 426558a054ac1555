#include "transfer/chunk_dispatcher.h"

#include "base/text.h"
#include "transfer/in_order_dispatcher.h"
#include "transfer/receiver_dispatcher.h"
#include "transfer/sender_dispatcher.h"

namespace tcpx {

std::unique_ptr<ChunkDispatcher> ChunkDispatcher::create(const DispatcherParts& parts) {
  if (parts.channels.size() == 1) return std::make_unique<InOrderDispatcher>(parts);
  if (parts.channels.direction() == Direction::kRecv) return std::make_unique<ReceiverDispatcher>(parts);
  return std::make_unique<SenderDispatcher>(parts);
}

Status ChunkDispatcher::take(FrameType type, std::span<const std::byte>) {
  return Status(Code::kProtocol, "read peer message", concat("an unexpected \"", name_of(type), '"'));
}

}  // namespace tcpx
