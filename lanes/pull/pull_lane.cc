#include "lanes/pull/pull_lane.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/spin_time.h"
#include "base/text.h"
#include "lanes/pull/joint_slice.h"
#include "lanes/pull/pulled_lane.h"

namespace tcpx {
namespace {

// To find so many takes less time than to copy them, if they are long enough for a GPU to copy them fast.
constexpr size_t kSegmentsAtOnce = 2048;
static_assert(kSegmentsAtOnce <= kMaxCopySegments);

// From so many bytes on, half of a copy takes much longer than to ask the peer for the other half.
constexpr uint64_t kLeastJoint = 2 * JointCopy::kSliceBytes;
// Many threads are as fast from so many bytes on, and then faster (16 cores, huge pages: 1 MiB jointly 35 to 40 GB/s;
// 2 MiB 22, by threads 11; 4 MiB 23 and 22; 8 MiB 23 and 37).
constexpr uint64_t kLeastByThreads = 2 * HostCopy::kTableBytes;
// The thread that begins a joint copy waits so long for its end before it looks at what else there is to do.
constexpr Duration kMostWaited = std::chrono::microseconds(200);

}  // namespace

std::unique_ptr<Lane> make_pull_lane(const LaneMaking& making, bool receives) {
  if (receives) return std::make_unique<PullLane>(making);
  return std::make_unique<PulledLane>(making);
}

Status PullLane::check(std::span<const std::byte> words, uint64_t bytes) const {
  TCPX_ASSIGN_OR_RETURN(const uint64_t sum, bytes_of_sources(words));
  if (sum == bytes) return Status::ok();
  return Status(Code::kProtocol, "read sources", concat("sources of ", sum, " bytes for ", bytes));
}

bool PullLane::take(std::span<const HeldRange> to, std::span<const std::byte> words) {
  const WireArray<WireSource> sources(words);
  return reaches(to, sources.size(), [&](size_t i) { return sources[i]; });
}

template <class SourceAt>
bool PullLane::reaches(std::span<const HeldRange> to, size_t count, const SourceAt& source_at) {
  if (count == 0 || to.empty() || !status_.is_ok()) return false;
  const Region& region = to.front().region();
  const bool on_gpu = !is_of_host(region, parts_.memory);
  if (region.access.copier != nullptr) return false;
  const Mapping* known = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (!reaches(source_at(i), on_gpu, known)) return false;
  }
  return true;
}

// @param known the share looked up last: often the same again
bool PullLane::reaches(const WireSource& source, bool on_gpu, const Mapping*& known) {
  if (source.share == kHostMemory) return !on_gpu && peer_.reads_memory && !denied_;
  if (!on_gpu) return false;
  if (known == nullptr || known->share != source.share) {
    const Mapping* const mapping = mappings_.find(source.share).get();
    if (mapping == nullptr || mapping->is_refused()) return false;
    known = mapping;
  }
  return known->contains(source);
}

void PullLane::push(std::unique_ptr<Job>&& job, std::span<const std::byte> words, const GoFrame& go) {
  Pull pull;
  pull.go = go;
  const WireArray<WireSource> sources(words);
  pull.found.rows.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) pull.found.rows.push_back({.part = sources[i], .bytes = sources[i].bytes});
  job->sum.offer = {go.operation, go.of_read};
  begin(std::move(job), std::move(pull));
}

bool PullLane::push_leased(std::unique_ptr<Job>& job, std::span<const WireRange> slots, bool writes) {
  assert(slots.size() == job->ranges.size());
  auto found = leases_.find(slots, writes);
  if (!found || !reaches(job->ranges, found->rows.size(), [&](size_t i) { return found->rows[i].part; })) return false;
  Pull pull;
  pull.found = std::move(*found);
  pull.slots = slots;
  const bool on_host = is_of_host(job->ranges.front().region(), parts_.memory);
  pull.writes = writes;
  if (writes) {
    pull.touching.emplace(leases_.touch(pull.found.leases));
    if (!leases_.last(pull.found.leases)) return false;
  }
  if (on_host && is_joint(*job, pull)) {
    begin_jointly(job, pull);
    return true;
  }
  if (writes && on_host) return write_on_host(job, pull);
  job->lease = Job::Lease::kLasts;
  begin(std::move(job), std::move(pull));
  return true;
}

