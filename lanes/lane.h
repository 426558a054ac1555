// Lane: one direction of one way for bytes between two endpoints: the network, a ring in shared memory, copies out of the peer's memory.
//
// The n-th Go for a lane is its n-th job at both ends. A job and its memory are the lane's from `push` until the job is the `ended` one;
// whoever takes it reports its end, which may want memory, and drops it only then: what has not been dropped is reported again.
//
// A lane that has failed ends all its jobs, each as soon as no thread, NIC or GPU touches its memory. So does a connection: first its
// stream fails, then its lanes, and an operation ends when its lane says so.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_registry.h"
#include "base/shared_stream.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"
#include "wire/messages.h"

namespace tcpx {

/// Bytes of a transfer at this end, which a lane moves.
struct Job {
  Job() = default;
  Job(const Job&) = delete;
  virtual ~Job() = default;
  Job& operator=(const Job&) = delete;

  uint64_t number = 0;                ///< of the operation, as its starter counts
  bool of_peer = false;               ///< which has started it
  std::span<const HeldRange> ranges;  ///< who ends the job keeps them until then
  Packing packing = Packing::kWhole;
  uint64_t bytes = 0;
  std::vector<uint64_t> unwanted;  ///< receive, without ranges: bytes of each range that the sender has, which go nowhere
  Status status;                   ///< of an ended job
};

/// It is the peer's, and uses that region.
inline bool is_of_peer(const Job& job, MemoryId region) {
  return job.of_peer && uses(job.ranges, region);
}

/// One thread at a time: the one that makes progress. The GPU must be current.
class Lane {
 public:
  explicit Lane(bool receives) : receives_(receives) {}
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  bool receives() const { return receives_; }
  /// @return true when something advanced
  virtual bool progress(TimePoint now) = 0;
  /// The first job that has ended, well or badly; nothing touches its memory any more. Null: none.
  Job* ended() const { return ended_.empty() ? nullptr : ended_.front().get(); }
  /// Not before all who wait for its end know of it.
  void drop_ended() { ended_.pop_front(); }
  /// Ends it early. Only the first reason counts.
  virtual void fail(const Status& reason) = 0;
  /// Nor are copies waited for, once it has failed, of memory that may never answer.
  virtual void abandon() {}
  /// Ok, or why it has failed.
  virtual const Status& status() const = 0;
  /// It has no job.
  virtual bool idle() const = 0;
  /// Nothing of it can advance before other connections have had their turn, or before the peer wakes this end.
  virtual bool rests(TimePoint /*now*/) const { return idle(); }
  /// It has failed, and nothing of it touches any memory.
  virtual bool closed() const { return idle(); }
  /// A job of the peer's uses it.
  virtual bool serves(MemoryId region) const = 0;
  /// The region will not be used again.
  virtual void forget(MemoryId /*region*/) {}
  /// The peer has moved something in shared memory that this end waits for. Costs no system call.
  virtual bool can_move() const { return false; }
  /// @return bits of WakeFor: what the peer is to wake this end for, which waits for it and looks no more
  virtual uint32_t wants(TimePoint /*now*/) const { return 0; }
  /// @return bits of WakeFor: what the peer may be waiting for, and has happened since the last call
  virtual uint32_t take_told() { return 0; }
  /// Requests that a plugin has.
  virtual uint64_t chunks_in_flight() const { return 0; }
  virtual void add_to(ConnectionStats& /*stats*/) const {}
  virtual std::string flight_record() const = 0;

 protected:
  std::deque<std::unique_ptr<Job>> ended_;

 private:
  const bool receives_;
};

}  // namespace tcpx
