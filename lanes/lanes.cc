#include "lanes/lanes.h"

#include <algorithm>
#include <utility>

namespace tcpx {

Lanes::Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
             const PullParts& on_host, ControlStream& stream, bool eager)
    : host_(host),
      on_host_(on_host),
      stream_(stream),
      eager_(eager),
      net_send_(std::move(send), net),
      net_recv_(std::move(recv), net),
      ring_send_(bulk_ring(true), on_host, true),
      ring_recv_(bulk_ring(false), on_host, false),
      sources_(host, on_host.memory, stream, [this] { return ring_send_.reaches_gpu(); }),
      pull_(host, on_host, stream, [this](std::unique_ptr<Job>&& job) { ring_recv_.push(std::move(job)); }) {}

Result<Offer> Lanes::offer(std::span<const HeldRange> ranges, uint64_t bytes, bool on_host) {
  Offer offer;
  if (on_host) offer.sources = sources_.of(ranges);
  if (!offer.sources.empty() && !declined_) {
    offer.packing = Packing::kPacked;  // suits every memory
    return offer;
  }
  TCPX_ASSIGN_OR_RETURN(offer.packing, net_send_.prepare(ranges, preferred_packing(ranges, bytes)));
  return offer;
}

std::string_view Lanes::objection_to(Packing way, std::span<const HeldRange> ranges, Packing best) const {
  // Empty ranges were dropped at both ends, so both count the same.
  if (way == Packing::kWhole && ranges.size() != 1) return kNoWholeVector;
  if (is_on_host(way) && !is_offered(way, best)) return kNotOffered;
  return way == Packing::kShared && !ring_send_.gives(ranges) ? kNotOffered : std::string_view();
}

void Lanes::send(std::unique_ptr<Job> job, bool of_read) {
  if (job->packing == Packing::kPulled) return pulled_.push(std::move(job));
  if (job->packing == Packing::kShared) return ring_send_.push(std::move(job));
  declined_ = host_ != nullptr;
  // The sender's Begin fixes the place of the job in the order.
  if (eager_) stream_.send(BeginFrame{.operation = job->number, .of_read = of_read});
  net_send_.push(std::move(job));
}

Result<Packing> Lanes::take(std::span<const HeldRange> to, const WireArray<WireSource>& sources, Packing over_network) {
  if (pull_.can_pull(to, sources)) return Packing::kPulled;
  if (ring_recv_.takes(to, sources)) return Packing::kShared;
  if (over_network == Packing::kWhole && to.size() > 1) over_network = Packing::kPacked;
  return net_recv_.prepare(to, over_network);
}

// Unless the connection is eager, the order of these Gos is the order of the jobs in the receiving lane here and in the sending lane
// there. The lane gets the job last: if an allocation fails before that, nothing will touch the job's memory.
void Lanes::receive(std::unique_ptr<Job> job, const WireArray<WireSource>& sources, const GoFrame& go) {
  if (go.packing == Packing::kPulled) return pull_.push(std::move(job), sources, go);
  stream_.send(go);
  if (go.packing == Packing::kShared) return ring_recv_.push(std::move(job));
  eager_ ? net_recv_.await(std::move(job), go.operation, go.of_read) : net_recv_.push(std::move(job));
}

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
  return sources_.forget(region);
}

void Lanes::close() {
  pull_.close();
  if (host_ == nullptr) return;
  host_->process.reset();
  host_->files.reset();
  std::vector<MemoryBuffer> buffers;  // first the rings' pins for the GPU, then the rings
  buffers.push_back(ring_send_.close());
  buffers.push_back(ring_recv_.close());
  const bool is_pinned = buffers[0] || buffers[1];
  buffers.push_back(host_->area.take_bulk_rings());
  if (is_pinned) on_host_.unmapper.let_go(std::move(buffers));  // else unmapping them waits for nothing
}

}  // namespace tcpx