bool PullLane::is_joint(const Job& job, const Pull& pull) const {
  return joins_ && job.alone && job.bytes >= kLeastJoint && job.bytes <= JointCopy::kMostBytes &&
         (job.bytes < kLeastByThreads || parts_.host_copier.has_few_threads()) && job.ranges.size() == 1 &&
         pull.found.rows.size() == 1 && peer_.is_read && (peer_.process || peer_.same_process) && !stream_.peer_sleeps() &&
         std::none_of(pulls_.begin(), pulls_.end(), [](const Pull& other) { return other.joint; });
}

void PullLane::begin_jointly(std::unique_ptr<Job>& job, Pull& pull) {
  Pull& kept = pulls_.emplace_back();  // what wants memory comes before the peer may touch any
  pull.job = std::move(job);
  find_segments(pull, SIZE_MAX);
  const CopySegment& all = pull.segments.front();
  if (++joint_copies_ == 0) ++joint_copies_;
  pull.joint.emplace(peer_.own_joint(), joint_copies_, false, all);
  const WireJoint asked{.slot = pull.slots.front().slot,
                        .offset = pull.slots.front().offset,
                        .bytes = all.bytes,
                        .address = reinterpret_cast<uint64_t>(pull.job->ranges.front().data),
                        .writes = pull.writes ? 1u : 0u};
  stream_.send(talk(PullTalk::kJoin, joint_copies_, std::as_bytes(std::span(&asked, 1))));
  pull.job->lease = Job::Lease::kLasts;
  kept = std::move(pull);
  kept.joint->begin();
  const auto has_ended = [&] {
    Running none;
    return step(kept, none);
  };
  try {
    (void)stream_.flush();  // the peer begins while this thread copies its first slice
    // As a copy by this end alone, one that is not too much is over when it has been started.
    const TimePoint until = Clock::steady().now() + kMostWaited;
    while (!has_ended() && Clock::steady().now() < until) pause_briefly();
  } catch (const std::bad_alloc&) {  // a later turn goes on
  }
  if (kept.job == nullptr) pulls_.pop_back();
}

// @return false: some of it may have been written
bool PullLane::write_on_host(std::unique_ptr<Job>& job, Pull& pull) {
  if (pulls_.size() >= kMaxRunning && !is_short(*job)) return false;  // a short one is over when it has been started
  Pull& kept = pulls_.emplace_back();  // now: no memory may be missing once threads write
  pull.job = std::move(job);
  find_segments(pull, SIZE_MAX);
  pull.copy = parts_.host_copier.start_write(peer_.pid, pull.segments, peer_.pages(), pull.job->alone);
  const bool is_done = pull.copy != nullptr && pull.copy->done();
  if (pull.copy == nullptr || (is_done && !pull.copy->status().is_ok())) {
    pulls_.pop_back();
    pull.touching.reset();
    job = std::move(pull.job);
    return false;
  }
  pull.job->lease = Job::Lease::kLasts;
  if (!is_done) {
    kept = std::move(pull);
    return true;
  }
  pulls_.pop_back();
  pull.touching.reset();
  if (const Status gone = check_peer(); gone.is_ok()) {
    end_leased(pull, true);
  } else {
    end(pull, gone);
  }
  return true;
}

void PullLane::begin(std::unique_ptr<Job>&& job, Pull&& pull) {
  pull.on_gpu = !is_of_host(job->ranges.front().region(), parts_.memory);
  for (const PeerLeases::Row& row : pull.found.rows) {
    const uint64_t share = row.part.share;
    if (share == kHostMemory || (!pull.mappings.empty() && pull.mappings.back()->share == share)) continue;
    pull.mappings.push_back(mappings_.find(share));
  }
  hurry(pull);
  if (pull.on_gpu && peer_.same_process && !pull.writes)
    pull.touching.emplace(std::vector<std::atomic<uint32_t>*>{&peer_.peer_leases().reading});
  pulls_.push_back(std::move(pull));
  pulls_.back().job = std::move(job);
  if (!pulls_.back().on_gpu || pulls_.size() > kMaxRunning) return;
  try {
    (void)submit(pulls_.back());     // the GPU copies while this thread looks at what else has come
  } catch (const std::bad_alloc&) {  // the next turn goes on, as it sees how that goes
  }
}

