// PullLane: transfers of a peer of the same host that this end, their data receiver, copies out of the peer's memory by itself: host
// memory with HostCopier, GPU memory that the peer shares with the copier of this end's GPU. So no process ever writes into another
// one's memory.
//
// A process may lose the right to read the other one at any time. What is being pulled then comes through the ring that both share,
// as if it had never been pulled, and so does all that follows.
//
// A copy counts only if the peer still had not given its connection up when the copy was over: from then on its memory may have
// held something else. The peer says so in a word of the shared area (lanes/host_area.h); a dead one shows in its pidfd.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/host_copier.h"
#include "base/memory_ops.h"
#include "base/text.h"
#include "lanes/host_area.h"
#include "lanes/lane.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// The end whose memory is read: its jobs have ended when the receiver says so.
class PulledLane final : public Lane {
 public:
  PulledLane() : Lane(false) {}
  /// The receiver has copied all of it.
  void push(std::unique_ptr<Job>&& job) { ended_.push_back(std::move(job)); }
  bool progress(TimePoint /*now*/) override { return false; }
  void fail(const Status& reason) override {
    if (status_.is_ok()) status_ = reason;
  }
  const Status& status() const override { return status_; }
  bool idle() const override { return ended_.empty(); }
  bool serves(MemoryId /*region*/) const override { return false; }
  std::string flight_record() const override { return concat("copied by the peer: ", ended_.size()); }

 private:
  Status status_;
};

/// Of one connection. One thread at a time: the one that makes progress. The GPU must be current.
class PullLane final : public Lane {
 public:
  /// Copies that run at once.
  static constexpr size_t kMaxRunning = 16;

  /// Takes a job that cannot be pulled any more, and begins it anew. It stays the caller's when memory is wanting for that.
  using Instead = std::function<void(std::unique_ptr<Job>&& job)>;

  /// @param peer null: not of this host @param instead the ring of what this end receives. All must outlive this
  PullLane(const HostPeer* peer, const PullParts& parts, ControlStream& stream, Instead instead)
      : Lane(true), peer_(peer), parts_(parts), stream_(stream), instead_(std::move(instead)) {}

  /// This end can copy from there to here by itself. @param from checked (check_sources); none: false
  bool can_pull(std::span<const HeldRange> to, const WireArray<WireSource>& from);
  /// Starts what `can_pull` was true for. Its memory is this one's until it is the `ended` one.
  /// @param from as many bytes as the job has
  /// @param over said to the peer at the good end
  void push(std::unique_ptr<Job> job, const WireArray<WireSource>& from, const GoFrame& over);
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override;
  void abandon() override;
  const Status& status() const override { return status_; }

  /// The peer shares memory. @return kProtocol: under a number that is taken, or more than kMaxShares
  Status on(const ShareFrame& frame);
  Status on(const UnshareFrame& frame);
  /// Something that the peer wants unmapped is not mapped any more, and the peer is to be told.
  bool has_gone() const;
  /// Tells it. @return true when there was something
  bool tell_gone();

  /// Once the link has ended and this is idle: unmaps what the peer has shared.
  void close();
  bool idle() const override { return pulls_.empty() && ended_.empty(); }
  bool serves(MemoryId region) const override;
  std::string flight_record() const override;

 private:
  /// GPU memory of the peer. Empty buffer: it could not be mapped. Unmapped behind its last user, on the Unmapper's thread.
  struct Mapping {
    explicit Mapping(Unmapper& unmapper_of_it) : unmapper(unmapper_of_it) {}
    Mapping(const Mapping&) = delete;
    ~Mapping();
    Unmapper& unmapper;
    uint64_t base = 0, bytes = 0;  // in the peer
    MemoryBuffer buffer;
    std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);  // told to who waits for that
  };
  /// A share that the peer wants unmapped.
  struct Unshared {
    uint64_t share = 0;
    std::shared_ptr<std::atomic<bool>> gone;
  };
  struct Pull {
    std::unique_ptr<Job> job;
    GoFrame over;
    std::vector<CopySegment> segments;
    std::vector<std::shared_ptr<Mapping>> mappings;  // that they lie in
    bool on_gpu = false;
    size_t submitted = 0;              // segments, on_gpu
    std::optional<CopyTicket> ticket;  // of the last of them
    std::shared_ptr<HostCopy> copy;    // else
    bool begun() const { return ticket || copy != nullptr; }
  };

  bool reaches(const WireSource& source, bool on_gpu);
  std::vector<CopySegment> segments_of(const Job& job, const WireArray<WireSource>& from, Pull& pull) const;
  bool step(Pull& pull, size_t& running);
  Result<bool> step_on_gpu(Pull& pull);
  Result<bool> step_on_host(Pull& pull);
  Status check_peer() const;
  void look_for_pages();
  void leave_to_ring(Pull& pull);
  void end(Pull& pull, const Status& status);

  const HostPeer* const peer_;
  const PullParts parts_;
  ControlStream& stream_;
  const Instead instead_;
  bool denied_ = false;                                              // this process may not read the peer's memory any more
  std::shared_ptr<const Pagemap> pages_;                             // the peer's; null: unknown
  std::unordered_map<uint64_t, std::shared_ptr<Mapping>> mappings_;  // by share
  std::vector<Unshared> unshared_;
  std::deque<Pull> pulls_;
  Status status_;
};

}  // namespace tcpx
