// Lane: moves the bytes of jobs in one direction between two endpoints, in one way. The sender's lane offers bytes with words that
// only the receiver's lane understands; that one takes them or not.
//
// The n-th Go for a lane is its n-th job at both ends. A job and its memory belong to the lane from `push` until `ended` returns the
// job. The caller then reports the end and drops the job. Reporting can fail for want of memory; the job is then reported again.
//
// A failed lane ends all its jobs, each as soon as no thread, NIC or GPU touches its memory. When a connection fails, its stream
// fails first and then its lanes; each operation ends when its lane has ended its job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_registry.h"
#include "base/shared_stream.h"
#include "lanes/host_area.h"
#include "lanes/summing.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// Name of an offer: as in its Go.
struct OfferName {
  uint64_t operation = 0;
  bool of_read = false;
  bool operator==(const OfferName&) const = default;
};

/// What is known of the checksum of a job (lanes/job_sums.h). Empty on a connection without checksums.
struct JobSum {
  std::unique_ptr<Summing> summing;
  std::optional<uint64_t> known;  ///< the sum here: what `summing` would compute has been computed beside a copy
  OfferName offer;                ///< by which the peer may name the job before that has a place
  std::optional<uint64_t> peers;  ///< the peer's, if it has told it by that name
  bool told = false;      ///< to the peer
  bool compared = false;  ///< or without anything to compare
  /// Only for what the peer will tell.
  bool waits() const { return told && !compared; }
};

/// The bytes of a transfer at this end, for a lane to move.
struct Job {
  Job() = default;
  Job(const Job&) = delete;
  virtual ~Job() = default;
  Job& operator=(const Job&) = delete;

  uint64_t number = 0;                ///< of the operation, given by the end that started it
  bool of_peer = false;               ///< the peer started the operation
  std::pair<size_t, size_t> named;    ///< not of_peer: begin and end of its ranges among those that the call names
  std::span<const HeldRange> ranges;  ///< kept alive by the operation until the job has ended
  Packing packing = Packing::kWhole;  ///< over the network
  WaySet offered = 0;                 ///< receive: the ways on one host that the sender offers
  uint64_t bytes = 0;
  bool alone = false;  ///< leased: no other operation of this endpoint was outstanding
  std::vector<uint64_t> unwanted;  ///< receive without `ranges`: bytes of each range of the sender; they are discarded
  Status status;                   ///< how the job ended
  uint64_t place = 0;              ///< among the jobs of its lane: the same at both ends
  JobSum sum;
  enum class Lease : uint8_t {
    kNone,   ///< the peer was asked
    kLasts,  ///< it was not asked, because this end may read or write its slots without that
    kEnded,  ///< nor was it then, and the bytes do not count: ask
  };
  Lease lease = Lease::kNone;
};