// What an operation waits for is mapped before all else that the peer has shared.
void PullLane::hurry(const Pull& pull) {
  std::vector<const PendingBuffer*> wanted;
  for (const auto& mapping : pull.mappings) {
    if (!mapping->mapped->is_done()) wanted.push_back(mapping->mapped.get());
  }
  parts_.unmapper.hurry(std::move(wanted));
}

// Finds the next segments, `most` at most, up to the first share that is not mapped. One ends wherever a range here or a row there
// ends.
void PullLane::find_segments(Pull& pull, size_t most) {
  const std::span<const PeerLeases::Row> rows = pull.found.rows;
  const std::span<const HeldRange> ranges = pull.job->ranges;
  Place place = pull.place;
  pull.segments.clear();
  pull.awaited = nullptr;
  pull.segments.reserve(std::min(most, rows.size() - place.row + ranges.size() - place.range));
  for (; place.row < rows.size() && pull.segments.size() < most; ++place.row, place.in_row = 0) {
    const PeerLeases::Row& row = rows[place.row];
    const auto* part = reinterpret_cast<const std::byte*>(row.part.address);
    if (row.part.share != kHostMemory) {
      while (pull.mappings[place.mapping]->share != row.part.share) ++place.mapping;
      const Mapping& mapping = *pull.mappings[place.mapping];
      if (!mapping.is_mapped()) {
        pull.awaited = &mapping;
        break;
      }
      part = mapping.mapped->buffer->device() + (row.part.address - mapping.memory.base);
    }
    while (place.in_row < row.bytes && pull.segments.size() < most) {
      const HeldRange& range = ranges[place.range];
      const uint64_t bytes = std::min(range.bytes - place.in_range, row.bytes - place.in_row);
      std::byte* const here = range.data + place.in_range;
      const std::byte* const there =
          part + (pull.slots.empty() ? place.in_row : pull.slots[place.range].offset + place.in_range - row.begin);
      pull.segments.push_back(pull.writes ? CopySegment{const_cast<std::byte*>(there), here, bytes}
                                          : CopySegment{here, there, bytes});
      place.in_row += bytes;
      place.in_range += bytes;
      if (place.in_range == range.bytes) {
        ++place.range;
        place.in_range = 0;
      }
    }
    if (place.in_row < row.bytes) break;
  }
  pull.place = place;
}

bool PullLane::progress(TimePoint /*now*/) {
  bool advanced = false;
  Running running;
  for (Pull& pull : pulls_) {
    if (pull.job != nullptr) advanced |= step(pull, running);  // null: the job ended in a turn that then ran out of memory
  }
  std::erase_if(pulls_, [](const Pull& pull) { return pull.job == nullptr; });
  if (status_.is_ok()) advanced |= mappings_.tell_unshared();
  return advanced;
}

bool PullLane::step(Pull& pull, Running& running) {
  size_t& of_its_length = is_short(*pull.job) ? running.brief : running.others;
  if (!pull.is_copied() && (!status_.is_ok() || of_its_length >= kMaxRunning)) {
    if (status_.is_ok()) return false;
    end(pull, status_);
    return true;
  }
  const bool hangs = pull.copy != nullptr && pull.copy->hangs();
  const Result<bool> done = pull.on_gpu ? step_on_gpu(pull) : step_on_host(pull);
  // While one copy hangs, no further one is begun: it would hang, too. A pull that only waits for a share keeps none from beginning.
  if (pull.is_copied()) ++of_its_length;
  if (hangs) running = {kMaxRunning, kMaxRunning};
  if (done.is_ok() && !*done) {
    if (!pull.cannot_go_on()) return false;
    leave(pull);
    return true;
  }
  const Status check = check_peer();  // first: a copy fails because the peer has ended
  const Status status = !check.is_ok() ? check : done.is_ok() ? Status::ok() : done.status();
  if (!status.is_ok() && status_.is_ok() && pull.copy != nullptr && pull.copy->denied()) {
    // A process that ends loses its memory before others can see that it has ended.
    const LogLevel level = pull.copy->status().code() == Code::kPeerGone ? LogLevel::kInfo : LogLevel::kWarning;
    if (!std::exchange(denied_, true))
      log(level, pull.copy->status().to_string(), ": from now on it comes through memory that both share");
    leave(pull);
  } else if (!pull.is_leased() || !check.is_ok()) {
    end(pull, status);
  } else {
    end_leased(pull, status.is_ok());
  }
  return true;
}

