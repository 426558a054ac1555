// PullLane: the lane of the end that copies out of the memory of a peer on the same host: host memory with HostCopier, shared GPU memory
// with the copier of this end's GPU. In other transfers than those by lease no process writes into the memory of another one.
//
// By lease (base/slot_leases.h) it reads and writes slots of the peer without asking. It does not begin a copy into memory of a lease that
// has ended, and the peer waits for one that was begun before. Host memory is written in one go, on the calling thread, or not at all; or
// it is copied jointly (base/joint_copy.h), also when it is read, if that is long, contiguous and all that this endpoint has to do, and the
// peer looks for frames.
//
// A process may lose the right to read its peer at any time. Then the jobs that are being pulled start again through the ring, and
// all later ones use the ring.
//
// GPU memory is copied share by share, as the shares are mapped. Where one cannot be mapped, the job starts again in another way.
//
// A copy counts only if the peer still held its connection when the copy was over: after giving it up, the peer may reuse its memory.
// The peer says so in a word of the shared area (lanes/host_area.h); a dead peer shows in its pidfd.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/host_copier.h"
#include "base/joint_copy.h"
#include "base/memory_ops.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "lanes/pull/mappings.h"
#include "lanes/pull/peer_leases.h"
#include "lanes/pull/sources.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// One thread at a time: the one that makes progress. The GPU must be current.
class PullLane final : public Lane {
 public:
  /// Copies that run at once: so many long ones, and besides them so many short ones, which wait for no long one.
  static constexpr size_t kMaxRunning = 16;

  explicit PullLane(const LaneMaking& making)
      : Lane(Way::kPull, true),
        peer_(making.host),
        parts_(making.parts),
        stream_(making.stream),
        elsewhere_(making.elsewhere),
        sum_key_(making.sum_key),
        mappings_(making.host, making.parts, making.stream),
        leases_(making.host) {}

  Status check(std::span<const std::byte> words, uint64_t bytes) const override;
  /// True if this end can copy these sources to these ranges by itself.
  bool take(std::span<const HeldRange> to, std::span<const std::byte> words) override;
  void push(std::unique_ptr<Job>&& job, std::span<const std::byte> words, const GoFrame& go) override;
  bool push_leased(std::unique_ptr<Job>& job, std::span<const WireRange> slots, bool writes) override;
  bool sends_go() const override { return true; }
  Status on(const LaneFrame& frame) override;
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override;
  void abandon() override;
  const Status& status() const override { return status_; }

  /// Also when the peer is to be told that a share is unmapped now.
  bool has_work() const override { return !idle() || mappings_.any_gone(); }
  MemoryBuffer close() override;
  bool idle() const override { return pulls_.empty() && ended_.empty(); }
  bool is_told() const override { return pulls_.empty() && mappings_.all_told() && !has_ended(); }
  bool serves(MemoryId region) const override;
  std::string flight_record() const override;

 private:
  /// Position up to which the segments of a job have been found.
  struct Place {
    size_t range = 0, row = 0, mapping = 0;
    uint64_t in_range = 0, in_row = 0;
  };
  struct Pull {
    std::unique_ptr<Job> job;
    GoFrame go;                                      // not of one without asking
    PeerLeases::Found found;                         // a row for each source; without asking: and their leases
    std::span<const WireRange> slots;                // without asking: where the ranges of the job are
    std::vector<std::shared_ptr<Mapping>> mappings;  // one for rows that follow each other in the same share
    bool writes = false;                             // by lease, into the sources
    std::optional<Touching> touching;                // until it is over
    bool cut_off = false;                            // its lease ended before all was written
    bool on_gpu = false;
    Place place;                        // of the next segment
    std::vector<CopySegment> segments;  // found last; on_gpu: and not given to the copier yet
    std::optional<CopyTicket> ticket;   // on_gpu: of the last ones given to it; empty once they are in place
    const Mapping* awaited = nullptr;   // of `mappings`: the next segment lies in it, and it was not mapped when last looked at
    uint32_t submits = 0;               // on_gpu: until now
    // With checksums: the parts of the sum that the submits compute, and bytes of the job in them.
    std::vector<std::unique_ptr<uint64_t>> sums;
    uint64_t summed_bytes = 0;
    std::shared_ptr<HostCopy> copy;  // not on_gpu; joint: of a slice that could not be copied
    std::optional<JointCopy> joint;
    /// True while a copy for it may be under way.
    bool is_copied() const { return ticket || copy != nullptr || joint; }
    /// True when the next share cannot be mapped, and nothing touches the job's memory.
    bool cannot_go_on() const { return !ticket && awaited != nullptr && awaited->is_refused(); }
    bool all_submitted() const { return cut_off || (segments.empty() && place.range == job->ranges.size()); }
    bool is_leased() const { return !found.leases.empty(); }
  };

  /// Copies that run, as far as this turn has looked.
  struct Running {
    size_t brief = 0, others = 0;
  };
  /// True for what a thread copies at once.
  static bool is_short(const Job& job) { return job.bytes <= HostCopier::kAtOnceBytes; }

  template <class SourceAt>
  bool reaches(std::span<const HeldRange> to, size_t count, const SourceAt& source_at);
  bool reaches(const WireSource& source, bool on_gpu, const Mapping*& known);
  void hurry(const Pull& pull);
  static void find_segments(Pull& pull, size_t most);
  bool step(Pull& pull, Running& running);
  Status submit(Pull& pull);
  Result<CopyTicket> submit_segments(Pull& pull);
  Status on_sum(const LaneFrame& frame);
  Result<bool> step_on_gpu(Pull& pull);
  Result<bool> step_on_host(Pull& pull);
  Result<bool> step_jointly(Pull& pull);
  Status check_peer() const;
  void leave(Pull& pull);
  void end(Pull& pull, const Status& status);
  bool is_joint(const Job& job, const Pull& pull) const;
  void begin_jointly(std::unique_ptr<Job>& job, Pull& pull);
  bool write_on_host(std::unique_ptr<Job>& job, Pull& pull);
  void begin(std::unique_ptr<Job>&& job, Pull&& pull);
  void end_leased(Pull& pull, bool copied);

  const HostPeer& peer_;
  const PullParts parts_;
  ControlStream& stream_;
  const std::function<Status(std::unique_ptr<Job>&&, GoFrame)> elsewhere_;
  const std::shared_ptr<const ByteSumKey> sum_key_;
  bool denied_ = false;  // this process may not read the peer's memory any more
  Mappings mappings_;
  PeerLeases leases_;
  std::deque<Pull> pulls_;
  uint32_t joint_copies_ = 0;  // number of the last one
  bool joins_ = true;          // the peer has not failed to copy what this end could
  Status status_;
};

std::unique_ptr<Lane> make_pull_lane(const LaneMaking& making, bool receives);

}  // namespace tcpx
