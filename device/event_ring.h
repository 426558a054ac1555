// Work in flight on one stream: a TicketRing whose slots each own an event. Shared by the unpackers that submit to a GPU.
#pragma once

#include <memory>
#include <vector>

#include "device/cuda_handles.h"
#include "device/ticket_ring.h"
#include "tcpx/types.h"

namespace tcpx {

/// One thread at a time. Stream and events are made once: submitting makes and frees nothing.
class EventRing {
 public:
  /// @return kUnsupported when there is no usable GPU, kInvalidArgument for no such device, kCuda.
  static Result<std::unique_ptr<EventRing>> create(int device);
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  /// Waits for what is in flight: memory that the GPU still touches is never let go.
  ~EventRing();

  int device() const { return device_; }
  StreamView stream() const { return stream_.view(); }

  Status ready(size_t block_count) const { return tickets_.ready(block_count); }
  /// The slot whose turn it is; nothing in flight uses it. Only when ready.
  size_t next_slot() const { return tickets_.next_slot(); }
  /// Gives a ticket to all that was submitted to stream() since the last. Only when ready, with device() current.
  Result<UnpackTicket> commit();
  /// Makes `error` stick, after waiting for what is in flight: who hears of the failure may free the memory at once.
  Status fail(Status error);
  /// As Unpacker::query. An error is kept back until nothing is in flight, too.
  Result<bool> query(UnpackTicket ticket);

 private:
  EventRing(int device, Stream stream, std::vector<Event> events);
  void drain() const;

  const int device_;
  const Stream stream_;
  const std::vector<Event> events_;  // one per slot
  TicketRing tickets_{kQueueDepth};
};

}  // namespace tcpx