// Gives the GPU as much as it takes now: it copies the first segments while the next ones are looked for.
Status PullLane::submit(Pull& pull) {
  while (!pull.all_submitted() && status_.is_ok()) {
    if (pull.segments.empty()) find_segments(pull, kSegmentsAtOnce);
    if (pull.segments.empty()) return Status::ok();  // the next share is not mapped yet
    if (pull.writes && !leases_.last(pull.found.leases)) {
      pull.cut_off = true;
      return Status::ok();
    }
    if (peer_.same_process) TCPX_RETURN_IF_ERROR(check_peer());
    const auto ticket = submit_segments(pull);
    if (!ticket.is_ok()) return ticket.status().code() == Code::kExhausted ? Status::ok() : ticket.status();
    pull.ticket = *ticket;
    ++pull.submits;
    pull.segments.clear();
  }
  return Status::ok();
}

Result<CopyTicket> PullLane::submit_segments(Pull& pull) {
  if (sum_key_ == nullptr) return parts_.gpu_copier.submit_between_gpus(pull.segments);
  uint64_t& part = *pull.sums.emplace_back(std::make_unique<uint64_t>(0));
  const SumPlace place{.key = *sum_key_, .begin = pull.summed_bytes, .total = pull.job->bytes};
  const auto ticket = parts_.gpu_copier.submit_summed(pull.segments, place, part);
  if (!ticket.is_ok()) {
    pull.sums.pop_back();
    return ticket;
  }
  for (const CopySegment& segment : pull.segments) pull.summed_bytes += segment.bytes;
  return ticket;
}

// @return true when all bytes are in place
Result<bool> PullLane::step_on_gpu(Pull& pull) {
  TCPX_RETURN_IF_ERROR(submit(pull));
  if (pull.ticket) {
    SegmentCopier& copier = parts_.gpu_copier;
    // A short one does not wait for long ones that were begun before it.
    TCPX_ASSIGN_OR_RETURN(const bool copied, pull.submits == 1 ? copier.query_alone(*pull.ticket) : copier.query(*pull.ticket));
    if (!copied) return false;
    pull.ticket.reset();
  }
  if (!pull.all_submitted() && !status_.is_ok()) return status_;
  if (!pull.all_submitted()) return false;
  if (sum_key_ != nullptr) {
    uint64_t& sum = pull.job->sum.known.emplace(0);
    for (const auto& part : pull.sums) sum = ByteSumKey::add(sum, *part);
  }
  return true;
}

// @return true when all bytes are in place, and the peer touches nothing any more
Result<bool> PullLane::step_jointly(Pull& pull) {
  JointCopy& joint = *pull.joint;
  // A peer that has given up the connection may use its memory for something else by now.
  if (!status_.is_ok() || peer_.peer_alive().load() != 1) joint.give_up();
  for (size_t i = 0; i < JointCopy::kSlicesAtOnce; ++i) {
    const auto slice = joint.take();
    if (!slice) break;
    pull.copy = copy_slice(parts_.host_copier, peer_, *slice, pull.writes);
    if (pull.copy == nullptr || !pull.copy->is_whole()) {
      joint.give_up();
      break;
    }
    pull.copy = nullptr;
  }
  if (!joint.is_over()) return peer_.has_ended() ? Result<bool>(check_peer()) : false;
  if (joint.is_whole()) return true;
  if (!joint.is_given_up()) joins_ = false;  // it may be so each time: all would be copied twice
  if (pull.copy != nullptr) return pull.copy->status();
  return Status(Code::kSystem, "copy together with the peer", "some of the memory is not there");
}

Result<bool> PullLane::step_on_host(Pull& pull) {
  if (pull.joint) return step_jointly(pull);
  if (pull.copy == nullptr) {
    find_segments(pull, SIZE_MAX);
    pull.copy = parts_.host_copier.start(peer_.pid, pull.segments, {.pages = peer_.pages(), .alone = pulls_.size() == 1});
  }
  if (!pull.copy->done()) {
    parts_.host_copier.relieve();
    return false;
  }
  TCPX_RETURN_IF_ERROR(pull.copy->status());
  return true;
}

