#include "device/event_ring.h"

#include <utility>

#include "base/text.h"
#include "device/gpu_presence.h"

namespace tcpx {

Result<std::unique_ptr<EventRing>> EventRing::create(int device) {
  const Result<int>& count = gpu_count();
  if (!count.is_ok()) return count.status();
  if (device < 0 || device >= *count) {
    return Status(Code::kInvalidArgument, "select device", concat("no GPU ", device, ": there are ", *count));
  }
  const Result<DeviceGuard> guard = DeviceGuard::enter(device);
  if (!guard.is_ok()) return guard.status();
  Result<Stream> stream = Stream::create();
  if (!stream.is_ok()) return stream.status();
  std::vector<Event> events;
  events.reserve(kQueueDepth);
  while (events.size() < kQueueDepth) {
    Result<Event> event = Event::create();
    if (!event.is_ok()) return event.status();
    events.push_back(std::move(event).value());
  }
  return std::unique_ptr<EventRing>(new EventRing(device, std::move(stream).value(), std::move(events)));
}

EventRing::EventRing(int device, Stream stream, std::vector<Event> events)
    : device_(device), stream_(std::move(stream)), events_(std::move(events)) {}

EventRing::~EventRing() {
  if (tickets_.in_flight() && !tickets_.failed()) drain();
}

void EventRing::drain() const {
  // A broken context answers at once. Its error is known already, or will never matter.
  [[maybe_unused]] const cudaError_t drained = cudaStreamSynchronize(stream_.view().get());
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
}

Result<UnpackTicket> EventRing::commit() {
  const Status recorded = events_[tickets_.next_slot()].view().record(stream_.view());
  if (!recorded.is_ok()) return fail(recorded);
  return tickets_.push();
}

Status EventRing::fail(Status error) {
  drain();
  return tickets_.fail(std::move(error));
}

Result<bool> EventRing::query(UnpackTicket ticket) {
  return tickets_.query(ticket, [this](size_t slot) {
    Result<bool> done = events_[slot].view().is_done();
    if (!done.is_ok()) drain();
    return done;
  });
}

}  // namespace tcpx
