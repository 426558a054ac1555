#include "lanes/job_sums.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

// Bounds what a peer costs that never tells its sums again.
constexpr size_t kMostEarly = 1024;

}  // namespace

Status JobSums::on(const LaneFrame& frame) {
  Sum sum;
  if (!frame.words.empty()) {
    uint64_t value = 0;
    if (frame.words.size() != sizeof value)
      return unexpected(frame.kType, frame.number, concat("a checksum of ", frame.words.size(), " bytes"));
    std::memcpy(&value, frame.words.data(), sizeof value);
    sum = value;
  }
  if (early_.erase(frame.number) != 0) {
    ++compared_;
    return Status::ok();
  }
  // As many as there are jobs without one; so a peer that tells sums of jobs that are no more is found out, too.
  if (frame.number >= lane_.entered() || peers_.size() + early_.size() >= lane_.entered() - compared_ ||
      !peers_.emplace(frame.number, sum).second)
    return unexpected(frame.kType, frame.number, "no job waits for a checksum");
  return Status::ok();
}

void JobSums::begin(Job& job) {
  if (job.sum.summing == nullptr && !job.sum.known) job.sum.summing = Summing::begin(key_, job.ranges, parts_);
}

bool JobSums::progress() {
  bool advanced = !sent_.empty();
  for (Job* const job : sent_) begin(*job);
  sent_.clear();
  for (const auto& job : lane_.all_ended()) {
    if (!job->sum.compared) advanced |= step(*job);
  }
  return advanced;
}

Job* JobSums::ended() const {
  Job* const job = lane_.ended();
  return job != nullptr && job->sum.compared ? job : nullptr;
}

void JobSums::abandon() {
  for (const auto& job : lane_.all_ended()) {
    if (job->sum.summing != nullptr) job->sum.summing->abandon();
  }
}

bool JobSums::step(Job& job) {
  JobSum& sum = job.sum;
  if (!lane_.status().is_ok()) {
    if (sum.summing != nullptr) {
      sum.summing->stop();
      if (const auto done = sum.summing->is_done(); done.is_ok() && !*done) return false;
    }
    if (job.status.is_ok()) job.status = lane_.status();
    sum.compared = true;
    return true;
  }
  bool advanced = false;
  if (!sum.told) {
    if (!add_up(job)) return false;
    advanced = true;
  }
  if (const auto peers = peers_.find(job.place); peers != peers_.end()) {
    compare(job, peers->second);
    peers_.erase(peers);
    ++compared_;
  } else if (sum.peers && early_.size() < kMostEarly) {
    early_.insert(job.place);
    compare(job, sum.peers);
  } else {
    return advanced;
  }
  sum.compared = true;
  return true;
}

// @return true once the peer has been told
bool JobSums::add_up(Job& job) {
  JobSum& sum = job.sum;
  if (job.status.is_ok() && job.unwanted.empty()) begin(job);
  if (sum.summing != nullptr) {
    if (!job.status.is_ok()) sum.summing->stop();
    const auto done = sum.summing->is_done();
    if (done.is_ok() && !*done) return false;
    if (job.status.is_ok()) job.status = done.status();
  }
  tell(job, own_of(job));
  sum.told = true;
  return true;
}

// The sum of a job here, once it has been computed or none is needed.
JobSums::Sum JobSums::own_of(const Job& job) {
  if (!job.status.is_ok()) return std::nullopt;
  if (job.sum.known) return job.sum.known;
  return job.sum.summing != nullptr ? Sum(job.sum.summing->sum()) : std::nullopt;
}

void JobSums::tell(const Job& job, const Sum& sum) {
  LaneFrame frame{.way = lane_.way(), .to_sender = lane_.receives(), .what = kSum, .number = job.place};
  if (sum) frame.words = std::as_bytes(std::span(&*sum, 1));
  stream_.send(frame);
}

// A sender whose bytes were not wanted hears of it in the answer to its operation.
void JobSums::compare(Job& job, const Sum& peers) {
  const Sum own = own_of(job);
  if (!own || (!peers && !lane_.receives())) return;
  if (peers && *own == *peers) return;
  const auto text = [](const Sum& sum) { return sum ? concat(Hex{*sum}) : std::string("unknown"); };
  const auto& [sent, arrived] = lane_.receives() ? std::pair(peers, own) : std::pair(own, peers);
  job.status = Status(Code::kCorrupt, "compare checksums",
                      concat(job.bytes, " bytes ", name_of(lane_.way()), ": the checksum of what was sent is ", text(sent),
                             ", of what arrived ", text(arrived)));
}

}  // namespace tcpx
