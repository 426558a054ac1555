// NetLane: one direction of a link's bulk data over the network. Jobs enter in the same order at both ends, which one of them decides (wire.h), are cut
// into parcels, and go through one pipeline.
//
//   send:  [ gather -> ] submit -> done                      gather, scatter: packed jobs only, through a staging slot
//   recv:              submit -> arrived [ -> scatter ] -> done
//
// Bytes of a job that is unwanted are received like others, and nobody sees them: what has begun at the sender cannot be stopped.
//
// Memory that the plugin does not take is packed in any shape: memory it refuses to register, and host memory at the
// receiving end of flows that are steered to the GPU (NetPlugin::steers_flows). The latter's slots are GPU memory; data that has
// arrived there is fetched into memory that GPU and host reach, and scattered from that. A sender's memory may be the host's:
// the place of payload is the receiver's matter.
//
// Memory of a GPU that the endpoint's own does not reach is packed like host memory, by a copier of that GPU; its slots are memory
// that every GPU reaches.
//
// Pieces are submitted strictly in order, because the n-th transfer of one end meets the n-th of the other. Each lane has its own
// staging slots, made at the first packed job: a peer that does not move holds up nobody else.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/segment_copier.h"
#include "lanes/lane.h"
#include "lanes/net/staging_buffers.h"
#include "transfer/pipeline.h"
#include "wire/messages.h"

namespace tcpx {

/// Parcel of a packed job. Part of the protocol: both ends cut alike.
inline constexpr size_t kParcelBytes = size_t{1} << 20;
/// Parcels of a lane that are gathered, scattered or on their way at once.
inline constexpr size_t kStagingSlots = 16;
inline constexpr size_t kStagingBytes = kStagingSlots * kParcelBytes;
/// Ranges of at least this on average go one by one, without gather and scatter. Part of the protocol.
inline constexpr uint64_t kDirectRangeBytes = 256 * 1024;
/// Transfers of one pipeline half that are under way at once.
inline constexpr uint32_t kMaxLaneTransfers = 64;

/// The packing that a sender prefers for these ranges. Part of the protocol for reads, whose ends both ask it.
Packing preferred_packing(std::span<const HeldRange> ranges, uint64_t bytes);

/// Parts that a lane shares with the others of its endpoint.
struct LaneParts {
  StagingBuffers& staging;  ///< of buffers of kStagingBytes
  SegmentCopier& device_copier;
  SegmentCopier& host_copier;
  bool steered = false;  ///< NetPlugin::steers_flows
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class NetLane final : public Lane {
 public:
  NetLane(std::unique_ptr<Pipeline> connection, const LaneParts& parts);
  ~NetLane() override;

  /// To be asked before the peer is told to count on a transfer of these ranges, while it can still be refused alone.
  /// @return `wanted`, or kPacked when the plugin does not take the memory as it is. The plugin's answer, or the allocator's,
  /// when it cannot be packed either.
  Result<Packing> prepare(std::span<const HeldRange> ranges, Packing wanted);
  /// Queues a job behind all others. Its memory is this lane's until it is the `ended` one.
  void push(std::unique_ptr<Job> job);
  /// Keeps one that the peer has not begun; its memory is this lane's already. @param number, of_read as a BeginFrame names it
  void await(std::unique_ptr<Job> job, uint64_t number, bool of_read) { awaited_.push_back({std::move(job), number, of_read}); }
  /// The peer has begun one: queues it behind all others. @return false: none of that name is awaited
  bool begin(uint64_t number, bool of_read);
  /// The peer does not begin a write of its own. @return null: none of that number is awaited
  std::unique_ptr<Job> take_awaited_write(uint64_t number);
  /// Bytes of all jobs that are queued or move.
  uint64_t bytes() const { return bytes_; }
  bool progress(TimePoint now) override;
  void fail(const Status& reason) override { connection_->cancel(reason); }
  const Status& status() const override { return connection_->status(); }

  bool idle() const override { return jobs_.empty() && awaited_.empty() && parcels_.empty() && ended_.empty(); }
  bool rests(TimePoint now) const override;
  bool closed() const override { return idle() && connection_->in_flight() == 0; }
  bool serves(MemoryId region) const override;
  /// Its registrations are given back.
  void forget(MemoryId region) override;
  uint64_t chunks_in_flight() const override { return connection_->in_flight(); }
  void add_to(ConnectionStats& stats) const override;
  std::string flight_record() const override;

 private:
  struct Staging {
    StagingKind kind{};
    MemoryBuffer buffer;
    MemoryBuffer mapped;  // empty: `buffer` itself is gathered into and scattered from
    RegisteredMemory registered;
    std::vector<uint32_t> free;
    MemoryType type{};                // of the memory that it serves
    SegmentCopier* copier = nullptr;  // gathers and scatters that
  };
  struct Queued {
    std::unique_ptr<Job> job;
    size_t next_range = 0;     // where the next parcel begins
    uint64_t next_offset = 0;  // within that range
    uint64_t cut_bytes = 0;    // already cut into parcels
    uint32_t open_parcels = 0;
    bool cut_whole = false;  // no parcel is left to be made
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
    Staging* staging = nullptr;  // of a packed job
    uint32_t slot = 0;
    size_t first_range = 0;  // where it begins in the job
    uint64_t first_offset = 0;
    uint64_t bytes = 0;
    TransferId transfer{};
    CopyTicket ticket{};
  };

  void queue_awaited(std::deque<Awaited>::iterator entry);
  bool cut();
  bool cut_direct(Queued& queued);
  bool cut_packed(Queued& queued);
  void cut_unwanted(Queued& queued);
  Result<TransferSpec> transfer_of(const Parcel& parcel);
  bool submit_ready();
  bool poll_pieces();
  bool step(Parcel& parcel);
  bool scatter(Parcel& parcel);
  void end_parcel(Parcel& parcel);
  static void fail_job(Queued& queued, const Status& reason);
  void collect_ended();
  Result<Staging*> staging_for(const Region& region);
  Result<std::unique_ptr<Staging>> make_staging(MemoryType type, SegmentCopier& copier);
  void give_back(Staging& staging);
  const RegisteredMemory* registered(const Region& region);
  void segments_of(const Parcel& parcel, bool gather);
  SegmentCopier& copier_of(const Parcel& parcel) const;

  std::unique_ptr<Pipeline> connection_;
  LaneParts parts_;
  std::deque<std::unique_ptr<Queued>> jobs_;  // in order; cut from the front on
  std::deque<Awaited> awaited_;
  uint64_t bytes_ = 0;          // of jobs_
  size_t next_cut_ = 0;         // index into jobs_ of the first job not wholly cut
  std::deque<Parcel> parcels_;  // in order of submission
  size_t next_submit_ = 0;      // index into parcels_ of the first one not submitted
  std::unordered_map<uint64_t, std::optional<RegisteredMemory>> registrations_;  // nullopt: refused
  std::vector<std::unique_ptr<Staging>> staging_;  // of host memory, of GPU memory, and of that of each GPU out of reach
  std::unique_ptr<Staging> scrap_;                 // for what is unwanted: its bytes overwrite each other
  std::vector<CopySegment> segments_;              // reused
};

}  // namespace tcpx