/// True if the peer started the job and it uses the region.
inline bool is_of_peer(const Job& job, MemoryId region) {
  return job.of_peer && uses(job.ranges, region);
}

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lane {
 public:
  Lane(Way way, bool receives) : way_(way), receives_(receives) {}
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Way way() const { return way_; }
  bool receives() const { return receives_; }

  /// Sender: false while a thread prepares this end for these ranges. Offer them later, or they will not go this way.
  virtual bool is_ready(std::span<const HeldRange> /*ranges*/) { return true; }
  /// Sender: prepares this end and the peer for ranges that an operation may need, as long as that takes little of either, and behind
  /// what operations wait for. @return false: threads do that; call again
  virtual bool expect(std::span<const HeldRange> /*ranges*/) { return true; }
  /// Sender: call before telling the peer of a transfer. @param words empty; gets what the receiver's lane needs to know
  /// @return false: these bytes cannot go this way
  virtual bool offer(std::span<const HeldRange> /*ranges*/, std::vector<std::byte>& /*words*/) { return false; }
  /// Sender: true if this way is faster for such bytes than a frame that contains them, however few they are.
  virtual bool beats_frames(std::span<const HeldRange> /*ranges*/) { return false; }
  /// Sender, on a connection with checksums: the peer is about to be told of an offer that can go this way, and to copy it by itself. The
  /// lane may begin the sum, and holds the memory meanwhile. @param uses as in Lanes::offer
  virtual void begin_sum(const OfferName& /*of*/, std::span<const HeldRange> /*ranges*/, std::span<const RegionUse> /*uses*/) {}
  /// Sender: gives a sum that was begun, and fills nothing in if there is none. Whichever way the bytes then take.
  virtual void give_sum(const OfferName& /*of*/, JobSum& /*sum*/) {}
  /// Receiver: checks the words of an offer of so many bytes. @return kProtocol naming what a correct peer would not say
  virtual Status check(std::span<const std::byte> /*words*/, uint64_t /*bytes*/) const { return Status::ok(); }
  /// Receiver: true if offered bytes can come this way. @param words checked
  virtual bool take(std::span<const HeldRange> /*to*/, std::span<const std::byte> /*words*/) { return false; }
  /// Sender: has the peer use a slot from now on without asking, if it can. @param registry of the slot, advertised to `conn`
  virtual void lease(MemoryRegistry& /*registry*/, ConnId /*conn*/, const SlotId& /*slot*/) {}
  /// Receiver: takes over a job whose other side are slots that this end may use without asking. Nothing is said to the peer.
  /// @param slots one for each range of the job, of as many bytes; valid as long as the ranges @param writes into the slots, else reads
  /// @return false: it may not, and the job stays the caller's
  virtual bool push_leased(std::unique_ptr<Job>& /*job*/, std::span<const WireRange> /*slots*/, bool /*writes*/) { return false; }
  /// Takes over a job: the sender when the peer's Go has come, the receiver after `take` was true. The job stays the caller's if this
  /// throws.
  /// @param words as `take` had them; empty at the sender @param go sent by the receiver before, unless its lane `sends_go`
  virtual void push(std::unique_ptr<Job>&& job, std::span<const std::byte> words, const GoFrame& go) = 0;
  /// Receiver: true if the lane itself sends the Go of a job, later.
  virtual bool sends_go() const { return false; }

  /// A message of the lane at the other end. @return kProtocol: a correct peer would not send it now
  virtual Status on(const LaneFrame& frame) { return unexpected(frame.kType, frame.number, "this way has no messages"); }
  /// @return true when something advanced
  virtual bool progress(TimePoint now) = 0;
  /// The first job that has ended, well or badly; nothing touches its memory any more. Null: none.
  Job* ended() const { return ended_.empty() ? nullptr : ended_.front().get(); }
  /// Call only after the end of the job has been reported.
  void drop_ended() { ended_.pop_front(); }
  /// All jobs that have ended and have not been dropped.
  const std::deque<std::unique_ptr<Job>>& all_ended() const { return ended_; }
  /// Jobs that have got a place so far.
  uint64_t entered() const { return entered_; }
  /// Ends the lane early. Only the first reason counts.
  virtual void fail(const Status& reason) = 0;
  /// Stops waiting for a failed lane's copies of memory that may never answer.
  virtual void abandon() {}
  /// Ok, or why the lane has failed.
  virtual const Status& status() const = 0;
  /// True when the lane has no job.
  virtual bool idle() const = 0;
  /// True when `progress` has something to do.
  virtual bool has_work() const { return !idle(); }
  /// True when nothing here can advance until other connections have had their turn, or until the peer wakes this end.
  virtual bool rests(TimePoint /*now*/) const { return !has_work(); }
  /// True when the thread that makes progress is woken as soon as this lane can advance.
  virtual bool is_told() const { return false; }
  /// Of a failed lane: it touches no memory any more.
  virtual bool closed() const { return idle(); }
  /// True when a job that the peer started uses the region.
  virtual bool serves(MemoryId region) const = 0;
  /// Call when the region will not be used again.
  virtual void forget(MemoryId /*region*/) {}
  /// True while the peer has not yet let go of a region that was forgotten.
  virtual bool peer_holds(MemoryId /*region*/) const { return false; }
  /// True while the peer may still be reading memory of this end that must not be freed meanwhile. Call it when the lane has failed.
  virtual bool is_read() const { return false; }
  /// True when the peer has moved something in shared memory that this end waits for. Costs no system call.
  virtual bool can_move() const { return false; }
  /// @return WakeFor bits: events for which the peer must wake this end, because it waits for them without looking
  virtual uint32_t wants(TimePoint /*now*/) const { return 0; }
  /// @return WakeFor bits: events since the last call that the peer may be waiting for
  virtual uint32_t take_told() { return 0; }
  /// Requests that the plugin holds.
  virtual uint64_t chunks_in_flight() const { return 0; }
  virtual void add_to(ConnectionStats& /*stats*/) const {}
  virtual std::string flight_record() const = 0;
  /// Call when the connection has ended and the lane is closed: it lets go of what both ends share.
  /// @return memory whose unmapping may wait for the GPU
  virtual MemoryBuffer close() { return {}; }

 protected:
  /// Call for each job when both ends know which one of the lane it is.
  void enter(Job& job) { job.place = entered_++; }
  /// True when a job has ended whose end need not wait for the peer's checksum.
  bool has_ended() const {
    return std::any_of(ended_.begin(), ended_.end(), [](const auto& job) { return !job->sum.waits(); });
  }

  std::deque<std::unique_ptr<Job>> ended_;

 private:
  uint64_t entered_ = 0;
  const Way way_;
  const bool receives_;
};

/// What a lane between two endpoints of one host is made of. All must outlive it.
struct LaneMaking {
  HostPeer& host;
  const PullParts& parts;
  ControlStream& stream;
  std::shared_ptr<const ByteSumKey> sum_key;  ///< null: there are no checksums
  /// Gives a job of a receiving lane to the ring instead, or else to the network, with this Go. If that throws or fails, the job stays
  /// the caller's.
  std::function<Status(std::unique_ptr<Job>&& job, GoFrame go)> elsewhere;
};
/// Makes the lane at one end.
using MakeLane = std::unique_ptr<Lane> (*)(const LaneMaking& making, bool receives);

}  // namespace tcpx
