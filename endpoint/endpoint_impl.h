// Implementation of Endpoint: checks what its callers register and submit, and owns the parts that do the rest: connections, the
// operation table, the progress engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "endpoint/connection_book.h"
#include "endpoint/endpoint_parts.h"
#include "endpoint/gpu_reach.h"
#include "endpoint/metrics_text.h"
#include "endpoint/progress_engine.h"

namespace tcpx {

class Endpoint::Impl {
 public:
  /// An operation ends within its deadline plus the time of its early end (kGrace, drain limit). A caller that waits without a timeout
  /// waits this much beyond the deadline.
  static constexpr Milliseconds kWaitBeyondDeadline{30'000};

  static Result<std::unique_ptr<Impl>> create(EndpointParts parts, EndpointConfig config);
  ~Impl();

  /// Held by a thread during a call that may wait: the destructor waits for it to leave.
  class Call {
   public:
    explicit Call(Impl& impl) : impl_(impl) { impl_.calls_.fetch_add(1); }
    ~Call() { impl_.calls_.fetch_sub(1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Impl& impl_;
  };

  /// @return kUnsupported in a fork of the process that made this
  Status check_process() const { return count_forks() == born_in_ ? Status::ok() : is_a_fork(); }

  Result<MemoryId> register_memory(const void* data, size_t bytes, std::optional<MemoryType> type);
  Status deregister(MemoryId memory, Deadline deadline);
  Result<RemoteSlot> advertise(std::optional<ConnId> conn, const LocalRange& range, const AdvertiseOptions& options);
  Status withdraw(const RemoteSlot& slot);
  bool is_advertised(const RemoteSlot& slot) { return registry_.is_advertised(slot.id); }
  Result<OperationId> submit(OperationKind kind, ConnId conn, std::span<const LocalRange> ranges,
                             std::span<const RemoteRange> remote, const SubmitOptions& options);
  Result<std::shared_ptr<const PlannedRanges>> prepare(std::span<const LocalRange> ranges, std::span<const RemoteRange> remote) {
    return plan_ranges(registry_, ranges, remote, registry_.instance());
  }
  Result<std::shared_ptr<const PlannedRanges>> prepare(const LocalRange& local, const RemoteRange& remote, size_t block_bytes) {
    return plan_blocks(registry_, local, remote, block_bytes, registry_.instance());
  }
  /// @param plan null, or another endpoint's: refused. @param chosen nullopt: all ranges of the plan
  Result<OperationId> submit(OperationKind kind, ConnId conn, std::shared_ptr<const PlannedRanges> plan,
                             std::optional<PlannedRounds::Chosen> chosen, const SubmitOptions& options);
  OperationAnswer poll(OperationId id);
  Status wait(OperationId id, std::optional<Milliseconds> timeout);
  Status cancel(OperationId id);
  Status notify(ConnId conn, const NotifyMsg& message);
  std::vector<NotifyMsg> take_notifs();
  std::vector<NotifyMsg> wait_notifs(Deadline deadline);
  Result<int> event_fd();
  void stop_waiting();
  bool progress() { return engine_.progress(); }
  EndpointStats stats();
  std::string metrics_text() { return tcpx::metrics_text(stats(), config_.gpu_idx); }
  std::string flight_record();

  ConnectionBook& connections() { return connections_; }
  OperationTable& operations() { return operations_; }
  Milliseconds timeout() const { return *config_.operation_timeout; }

 private:
  /// Everything that copies, and the marks that order it among the GPU's work.
  struct Copiers {
    static Result<Copiers> create(MemoryOps& memory, int gpu_idx, bool steered);
    std::unique_ptr<GpuOrder> order;  // outlives the operations, whose marks and signals belong to it
    std::unique_ptr<MemoryOps> host_memory;
    std::unique_ptr<SegmentCopier> bulk, brief, host;
    std::unique_ptr<GpuReach> reach;
    std::unique_ptr<InlineCopies> messages;
    std::unique_ptr<HostCopier> pulls;
  };

  Impl(EndpointParts parts, const EndpointConfig& config, Copiers copiers, uint64_t instance);

  static Status is_a_fork();
  template <class Prepare, class Give>
  Result<OperationId> start(OperationKind kind, ConnId conn, const SubmitOptions& options, size_t most, Prepare prepare,
                            Give give);
  Status order(Operation& operation, std::span<const RegionUse> uses, const SubmitOptions& options);
  Result<std::optional<Region>> remove_region(MemoryId id, Deadline deadline);
  std::optional<TimePoint> fail_links_that_serve(MemoryId region);
  void wait_until_unmapped(std::vector<ServedLinks::Holder> holders, MemoryId region);

  const EndpointConfig config_;  // with values from the environment filled in
  EndpointParts parts_;
  const uint64_t born_in_;  // forks before this was made
  Copiers copiers_;
  Unmapper unmapper_;
  StagingBuffers staging_;
  PeerMemory peers_;    // of all links
  ChunkBudget budget_;  // of the sends of all links; used by the progress thread
  EventSignal signal_;
  MemoryRegistry registry_;
  OperationTable operations_;
  NotifyInbox inbox_;
  const LinkShared shared_;
  std::atomic<bool> stop_{false};  // set: every wait for a connection ends
  // Calls that may wait. Every caller writes to it, so it has a cache line of its own.
  alignas(64) std::atomic<int> calls_{0};
  ProgressEngine engine_;
  ConnectionBook connections_;
};

}  // namespace tcpx
