#include "lanes/lanes.h"

#include <algorithm>
#include <new>
#include <utility>

#include "lanes/pull/pull_lane.h"
#include "lanes/ring/ring_lane.h"

namespace tcpx {

namespace {

// A vector cannot travel as a whole.
Packing packing_into(std::span<const HeldRange> to, Packing wanted) {
  return wanted == Packing::kWhole && to.size() > 1 ? Packing::kPacked : wanted;
}

}  // namespace

std::vector<std::pair<Way, MakeLane>>& ways_on_host() {
  static std::vector<std::pair<Way, MakeLane>> ways{{Way::kPull, make_pull_lane}, {Way::kRing, make_ring_lane}};
  return ways;
}

Lanes::Lanes(std::unique_ptr<Pipeline> send, std::unique_ptr<Pipeline> recv, const LaneParts& net, HostPeer* host,
             const PullParts& on_host, ControlStream& stream, bool eager, const std::shared_ptr<const ByteSumKey>& sum_key)
    : host_(host),
      on_host_(on_host),
      stream_(stream),
      eager_(eager),
      net_send_(std::move(send), net),
      net_recv_(std::move(recv), net) {
  if (host != nullptr) {
    const LaneMaking making{*host, on_host_, stream, sum_key,
                            [this](std::unique_ptr<Job>&& job, GoFrame go) { return receive_elsewhere(std::move(job), go); }};
    for (const auto& [way, make] : ways_on_host()) {
      for (const bool receives : {false, true}) all_.push_back(near_.emplace_back(make(making, receives)).get());
    }
  }
  if (sum_key == nullptr) return;
  for (Lane* const lane : all_) sums_.push_back(std::make_unique<JobSums>(*lane, sum_key, on_host_, stream));
}

JobSums* Lanes::sums_of(const Lane& lane) const {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const auto& sums) { return &sums->lane() == &lane; });
  return found == sums_.end() ? nullptr : found->get();
}

// A GPU adds up beside the sending, this thread once that has begun. Where the receiver copies, its Go says that it has; what could be begun
// before, was begun at the offer.
void Lanes::push(Lane& lane, std::unique_ptr<Job> job, const GoFrame& go) {
  JobSums* const sums = sums_of(lane);
  if (sums == nullptr) return lane.push(std::move(job), {}, go);
  Job& pushed = *job;
  const bool on_host = pushed.ranges.empty() || is_of_host(pushed.ranges.front().region(), on_host_.memory);
  if (!on_host) sums->begin(pushed);
  lane.push(std::move(job), {}, go);
  try {
    sums->begin_early(pushed);
  } catch (const std::bad_alloc&) {  // then it is begun when the job has ended
  }
}

bool Lanes::compare_sums(const Lane& lane) {
  JobSums* const sums = sums_of(lane);
  return sums != nullptr && sums->progress();
}

Job* Lanes::ended(const Lane& lane) const {
  const JobSums* const sums = sums_of(lane);
  return sums == nullptr ? lane.ended() : sums->ended();
}

Lane* Lanes::find(Way way, bool receives) const {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const Lane* lane) { return lane->way() == way && lane->receives() == receives; });
  return found == all_.end() ? nullptr : *found;
}

bool Lanes::expect(std::span<const HeldRange> ranges) {
  if (declined_ || !pulls_gpu_) return true;
  return std::all_of(near_.begin(), near_.end(), [&](const auto& lane) { return lane->receives() || lane->expect(ranges); });
}

bool Lanes::is_ready_to_offer(std::span<const HeldRange> ranges, Packing wanted) {
  bool ready = (host_ != nullptr && !declined_) || net_send_.can_prepare(ranges, wanted);
  for (const auto& lane : near_) {
    if (!lane->receives()) ready &= lane->is_ready(ranges);
  }
  return ready;
}

bool Lanes::beats_frames(std::span<const HeldRange> ranges) {
  if (declined_ || !pulls_gpu_) return false;
  bool beats = false, ready = true;
  for (const auto& lane : near_) {
    if (lane->receives()) continue;
    beats |= lane->beats_frames(ranges);
    ready &= lane->is_ready(ranges);  // all: of one way alone a receiver that cannot go it takes the bytes from the network
  }
  return beats && ready;
}

