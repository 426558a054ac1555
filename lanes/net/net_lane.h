// NetLane: the lane over the network, in one direction. Its jobs are cut into parcels, which go through one pipeline. Jobs have the
// same order at both ends (wire/messages.h says which end decides it).
//
//   send:  [ gather -> ] submit -> done                      gather, scatter: packed jobs only, through a staging slot
//   recv:              submit -> arrived [ -> scatter ] -> done
//
// An unwanted job is received and discarded, because a transfer that the sender has begun cannot be stopped.
//
// Parcels are submitted strictly in order, because the n-th transfer of one end meets the n-th of the other. Each lane makes its own
// staging slots at its first packed job, so a stalled peer holds up nobody else.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/segment_copier.h"
#include "lanes/lane.h"
#include "lanes/net/net_memory.h"
#include "transfer/pipeline.h"
#include "wire/messages.h"

namespace tcpx {

/// Ranges that are at least this long on average go one by one, without gather and scatter. Part of the protocol.
inline constexpr uint64_t kDirectRangeBytes = 256 * 1024;
/// Transfers that one pipeline half has under way at once.
inline constexpr uint32_t kMaxLaneTransfers = 64;

/// The packing that a sender prefers for these ranges. Part of the protocol for reads, where both ends call it.
Packing preferred_packing(std::span<const HeldRange> ranges, uint64_t bytes);

/// One thread at a time: the one that makes progress. The GPU must be current.
class NetLane final : public Lane {
 public:
  NetLane(std::unique_ptr<Pipeline> connection, const LaneParts& parts);
  ~NetLane() override;

  /// False while a thread makes a staging buffer for these ranges, which this begins. Who can, waits for it before `prepare`: so its
  /// failure refuses the transfer alone. At a sender that has told the peer, it ends the lane.
  bool can_prepare(std::span<const HeldRange> ranges, Packing wanted) { return memory_.can_prepare(ranges, wanted); }
  /// Call before telling the peer of a transfer of these ranges, while the transfer can still be refused on its own.
  /// @return `wanted`, or kPacked if the plugin does not take the memory as it is; the error of the plugin or the allocator if the
  /// memory cannot be packed either
  Result<Packing> prepare(std::span<const HeldRange> ranges, Packing wanted) { return memory_.prepare(ranges, wanted); }
  /// Queues a job behind all others.
  void push(std::unique_ptr<Job>&& job, std::span<const std::byte> /*words*/, const GoFrame& /*go*/) override { queue(job); }
  /// Keeps a job until the peer begins it; its memory belongs to this lane at once. @param number, of_read as in BeginFrame
  void await(std::unique_ptr<Job> job, uint64_t number, bool of_read) { awaited_.push_back({std::move(job), number, of_read}); }
  /// Queues an awaited job that the peer has begun behind all others. @return false: no such job is awaited
  bool begin(uint64_t number, bool of_read);
  /// Takes back a write that the peer will not begin. @return null: no such write is awaited
  std::unique_ptr<Job> take_awaited_write(uint64_t number);
  /// Bytes of all jobs that are queued or under way.
  uint64_t bytes() const { return bytes_; }
  Status on(const LaneFrame& frame) override {
    connection_->on_peer_message(static_cast<PeerMessage>(frame.what), frame.words);
    return Status::ok();
  }
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override { connection_->cancel(reason); }
  const Status& status() const override { return connection_->status(); }

  bool idle() const override { return jobs_.empty() && awaited_.empty() && parcels_.empty() && ended_.empty(); }
  /// Also when the peer has ended the pipeline, which the link must learn.
  bool has_work() const override { return !idle() || !status().is_ok(); }
  bool rests(TimePoint now) const override;
  bool is_told() const override;
  bool closed() const override { return idle() && connection_->in_flight() == 0; }
  bool serves(MemoryId region) const override;
  void forget(MemoryId region) override { memory_.forget(region); }
  uint64_t chunks_in_flight() const override { return connection_->in_flight(); }
  void add_to(ConnectionStats& stats) const override;
  std::string flight_record() const override;

 private:
  struct Queued {
    std::unique_ptr<Job> job;
    size_t next_range = 0;     // where the next parcel begins
    uint64_t next_offset = 0;  // within that range
    uint64_t cut_bytes = 0;    // already cut into parcels
    uint32_t open_parcels = 0;
    bool cut_whole = false;  // all its parcels have been made
    bool begun = false;
    std::optional<RegisteredMemory> list = std::nullopt;  // of a packed one that needs no staging
  };
  struct Awaited {
    std::unique_ptr<Job> job;
    uint64_t number = 0;
    bool of_read = false;
  };
  enum class ParcelState : uint8_t { kGathering, kReady, kSubmitted, kArrived, kFetching, kFetched, kScattering };
  struct Parcel {
    Queued* of = nullptr;  // null: it has ended
    ParcelState state = ParcelState::kReady;
    StagingArea* staging = nullptr;  // of a packed job
    uint32_t slot = 0;
    size_t first_range = 0;  // where the parcel begins in the job
    uint64_t first_offset = 0;
    uint64_t offset = 0;  // of its first byte in the job's list, if it has one
    uint64_t bytes = 0;
    TransferId transfer{};
    CopyTicket ticket{};
  };

  void queue(std::unique_ptr<Job>& job);
  void queue_awaited(std::deque<Awaited>::iterator entry);
  bool cut();
  bool cut_direct(Queued& queued);
  bool cut_packed(Queued& queued);
  bool cut_unwanted(Queued& queued);
  bool has_no_staging(Queued& queued, Status why);
  Result<TransferSpec> transfer_of(const Parcel& parcel);
  bool submit_ready();
  bool poll_pieces();
  bool step(Parcel& parcel);
  bool scatter(Parcel& parcel);
  void end_parcel(Parcel& parcel);
  static void fail_job(Queued& queued, const Status& reason);
  void collect_ended();
  void segments_of(const Parcel& parcel, bool gather);
  SegmentCopier& copier_of(const Parcel& parcel) const;

  std::unique_ptr<Pipeline> connection_;
  NetMemory memory_;
  SegmentCopier& device_copier_;
  std::deque<std::unique_ptr<Queued>> jobs_;  // in order; parcels are cut from the front
  std::deque<Awaited> awaited_;
  uint64_t bytes_ = 0;                 // of jobs_
  size_t next_cut_ = 0;                // index into jobs_ of the first job not cut to its end
  std::deque<Parcel> parcels_;         // in order of submission
  size_t next_submit_ = 0;             // index into parcels_ of the first parcel not submitted
  std::vector<CopySegment> segments_;  // reused
};

}  // namespace tcpx
