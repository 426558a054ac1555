#include "device/event_ring.h"

#include <utility>

#include "base/text.h"
#include "device/gpu_presence.h"

namespace tcpx {
namespace {

Result<std::vector<Event>> make_events(size_t count, EventTiming timing) {
  std::vector<Event> events;
  events.reserve(count);
  while (events.size() < count) {
    TCPX_ASSIGN_OR_RETURN(Event event, Event::create(timing));
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace

Result<std::unique_ptr<EventRing>> EventRing::create(int device, size_t depth, EventTiming timing) {
  const Result<int>& count = gpu_count();
  if (!count.is_ok()) return count.status();
  if (device < 0 || device >= *count) {
    return Status(Code::kInvalidArgument, "select device", concat("no GPU ", device, ": there are ", *count));
  }
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  TCPX_ASSIGN_OR_RETURN(std::vector<Event> begins, make_events(timing == EventTiming::kOn ? depth : 0, timing));
  TCPX_ASSIGN_OR_RETURN(std::vector<Event> ends, make_events(depth, timing));
  return std::unique_ptr<EventRing>(new EventRing(device, std::move(stream), std::move(begins), std::move(ends)));
}

EventRing::EventRing(int device, Stream stream, std::vector<Event> begins, std::vector<Event> ends)
    : device_(device), stream_(std::move(stream)), begins_(std::move(begins)), ends_(std::move(ends)), tickets_(ends_.size()) {}

EventRing::~EventRing() {
  if (tickets_.in_flight() && !tickets_.failed()) drain();
}

void EventRing::drain() const {
  const CaptureGuard captures;
  // A broken context answers at once. Its error is known already, or will never matter. Events without work in flight answer at
  // once too.
  for (const Event& end : ends_) {
    [[maybe_unused]] const cudaError_t drained = cudaEventSynchronize(end.view().get());
  }
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
}

Status EventRing::begin(StreamView stream) {
  return begins_.empty() ? Status::ok() : begins_[tickets_.next_slot()].view().record(stream);
}

Result<UnpackTicket> EventRing::commit(StreamView stream) {
  const Status recorded = ends_[tickets_.next_slot()].view().record(stream);
  if (!recorded.is_ok()) return fail(recorded, stream);
  return tickets_.push();
}

Status EventRing::fail(Status error, StreamView stream) {
  const CaptureGuard captures;
  // No event follows the work submitted since the last ticket.
  [[maybe_unused]] const cudaError_t drained = cudaStreamSynchronize(stream.get());
  drain();
  return tickets_.fail(std::move(error));
}

}  // namespace tcpx