Result<Offer> Lanes::offer(const OfferName& of, std::span<const HeldRange> ranges, uint64_t bytes, bool on_host,
                           std::span<const RegionUse> uses) {
  Offer offer;
  std::vector<std::byte> words;
  for (const auto& lane : near_) {
    if (!on_host || lane->receives()) continue;
    words.clear();
    if (!lane->offer(ranges, words)) continue;
    append_offer(lane->way(), words, offer.others);
    offer.ways |= bit(lane->way());
    if (!sums_.empty()) lane->begin_sum(of, ranges, uses);
  }
  if (offer.ways != 0 && !declined_) {
    offer.packing = Packing::kPacked;  // suits every memory
    return offer;
  }
  TCPX_ASSIGN_OR_RETURN(offer.packing, net_send_.prepare(ranges, preferred_packing(ranges, bytes)));
  return offer;
}

std::string_view Lanes::objection_to(const GoFrame& go, std::span<const HeldRange> ranges, WaySet offered) {
  if (go.way != Way::kNetwork) return (offered & bit(go.way)) != 0 ? std::string_view() : kNotOffered;
  // Empty ranges were dropped at both ends, so both count the same.
  return go.packing == Packing::kWhole && ranges.size() != 1 ? kNoWholeVector : std::string_view();
}

void Lanes::send(std::unique_ptr<Job> job, const GoFrame& go) {
  for (const auto& lane : near_) lane->give_sum({.operation = go.operation, .of_read = go.of_read}, job->sum);
  if (!is_of_host(job->ranges.front().region(), on_host_.memory)) pulls_gpu_ = go.way == Way::kPull;
  if (go.way == Way::kNetwork) {
    declined_ = host_ != nullptr;
    job->packing = go.packing;
    // The sender's Begin fixes the place of the job in the order.
    if (eager_) stream_.send(BeginFrame{.operation = go.operation, .of_read = go.of_read});
  }
  push(*find(go.way, false), std::move(job), go);
}

// Ways that only the peer has are none of this end's.
Status Lanes::check(const WireOffers& offers, uint64_t bytes) const {
  for (const auto& lane : near_) {
    if (!lane->receives()) continue;
    if (const auto words = offers.find(lane->way()); words) TCPX_RETURN_IF_ERROR(lane->check(*words, bytes));
  }
  return Status::ok();
}

// Not on one host: whether the network is needed there is known when all other ways have been tried.
bool Lanes::is_ready_to_take(std::span<const HeldRange> to, Packing wanted) {
  return host_ != nullptr || net_recv_.can_prepare(to, packing_into(to, wanted));
}

Status Lanes::take(std::span<const HeldRange> to, const WireOffers& offers, Packing over_network, GoFrame& go) {
  for (const auto& lane : near_) {
    if (offers.empty() || !lane->receives()) continue;
    const auto words = offers.find(lane->way());
    if (!words || !lane->take(to, *words)) continue;
    go.way = lane->way();
    return Status::ok();
  }
  TCPX_ASSIGN_OR_RETURN(go.packing, net_recv_.prepare(to, packing_into(to, over_network)));
  return Status::ok();
}

// Unless the connection is eager, the order of these Gos is the order of the jobs in the receiving lane here and in the sending lane
// there. The lane gets the job last: if an allocation fails before that, nothing will touch the job's memory.
void Lanes::receive(std::unique_ptr<Job> job, const WireOffers& offers, const GoFrame& go) {
  job->packing = go.packing;
  for (const auto& lane : near_) {
    if (offers.find(lane->way())) job->offered |= bit(lane->way());
  }
  Lane& lane = *find(go.way, true);
  if (!lane.sends_go()) stream_.send(go);
  if (eager_) return net_recv_.await(std::move(job), go.operation, go.of_read);
  lane.push(std::move(job), offers.find(go.way).value_or(std::span<const std::byte>()), go);
}

