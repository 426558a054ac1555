#include "transfer/in_order_dispatcher.h"

namespace tcpx {

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
