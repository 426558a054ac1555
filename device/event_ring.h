// Work in flight on a GPU: a TicketRing whose slots each own an event. Shared by the unpackers that submit to a GPU.
//
// Work may go to the ring's own stream or to a caller's. A slot's event is recorded after its work on that stream, and a query
// or wait needs only the event: a caller may destroy its stream while its work is in flight. Tickets still finish in the order
// of submission. With several streams the GPU may finish them in another order; a ticket is then reported done when all older
// ones are.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/cuda_handles.h"
#include "device/ticket_ring.h"
#include "tcpx/types.h"

namespace tcpx {

/// One thread at a time. Stream and events are created once: submitting creates and frees nothing.
class EventRing {
 public:
  /// @param depth most tickets in flight, from 1.
  /// @param timing kOn gives each slot a second event, for begin and device_time.
  /// @return kUnsupported when there is no usable GPU, kInvalidArgument for no such device, kCuda.
  static Result<std::unique_ptr<EventRing>> create(int device, size_t depth = kQueueDepth,
                                                   EventTiming timing = EventTiming::kOff);
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  /// Waits for work in flight: memory that the GPU still touches is never freed.
  ~EventRing();

  int device() const { return device_; }
  StreamView stream() const { return stream_.view(); }

  Status ready(size_t block_count) const { return tickets_.ready(block_count); }
  Status ready() const { return tickets_.ready(); }
  /// The next slot; no work in flight uses it. Only when ready.
  size_t next_slot() const { return tickets_.next_slot(); }

  /// With timing: marks the beginning of the next ticket's work on `stream`, which the caller then passes to commit or fail.
  /// Without: does nothing. Only when ready, with device() current. Pass its error to fail.
  Status begin(StreamView stream);
  /// Assigns a ticket to all work submitted to `stream` since the last one. Only when ready, with device() current.
  /// @param stream one of device().
  Result<UnpackTicket> commit(StreamView stream);
  Result<UnpackTicket> commit() { return commit(stream()); }
  /// Makes `error` stick, after waiting for the work in flight and on `stream`: a caller that learns of the failure may free
  /// the memory at once.
  Status fail(Status error, StreamView stream);
  Status fail(Status error) { return fail(std::move(error), stream()); }

  /// As Unpacker::query. An error, too, is held back until nothing is in flight.
  Result<bool> query(UnpackTicket ticket) {
    return query(ticket, [](size_t) { return Status::ok(); });
  }
  /// @param retire `Status(size_t slot)`: called, oldest first, for every slot whose work has finished, before the slot is
  /// free. Its error becomes one of the ring.
  template <class Retire>
  Result<bool> query(UnpackTicket ticket, Retire&& retire) {
    return tickets_.query(ticket, [&](size_t slot) -> Result<bool> {
      Result<bool> done = ends_[slot].view().is_done();
      if (done.is_ok() && *done) {
        const Status retired = retire(slot);
        if (!retired.is_ok()) done = retired;
      }
      if (!done.is_ok()) drain();
      return done;
    });
  }
  /// With timing: GPU time of the ticket of `slot`, which is being retired.
  Result<Duration> device_time(size_t slot) const { return ends_[slot].view().elapsed_since(begins_[slot].view()); }

 private:
  EventRing(int device, Stream stream, std::vector<Event> begins, std::vector<Event> ends);
  void drain() const;

  const int device_;
  const Stream stream_;
  const std::vector<Event> begins_;  // one per slot; none without timing
  const std::vector<Event> ends_;    // one per slot
  TicketRing tickets_;
};

}  // namespace tcpx
