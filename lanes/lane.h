// Lane: moves the bytes of jobs in one direction between two endpoints, in one of three ways: over the network, through a ring in
// shared memory, or by copies out of the peer's memory.
//
// The n-th Go for a lane is its n-th job at both ends. A job and its memory belong to the lane from `push` until `ended` returns the
// job. The caller then reports the end and drops the job. Reporting can fail for want of memory; the job is then reported again.
//
// A failed lane ends all its jobs, each as soon as no thread, NIC or GPU touches its memory. When a connection fails, its stream
// fails first and then its lanes; each operation ends when its lane has ended its job.
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

/// The bytes of a transfer at this end, for a lane to move.
struct Job {
  Job() = default;
  Job(const Job&) = delete;
  virtual ~Job() = default;
  Job& operator=(const Job&) = delete;

  uint64_t number = 0;                ///< of the operation, given by the end that started it
  bool of_peer = false;               ///< the peer started the operation
  std::span<const HeldRange> ranges;  ///< kept alive by the operation until the job has ended
  Packing packing = Packing::kWhole;
  uint64_t bytes = 0;
  std::vector<uint64_t> unwanted;  ///< receive without `ranges`: bytes of each range of the sender; they are discarded
  Status status;                   ///< how the job ended
};

/// True if the peer started the job and it uses the region.
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
  /// Call only after the end of the job has been reported.
  void drop_ended() { ended_.pop_front(); }
  /// Ends the lane early. Only the first reason counts.
  virtual void fail(const Status& reason) = 0;
  /// Stops waiting for a failed lane's copies of memory that may never answer.
  virtual void abandon() {}
  /// Ok, or why the lane has failed.
  virtual const Status& status() const = 0;
  /// True when the lane has no job.
  virtual bool idle() const = 0;
  /// True when nothing here can advance until other connections have had their turn, or until the peer wakes this end.
  virtual bool rests(TimePoint /*now*/) const { return idle(); }
  /// Of a failed lane: it touches no memory any more.
  virtual bool closed() const { return idle(); }
  /// True when a job that the peer started uses the region.
  virtual bool serves(MemoryId region) const = 0;
  /// Call when the region will not be used again.
  virtual void forget(MemoryId /*region*/) {}
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

 protected:
  std::deque<std::unique_ptr<Job>> ended_;

 private:
  const bool receives_;
};

}  // namespace tcpx
