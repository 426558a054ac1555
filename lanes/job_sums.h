// JobSums: on a connection that wants checksums, each job of a lane is summed at both ends (base/byte_sum.h), whatever way its bytes
// went: at the sender where they lay, at the receiver where they lie now. Each end tells the other its sum in a LaneFrame, and a job
// counts as ended once it has both. Sums that differ fail the job with kCorrupt, at both ends alike.
//
// A receiver that has no use for the bytes (Job::unwanted), or whose job has failed, tells that it has no sum; so does a sender that
// could not read its memory. A lane that fails takes its jobs with it.
//
// A peer whose sum was ready before the job had a place has told it then (JobSum::peers), and tells it again as every sum. The job does not
// wait for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/byte_sum.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/summing.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// The sums of one lane. One thread at a time: the one that makes progress.
class JobSums {
 public:
  /// LaneFrame::what of a sum; the words are its 8 bytes, or none.
  static constexpr uint64_t kSum = ~uint64_t{0};

  /// All must outlive this.
  JobSums(Lane& lane, std::shared_ptr<const ByteSumKey> key, const PullParts& parts, ControlStream& stream)
      : lane_(lane), key_(std::move(key)), parts_(parts), stream_(stream) {}

  const Lane& lane() const { return lane_; }
  /// Begins the sum of a job, unless it has one.
  void begin(Job& job);
  /// For a job that the lane has just taken to send: `progress` does that, beside the sending. Else it is done when the job has ended.
  void begin_early(Job& job) { sent_.push_back(&job); }
  /// A sum of the peer. @return kProtocol: a correct peer would not tell it now
  Status on(const LaneFrame& frame);
  /// Computes, tells and compares the sums of jobs that have ended. @return true when something advanced
  bool progress();
  /// As Lane::ended, of jobs that need no sum any more.
  Job* ended() const;
  /// As Lane::abandon.
  void abandon();

 private:
  using Sum = std::optional<uint64_t>;  // nullopt: the peer has none

  bool step(Job& job);
  bool add_up(Job& job);
  void tell(const Job& job, const Sum& sum);
  static Sum own_of(const Job& job);
  void compare(Job& job, const Sum& peers);

  Lane& lane_;
  const std::shared_ptr<const ByteSumKey> key_;
  const PullParts& parts_;
  ControlStream& stream_;
  std::vector<Job*> sent_;         // whose sums are to be begun; the lane has them at least until the next `progress`
  std::map<uint64_t, Sum> peers_;  // by place in the lane; of jobs that have not been compared
  std::set<uint64_t> early_;       // places of jobs that were compared with JobSum::peers, and whose sum has not come again
  uint64_t compared_ = 0;          // jobs whose sum has come
};

}  // namespace tcpx
