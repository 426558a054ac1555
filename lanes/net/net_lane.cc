#include "lanes/net/net_lane.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/trace_range.h"

namespace tcpx {

Packing preferred_packing(std::span<const HeldRange> ranges, uint64_t bytes) {
  if (ranges.size() == 1) return Packing::kWhole;
  return bytes / ranges.size() >= kDirectRangeBytes ? Packing::kRanges : Packing::kPacked;
}

NetLane::NetLane(std::unique_ptr<Pipeline> connection, const LaneParts& parts)
    : Lane(Way::kNetwork, connection->direction() == Direction::kRecv),
      connection_(std::move(connection)),
      memory_(*connection_, parts, receives()),
      device_copier_(parts.device_copier) {
  if (parts.told) connection_->tell_changes(parts.told);
}

NetLane::~NetLane() {
  // The staging buffers may go only when neither network nor GPU touches them any more.
  for (Parcel& parcel : parcels_) {
    if (parcel.state != ParcelState::kGathering && parcel.state != ParcelState::kFetching &&
        parcel.state != ParcelState::kScattering)
      continue;
    while (true) {
      const auto done = copier_of(parcel).query(parcel.ticket);
      if (!done.is_ok() || *done) break;
    }
  }
  connection_.reset();  // before the staging buffers
}

// If an allocation fails, the job stays the caller's.
void NetLane::queue(std::unique_ptr<Job>& job) {
  jobs_.push_back(std::make_unique<Queued>());
  jobs_.back()->job = std::move(job);
  enter(*jobs_.back()->job);
  bytes_ += jobs_.back()->job->bytes;
}

bool NetLane::begin(uint64_t number, bool of_read) {
  const auto found = std::find_if(awaited_.begin(), awaited_.end(),
                                  [=](const Awaited& entry) { return entry.number == number && entry.of_read == of_read; });
  if (found == awaited_.end()) return false;
  queue_awaited(found);
  return true;
}

// If an allocation fails, the job stays in `awaited_`, and only its own operation is affected.
void NetLane::queue_awaited(std::deque<Awaited>::iterator entry) {
  queue(entry->job);
  awaited_.erase(entry);
}

// Skips jobs of this end's own operations: they stay, and end with the link.
std::unique_ptr<Job> NetLane::take_awaited_write(uint64_t number) {
  const auto found = std::find_if(awaited_.begin(), awaited_.end(),
                                  [=](const Awaited& entry) { return entry.job->of_peer && entry.number == number; });
  if (found == awaited_.end()) return nullptr;
  auto job = std::move(found->job);
  awaited_.erase(found);
  return job;
}

bool NetLane::progress(TimePoint /*now*/) {
  bool advanced = cut();
  advanced |= submit_ready();
  if (!parcels_.empty() || !connection_->status().is_ok()) advanced |= connection_->progress();
  advanced |= poll_pieces();
  if (!connection_->status().is_ok()) {
    while (!awaited_.empty()) queue_awaited(awaited_.begin());
    for (const auto& queued : jobs_) fail_job(*queued, connection_->status());
  }
  collect_ended();
  return advanced;
}

bool NetLane::rests(TimePoint /*now*/) const {
  if (idle()) return true;
  const bool can_cut = next_cut_ < jobs_.size() && parcels_.size() < kMaxLaneTransfers;
  return !receives() && !can_cut && next_submit_ == parcels_.size() && !has_ended() && connection_->is_behind();
}

// Not while the GPU copies, which nobody tells. A staging buffer that is made wakes the thread, too.
bool NetLane::is_told() const {
  const auto copies = [](const Parcel& parcel) {
    return parcel.of != nullptr && parcel.state != ParcelState::kReady && parcel.state != ParcelState::kSubmitted;
  };
  return !has_ended() && connection_->is_told() && std::none_of(parcels_.begin(), parcels_.end(), copies);
}

// Cuts jobs into parcels, in order, while there is room.
bool NetLane::cut() {
  bool advanced = false;
  while (next_cut_ < jobs_.size() && parcels_.size() < kMaxLaneTransfers && connection_->status().is_ok()) {
    Queued& queued = *jobs_[next_cut_];
    bool made = false;
    if (!queued.job->unwanted.empty()) {
      made = cut_unwanted(queued);
    } else {
      made = queued.job->packing == Packing::kPacked ? cut_packed(queued) : cut_direct(queued);
    }
    advanced |= made;
    if (queued.cut_whole) {
      ++next_cut_;
    } else if (!made) {
      break;
    }
  }
  return advanced;
}

// One parcel per range.
bool NetLane::cut_direct(Queued& queued) {
  const auto ranges = queued.job->ranges;
  if (queued.next_range < ranges.size()) {
    const HeldRange& range = ranges[queued.next_range];
    parcels_.push_back({.of = &queued, .state = ParcelState::kReady, .first_range = queued.next_range, .bytes = range.bytes});
    ++queued.open_parcels;
    ++queued.next_range;
  }
  queued.cut_whole = queued.next_range == ranges.size();
  return true;
}

// Cuts the job as the sender does.
bool NetLane::cut_unwanted(Queued& queued) {
  const Job& job = *queued.job;
  const auto scrap = memory_.scrap();
  if (!scrap.is_ok()) connection_->cancel(scrap.status());
  if (!scrap.is_ok() || *scrap == nullptr) return false;
  const bool packed = job.packing == Packing::kPacked;
  const uint64_t bytes =
      packed ? std::min<uint64_t>(kParcelBytes, job.bytes - queued.cut_bytes) : job.unwanted[queued.next_range++];
  parcels_.push_back({.of = &queued, .state = ParcelState::kReady, .bytes = bytes});
  ++queued.open_parcels;
  queued.cut_bytes += bytes;
  queued.cut_whole = packed ? queued.cut_bytes == job.bytes : queued.next_range == job.unwanted.size();
  return true;
}

// A receiver discards the bytes and ends the job alone. The peer waits for a sender's bytes, and must not get others.
// @return true: the job goes on
bool NetLane::has_no_staging(Queued& queued, Status why) {
  Job& job = *queued.job;
  if (!receives()) {
    connection_->cancel(why);
    return false;
  }
  job.unwanted = {job.bytes};
  job.status = std::move(why);
  return true;
}

bool NetLane::cut_packed(Queued& queued) {
  const auto ranges = queued.job->ranges;
  if (!std::exchange(queued.begun, true)) queued.list = memory_.list(ranges);
  const uint64_t bytes = std::min<uint64_t>(kParcelBytes, queued.job->bytes - queued.cut_bytes);
  if (queued.list) {
    parcels_.push_back({.of = &queued, .state = ParcelState::kReady, .offset = queued.cut_bytes, .bytes = bytes});
    ++queued.open_parcels;
    queued.cut_bytes += bytes;
    queued.cut_whole = queued.cut_bytes == queued.job->bytes;
    return true;
  }
  const auto staging = memory_.staging_for(ranges.front().region());
  if (!staging.is_ok()) return has_no_staging(queued, staging.status());
  if (*staging == nullptr || (*staging)->free.empty()) return false;
  Parcel parcel{.of = &queued,
                .state = ParcelState::kReady,
                .staging = *staging,
                .slot = (*staging)->free.back(),
                .first_range = queued.next_range,
                .first_offset = queued.next_offset,
                .bytes = bytes};
  // Before the copy begins: a begun copy must be waited for, so it needs a parcel, and adding one can fail.
  parcels_.push_back(parcel);
  ++queued.open_parcels;
  (*staging)->free.pop_back();
  if (!receives()) {
    const TraceRange trace("submit gather", parcel.bytes);
    segments_of(parcel, true);
    const auto ticket = parcel.staging->copier->submit(segments_);
    if (!ticket.is_ok()) {
      end_parcel(parcels_.back());
      parcels_.pop_back();
      if (ticket.status().code() != Code::kExhausted) connection_->cancel(ticket.status());
      return false;
    }
    parcels_.back().ticket = *ticket;
    parcels_.back().state = ParcelState::kGathering;
  }
  uint64_t left = parcel.bytes;
  while (left > 0) {
    const uint64_t part = std::min<uint64_t>(left, ranges[queued.next_range].bytes - queued.next_offset);
    left -= part;
    queued.next_offset += part;
    if (queued.next_offset == ranges[queued.next_range].bytes) {
      ++queued.next_range;
      queued.next_offset = 0;
    }
  }
  queued.cut_bytes += parcel.bytes;
  queued.cut_whole = queued.cut_bytes == queued.job->bytes;
  return true;
}

// Fills `segments_` with the copies between a packed parcel and its ranges.
void NetLane::segments_of(const Parcel& parcel, bool gather) {
  segments_.clear();
  const auto ranges = parcel.of->job->ranges;
  const StagingArea& staging = *parcel.staging;
  std::byte* slot = (staging.mapped ? staging.mapped.host() : staging.buffer.device()) + parcel.slot * kParcelBytes;
  size_t index = parcel.first_range;
  uint64_t offset = parcel.first_offset;
  for (uint64_t left = parcel.bytes; left > 0; ++index, offset = 0) {
    const uint64_t part = std::min<uint64_t>(left, ranges[index].bytes - offset);
    std::byte* const user = ranges[index].data + offset;
    segments_.push_back(gather ? CopySegment{slot, user, part} : CopySegment{user, slot, part});
    slot += part;
    left -= part;
  }
}

bool NetLane::submit_ready() {
  bool advanced = false;
  while (next_submit_ < parcels_.size() && connection_->status().is_ok()) {
    Parcel& parcel = parcels_[next_submit_];
    if (parcel.state == ParcelState::kGathering) {
      const auto gathered = parcel.staging->copier->query(parcel.ticket);
      if (!gathered.is_ok()) {
        parcel.state = ParcelState::kReady;  // nothing is being copied any more
        connection_->cancel(gathered.status());
        break;
      }
      if (!*gathered) break;
      parcel.state = ParcelState::kReady;
    }
    const auto spec = transfer_of(parcel);
    if (!spec.is_ok()) {
      connection_->cancel(spec.status());
      break;
    }
    const auto transfer = connection_->submit(*spec);
    if (!transfer.is_ok()) {
      if (transfer.status().code() != Code::kExhausted) connection_->cancel(transfer.status());
      break;
    }
    parcel.transfer = *transfer;
    parcel.state = ParcelState::kSubmitted;
    ++next_submit_;
    advanced = true;
  }
  return advanced;
}

Result<TransferSpec> NetLane::transfer_of(const Parcel& parcel) {
  TransferSpec spec{.bytes = parcel.bytes};
  if (!parcel.of->job->unwanted.empty()) {
    TCPX_ASSIGN_OR_RETURN(const RegisteredMemory* const scrap, memory_.scrap());
    spec.memory = *scrap;
    spec.unwanted = true;
  } else if (parcel.staging != nullptr) {
    spec.memory = parcel.staging->registered;
    spec.offset = parcel.slot * kParcelBytes;
  } else if (parcel.of->list) {
    spec.memory = *parcel.of->list;
    spec.offset = parcel.offset;
  } else {
    const HeldRange& range = parcel.of->job->ranges[parcel.first_range];
    const RegisteredMemory* const memory = memory_.registered(range.region());
    if (memory == nullptr)
      return Status(Code::kProtocol, "submit transfer", "the peer wants memory unpacked that this end must pack");
    spec.memory = *memory;
    spec.offset = static_cast<size_t>(range.data - range.region().data);
  }
  return spec;
}

bool NetLane::poll_pieces() {
  bool advanced = false;
  for (Parcel& parcel : parcels_) {
    if (parcel.of != nullptr) advanced |= step(parcel);
  }
  while (!parcels_.empty() && parcels_.front().of == nullptr) {
    parcels_.pop_front();
    if (next_submit_ > 0) --next_submit_;
  }
  return advanced;
}

bool NetLane::step(Parcel& parcel) {
  switch (parcel.state) {
    case ParcelState::kGathering: {
      if (connection_->status().is_ok()) return false;  // submit_ready takes it
      const auto gathered = parcel.staging->copier->query(parcel.ticket);
      if (gathered.is_ok() && !*gathered) return false;
      end_parcel(parcel);
      return true;
    }
    case ParcelState::kReady:
      if (connection_->status().is_ok()) return false;
      end_parcel(parcel);
      return true;
    case ParcelState::kSubmitted: {
      TransferAnswer answer = connection_->poll(parcel.transfer);
      if (answer.state == TransferState::kPending) return false;
      if (answer.state == TransferState::kDone && receives() && parcel.staging != nullptr) {
        parcel.state = ParcelState::kArrived;
        (void)scatter(parcel);
        return true;
      }
      if (answer.state != TransferState::kDone)
        fail_job(*parcel.of, answer.status.is_ok() ? connection_->status() : answer.status);
      end_parcel(parcel);
      return true;
    }
    case ParcelState::kArrived:
    case ParcelState::kFetched:
      return scatter(parcel);
    case ParcelState::kFetching:
    case ParcelState::kScattering: {
      const auto copied = copier_of(parcel).query(parcel.ticket);
      if (copied.is_ok() && !*copied) return false;
      if (copied.is_ok() && parcel.state == ParcelState::kFetching) {
        parcel.state = ParcelState::kFetched;
        (void)scatter(parcel);
        return true;
      }
      if (!copied.is_ok()) {
        fail_job(*parcel.of, copied.status());
        connection_->cancel(copied.status());
      }
      end_parcel(parcel);
      return true;
    }
  }
  return false;
}

SegmentCopier& NetLane::copier_of(const Parcel& parcel) const {
  return parcel.state == ParcelState::kFetching ? device_copier_ : *parcel.staging->copier;
}

// Copies a parcel from its slot to its ranges, or first into memory that GPU and host reach. A full copier is tried again later.
bool NetLane::scatter(Parcel& parcel) {
  const TraceRange trace("submit scatter", parcel.bytes);
  const StagingArea& staging = *parcel.staging;
  const ParcelState before = parcel.state;
  if (staging.mapped && before == ParcelState::kArrived) {
    const size_t at = parcel.slot * kParcelBytes;
    segments_.assign(1, CopySegment{staging.mapped.device() + at, staging.buffer.device() + at, parcel.bytes});
    parcel.state = ParcelState::kFetching;
  } else {
    segments_of(parcel, false);
    parcel.state = ParcelState::kScattering;
  }
  const auto ticket = copier_of(parcel).submit(segments_);
  if (ticket.is_ok()) {
    parcel.ticket = *ticket;
    return true;
  }
  parcel.state = before;
  if (ticket.status().code() == Code::kExhausted) return false;
  fail_job(*parcel.of, ticket.status());
  connection_->cancel(ticket.status());
  end_parcel(parcel);
  return true;
}

void NetLane::end_parcel(Parcel& parcel) {
  if (parcel.staging != nullptr) parcel.staging->free.push_back(parcel.slot);
  --parcel.of->open_parcels;
  parcel.of = nullptr;
}

void NetLane::fail_job(Queued& queued, const Status& reason) {
  if (queued.job->status.is_ok()) queued.job->status = reason;
  queued.cut_whole = true;  // no more parcels
}

// Jobs may end out of order: a failed job waits for its parcels, and on several channels transfers overtake each other.
void NetLane::collect_ended() {
  for (size_t i = 0; i < jobs_.size();) {
    Queued& queued = *jobs_[i];
    if (!queued.cut_whole || queued.open_parcels > 0) {
      if (i >= next_cut_) break;  // neither this job nor any behind it has begun
      ++i;
      continue;
    }
    const uint64_t bytes = queued.job->bytes;
    if (queued.list) memory_.drop_list(*queued.list);
    ended_.push_back(std::move(queued.job));
    bytes_ -= bytes;
    jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(i));
    if (i < next_cut_) --next_cut_;
  }
}

bool NetLane::serves(MemoryId region) const {
  const auto is_peers = [region](const std::unique_ptr<Job>& entry) { return is_of_peer(*entry, region); };
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& queued) { return is_peers(queued->job); }) ||
         std::any_of(awaited_.begin(), awaited_.end(), [&](const Awaited& entry) { return is_peers(entry.job); });
}

void NetLane::add_to(ConnectionStats& stats) const {
  stats.chunks_in_flight += connection_->in_flight();
  stats.window_chunks += connection_->window();
  for (const ChannelCounters& channel : connection_->counters()) {
    auto nic = std::find_if(stats.nics.begin(), stats.nics.end(), [&](const NicStats& n) { return n.name == channel.nic; });
    if (nic == stats.nics.end()) nic = stats.nics.insert(nic, NicStats{.name = channel.nic});
    (receives() ? nic->bytes_received : nic->bytes_sent) += channel.bytes;
    (receives() ? nic->chunks_received : nic->chunks_sent) += channel.chunks;
  }
}

std::string NetLane::flight_record() const {
  return concat(receives() ? "receive" : "send", " lane: ", jobs_.size(), " jobs, ", parcels_.size(), " parcels; ",
                connection_->flight_record());
}

}  // namespace tcpx