// Ok after a copy: the peer kept its memory for the whole time of the copy. Ok before one that is counted: it keeps it.
Status PullLane::check_peer() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (peer_.peer_alive().load() != 1)
    return Status(Code::kPeerGone, "copy from the peer's memory", "the peer has given up the connection");
  if (!peer_.has_ended()) return Status::ok();
  return Status(Code::kPeerGone, "copy from the peer's memory", "its process has ended, or has started another program");
}

// Starts the whole job again, because nobody knows which bytes are in place. The peer keeps its memory until it hears how the job
// ended.
void PullLane::leave(Pull& pull) {
  if (pull.is_leased()) return end_leased(pull, false);
  if (const Status left = elsewhere_(std::move(pull.job), pull.go); !left.is_ok()) end(pull, left);
}

void PullLane::end(Pull& pull, const Status& status) {
  if (status_.is_ok()) status_ = status;
  if (status_.is_ok()) {
    stream_.send(pull.go);
    enter(*pull.job);
  }
  pull.job->status = status_;
  ended_.push_back(std::move(pull.job));
}

// If the bytes do not count, the peer is asked, and says what is wrong.
void PullLane::end_leased(Pull& pull, bool copied) {
  Job& job = *pull.job;
  const bool counts = copied && (pull.writes ? !pull.cut_off : leases_.last(pull.found.leases));
  if (status_.is_ok() && counts) {
    LeaseWords& words = peer_.peer_leases();
    (pull.writes ? words.bytes_written : words.bytes_read).fetch_add(job.bytes, std::memory_order_relaxed);
  } else if (status_.is_ok()) {
    if (!pull.joint) leases_.drop(pull.found.leases);  // else it may last: not all pages were there
    job.lease = Job::Lease::kEnded;
  }
  pull.touching.reset();
  job.status = status_;
  ended_.push_back(std::move(pull.job));
}

void PullLane::fail(const Status& reason) {
  if (status_.is_ok()) status_ = reason;
  for (Pull& pull : pulls_) {
    if (pull.copy != nullptr) pull.copy->stop();
  }
}

void PullLane::abandon() {
  for (Pull& pull : pulls_) {
    if (pull.copy != nullptr) pull.copy->abandon();
    pull.joint.reset();
  }
}

Status PullLane::on(const LaneFrame& frame) {
  switch (static_cast<PullTalk>(frame.what)) {
    case PullTalk::kShare:
      return mappings_.on_share(frame);
    case PullTalk::kUnshare:
      return mappings_.on_unshare(frame.number);
    case PullTalk::kSum:
    case PullTalk::kSumOfRead:
      return on_sum(frame);
    case PullTalk::kLease:
      return leases_.on_lease(frame);
    case PullTalk::kUnshared:
    case PullTalk::kJoin:
      break;
  }
  return unexpected(frame.kType, frame.number, concat("message ", frame.what, " of ", frame.words.size(), " bytes"));
}

// Takes the sum of a pull that is under way or waits for it. Any other pull will have its sum later.
Status PullLane::on_sum(const LaneFrame& frame) {
  uint64_t sum = 0;
  if (sum_key_ == nullptr || frame.words.size() != sizeof sum)
    return unexpected(frame.kType, frame.number, concat("an early checksum of ", frame.words.size(), " bytes"));
  std::memcpy(&sum, frame.words.data(), sizeof sum);
  const OfferName offer{frame.number, frame.what == static_cast<uint64_t>(PullTalk::kSumOfRead)};
  const auto tell = [&](const std::unique_ptr<Job>& job) {
    if (job != nullptr && job->sum.offer == offer) job->sum.peers = sum;
  };
  for (const Pull& pull : pulls_) tell(pull.job);
  for (const auto& job : ended_) tell(job);
  return Status::ok();
}

MemoryBuffer PullLane::close() {
  mappings_.close();
  leases_.clear();
  return {};
}

bool PullLane::serves(MemoryId region) const {
  return std::any_of(pulls_.begin(), pulls_.end(),
                     [region](const Pull& pull) { return pull.job != nullptr && is_of_peer(*pull.job, region); });
}

std::string PullLane::flight_record() const {
  return concat("copies from the peer's memory, or by lease into it: ", pulls_.size(), "; shares mapped: ", mappings_.count(),
                "; leases: ", leases_.count());
}

}  // namespace tcpx
