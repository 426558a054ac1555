// InOrderDispatcher: one channel, on which chunks meet in the order of posting at both ends.
#pragma once

#include <cstdint>
#include <span>

#include "transfer/chunk_dispatcher.h"

namespace tcpx {

class InOrderDispatcher final : public ChunkDispatcher {
 public:
  explicit InOrderDispatcher(const DispatcherParts& parts) : channels_(parts.channels), transfers_(parts.transfers) {}

  Result<bool> post(TimePoint now) override;
  Status finished(size_t channel, std::span<const ChunkEnd> ends, TimePoint now) override;

 private:
  ChannelSet& channels_;
  TransferRing& transfers_;
  uint64_t placing_ = 1;  // oldest transfer with chunks not yet posted
};

}  // namespace tcpx