// Checksums need the peer: it computes those of what it has.
void Lanes::lease(MemoryRegistry& registry, ConnId conn, const SlotId& slot) {
  if (!sums_.empty()) return;
  for (const auto& lane : near_) lane->lease(registry, conn, slot);
}

bool Lanes::move_leased(std::unique_ptr<Job>& job, std::span<const WireRange> slots, bool writes) {
  return sums_.empty() &&
         std::any_of(near_.begin(), near_.end(), [&](const auto& lane) { return lane->push_leased(job, slots, writes); });
}

// For a job whose Go has not been sent.
Status Lanes::receive_elsewhere(std::unique_ptr<Job>&& job, GoFrame go) {
  Lane* lane = find(Way::kRing, true);
  if ((job->offered & bit(Way::kRing)) == 0 || !lane->take(job->ranges, {})) {
    lane = &net_recv_;
    TCPX_ASSIGN_OR_RETURN(go.packing, net_recv_.prepare(job->ranges, Packing::kPacked));
  }
  go.way = lane->way();
  job->packing = go.packing;
  const bool sends_go = lane->sends_go();
  lane->push(std::move(job), {}, go);
  if (!sends_go) stream_.send(go);
  return Status::ok();
}

Status Lanes::on(const LaneFrame& frame) {
  if (Lane* const lane = find(frame.way, !frame.to_sender)) {
    JobSums* const sums = frame.what == JobSums::kSum ? sums_of(*lane) : nullptr;
    return sums != nullptr ? sums->on(frame) : lane->on(frame);
  }
  return unexpected(frame.kType, frame.number, "this end has no such lane");
}

bool Lanes::idle() const {
  return std::all_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->idle(); });
}

bool Lanes::rests(TimePoint now) const {
  return std::all_of(all_.begin(), all_.end(), [now](const Lane* lane) { return lane->rests(now); });
}

bool Lanes::is_told(TimePoint now) const {
  return std::all_of(all_.begin(), all_.end(), [now](const Lane* lane) { return lane->rests(now) || lane->is_told(); });
}

bool Lanes::closed() const {
  return std::all_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->closed(); });
}

void Lanes::fail(const Status& reason) {
  for (Lane* const lane : all_) lane->fail(reason);
}

void Lanes::abandon() {
  for (Lane* const lane : all_) lane->abandon();
  for (const auto& sums : sums_) sums->abandon();
}

bool Lanes::can_move() const {
  return std::any_of(near_.begin(), near_.end(), [](const auto& lane) { return lane->can_move(); });
}

uint32_t Lanes::wants(TimePoint now) const {
  uint32_t wants = 0;
  for (const auto& lane : near_) wants |= lane->wants(now);
  return wants;
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
  const auto is_peers = [region](const auto& job) { return is_of_peer(*job, region); };
  return std::any_of(all_.begin(), all_.end(), [&](const Lane* lane) {
    return lane->serves(region) || std::any_of(lane->all_ended().begin(), lane->all_ended().end(), is_peers);
  });
}

void Lanes::forget(MemoryId region) {
  for (Lane* const lane : all_) lane->forget(region);
}

bool Lanes::peer_holds(MemoryId region) const {
  return std::any_of(all_.begin(), all_.end(), [region](const Lane* lane) { return lane->peer_holds(region); });
}

bool Lanes::is_read() const {
  return std::any_of(all_.begin(), all_.end(), [](const Lane* lane) { return lane->is_read(); });
}

void Lanes::close() {
  if (host_ == nullptr) return;
  std::vector<MemoryBuffer> buffers;  // first the rings' pins for the GPU, then the rings
  for (const auto& lane : near_) {
    if (MemoryBuffer buffer = lane->close()) buffers.push_back(std::move(buffer));
  }
  host_->process.reset();
  host_->files.reset();
  host_->forget_pages();
  const bool waits = !buffers.empty();
  buffers.push_back(host_->area.take_bulk_rings());
  if (waits) on_host_.unmapper.let_go(std::move(buffers));  // else unmapping them waits for nothing
}

}  // namespace tcpx
