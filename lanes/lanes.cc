#include "lanes/lanes.h"

#include <algorithm>
#include <utility>

namespace tcpx {

Lanes::Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
             const PullParts& on_host, ControlStream& stream)
    : host_(host),
      on_host_(on_host),
      net_send(std::move(send), net),
      net_recv(std::move(recv), net),
      ring_send(bulk_ring(true), on_host, true),
      ring_recv(bulk_ring(false), on_host, false),
      sources(host, on_host.memory, ring_send, stream),
      pulls(host, on_host, ring_recv, stream) {}

bool Lanes::idle() const {
  return std::all_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->idle(); });
}

bool Lanes::rests(TimePoint now) const {
  return std::all_of(all_.begin(), all_.end(), [now](const Lane* lane) { return lane->rests(now); });
}

bool Lanes::closed() const {
  return std::all_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->closed(); });
}

void Lanes::fail(const Status& reason) {
  for (Lane* const lane : all_) lane->fail(reason);
}

void Lanes::abandon() {
  for (Lane* const lane : all_) lane->abandon();
}

bool Lanes::can_move() const {
  return std::any_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->can_move(); });
}

uint32_t Lanes::wants(TimePoint now) const {
  uint32_t wants = 0;
  for (const Lane* const lane : all_) wants |= lane->wants(now);
  return wants;
}

uint32_t Lanes::take_told() {
  uint32_t told = 0;
  for (Lane* const lane : all_) told |= lane->take_told();
  return told;
}

uint64_t Lanes::chunks_in_flight() const {
  uint64_t sum = 0;
  for (const Lane* const lane : all_) sum += lane->chunks_in_flight();
  return sum;
}

void Lanes::add_to(ConnectionStats& stats) const {
  for (const Lane* const lane : all_) lane->add_to(stats);
}

std::string Lanes::flight_record() const {
  std::string text;
  for (const Lane* const lane : all_) {
    if (!lane->idle()) text += "\n  " + lane->flight_record();
  }
  return text;
}

bool Lanes::serves(MemoryId region) const {
  return std::any_of(all_.begin(), all_.end(), [region](const Lane* lane) { return lane->serves(region); });
}

std::vector<uint64_t> Lanes::forget(MemoryId region) {
  for (Lane* const lane : all_) lane->forget(region);
  return sources.forget(region);
}

void Lanes::close() {
  pulls.close();
  if (host_ == nullptr) return;
  host_->process.reset();
  host_->files.reset();
  std::vector<MemoryBuffer> buffers;  // what pins the rings for the GPU, and then the rings
  buffers.push_back(ring_send.close());
  buffers.push_back(ring_recv.close());
  const bool is_pinned = buffers[0] || buffers[1];
  buffers.push_back(host_->area.take_bulk_rings());
  if (is_pinned) on_host_.unmapper.let_go(std::move(buffers));  // else unmapping them waits for nothing
}

}  // namespace tcpx
