// Implementation of Endpoint: the thread that makes progress, the table of connections, and the calls that must not get in each
// other's way.
//
// Operations and notifications reach the progress thread through lock-free queues. Calls that change what it works on (a new
// connection, a region that goes, statistics) take `progress_mutex_`, each in its turn, as the thread does.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fair_mutex.h"
#include "base/mutex.h"
#include "endpoint/endpoint_parts.h"
#include "endpoint/entrance.h"
#include "endpoint/link.h"
#include "endpoint/metadata.h"
#include "endpoint/submission_queue.h"
#include "endpoint/wakeable_epoll.h"
#include "transfer/backoff.h"
#include "transfer/bootstrap.h"

namespace tcpx {

class Endpoint::Impl {
 public:
  /// An operation ends within its own deadline plus its early end (link_rules.h, drain limit). A caller that waits for it
  /// without a limit of its own waits so much longer.
  static constexpr Milliseconds kWaitBeyondDeadline{30'000};

  static Result<std::unique_ptr<Impl>> create(EndpointParts parts, const EndpointConfig& config);
  ~Impl();

  /// Held by a thread that is in a call which may wait: the destructor waits for it to leave.
  class Call {
   public:
    explicit Call(Impl& impl) : impl_(impl) { impl_.calls_.fetch_add(1); }
    ~Call() { impl_.calls_.fetch_sub(1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Impl& impl_;
  };

  /// kUnsupported in a process that is not the one that made it.
  Status check_process() const;

  // connections.cc
  Result<ConnId> connect(const std::string& ip, int gpu_idx, int port, Deadline deadline);
  Result<Accepted> accept(Deadline deadline);
  Result<ConnId> add_remote(const EndpointMetadata& remote, Deadline deadline);
  Status remove(ConnId conn);
  Status start_accepting();
  std::vector<uint8_t> metadata() const;

  // transfers.cc
  Result<MemoryId> register_memory(const void* data, size_t bytes, std::optional<MemoryType> type);
  Status deregister(MemoryId memory);
  Result<RemoteSlot> advertise(ConnId conn, const LocalRange& range);
  Result<OperationId> submit(OperationKind kind, ConnId conn, std::span<const LocalRange> ranges,
                             std::span<const RemoteRange> remote, const SubmitOptions& options);
  Status wait(OperationId id, std::optional<Milliseconds> timeout);
  Status cancel(OperationId id);
  Status notify(ConnId conn, const NotifyMsg& message);
  std::vector<NotifyMsg> wait_notifs(Deadline deadline);
  OperationTable& operations() { return operations_; }
  NotifyInbox& inbox() { return inbox_; }
  Milliseconds timeout() const { return timeout_; }

  // progress.cc
  bool progress();
  EndpointStats stats();
  std::string flight_record();

 private:
  /// A connection as callers see it.
  struct ConnectionState {
    ConnId id{};
    uint64_t link = 0;
    std::shared_ptr<LinkFace> face;
    std::atomic<uint64_t> next_send{0}, next_recv{0};
  };
  /// One remote endpoint that `add_remote` knows.
  struct Remote {
    Mutex mutex;
    CondVar changed;
    bool connecting TCPX_GUARDED_BY(mutex) = false;  // one caller does, the others wait for it
    std::shared_ptr<ConnectionState> state TCPX_GUARDED_BY(mutex);
    uint64_t users TCPX_GUARDED_BY(mutex) = 0;  // those that are connecting count
    uint64_t instance TCPX_GUARDED_BY(mutex) = 0;
  };
  /// The endpoint that a connector means to reach.
  struct Wish {
    int gpu_idx = -1;       // -1: any
    uint64_t instance = 0;  // of the endpoint; 0: whichever listens there
  };
  /// A link as the progress thread serves it.
  struct ServedLink {
    std::unique_ptr<Link> link;
    uint64_t number = 0;
    bool watched = false;                 // by epoll
    bool readable = false;                // in this turn
    bool has_work = false;                // an operation has come
    bool removed = false;                 // goes when it is closed
    bool accepted_in_background = false;  // nobody has its id to remove it
    std::optional<TimePoint> idle_since;
  };
  /// The endpoint's GPU, current on this thread for a scope. Without a GPU there is nothing to do.
  class CurrentGpu {
   public:
    explicit CurrentGpu(const Impl& impl);
    ~CurrentGpu();
    CurrentGpu(const CurrentGpu&) = delete;
    CurrentGpu& operator=(const CurrentGpu&) = delete;

   private:
    MemoryOps& memory_;
    std::optional<int> back_to_;
  };
  /// The lock of the progress thread for a caller's thread, which gets in between two turns. Each caller that waits does so once.
  class TCPX_THREAD_ANNOTATION(scoped_lockable) ProgressLock {
   public:
    explicit ProgressLock(Impl& impl) TCPX_THREAD_ANNOTATION(acquire_capability(impl.progress_mutex_)) : impl_(impl), gpu_(impl) {
      impl_.progress_mutex_.lock();
      impl_.progress_locks_.fetch_add(1);
    }
    ~ProgressLock() TCPX_THREAD_ANNOTATION(release_capability()) { impl_.progress_mutex_.unlock(); }
    ProgressLock(const ProgressLock&) = delete;
    ProgressLock& operator=(const ProgressLock&) = delete;

   private:
    Impl& impl_;
    CurrentGpu gpu_;
  };

  Impl(EndpointParts parts, const EndpointConfig& config, uint64_t instance);
  Status start();

  // connections.cc
  Result<std::shared_ptr<ConnectionState>> find(ConnId conn) const;
  Result<LinkParts> set_up(BootstrapChannel channel, bool connector, const Wish& wish, Deadline deadline,
                           const std::atomic<bool>* gives_way = nullptr);
  std::shared_ptr<ConnectionState> add_link(LinkParts parts, std::optional<ConnId> again = {},
                                            bool accepted_in_background = false);
  Result<std::shared_ptr<ConnectionState>> dial(const EndpointMetadata& to, Deadline deadline, std::optional<ConnId> again = {});
  Result<std::shared_ptr<ConnectionState>> connection_to(Remote& remote, const EndpointMetadata& metadata, Deadline deadline);
  Entrance::Parts entrance_parts();
  std::optional<Accepted> claim(ConnId conn);
  bool is_alive(ConnId conn);
  bool revive(const std::shared_ptr<ConnectionState>& state);
  void drop_link(ConnId conn);
  bool forget_connection(ConnId conn);
  void retire(ConnId conn, bool keep);

  // transfers.cc
  Status fill(Operation& operation, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
              const SubmitOptions& options);
  Result<std::optional<Region>> remove_region(MemoryId id, Deadline deadline);
  bool end_links_that_serve(MemoryId region);
  Status forget(const std::optional<Region>& region);
  Status why_ended(ConnId conn);
  static Status check_notify(const NotifyMsg& message);
  void send_notifications(ConnId conn);

  // progress.cc
  void run();
  bool turn() TCPX_REQUIRES(progress_mutex_);
  bool try_turn() TCPX_REQUIRES(progress_mutex_);
  /// Want of memory ends the link that it shows in, and neither the others nor the process.
  template <class Body>
  static void attend(Link& link, Body body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      link.fail_without_memory();
    }
  }
  bool take_submissions() TCPX_REQUIRES(progress_mutex_);
  void take_events() TCPX_REQUIRES(progress_mutex_);
  void look_after_links() TCPX_REQUIRES(progress_mutex_);
  bool needs_polling() TCPX_REQUIRES(progress_mutex_);
  uint64_t chunks_in_flight() TCPX_REQUIRES(progress_mutex_);
  void watch(ServedLink& served, bool on) TCPX_REQUIRES(progress_mutex_);
  void sleep(std::optional<Duration> longest, uint64_t locks);
  Duration spin() const;

  const EndpointConfig config_;
  EndpointParts parts_;
  const uint32_t cores_;  // asked for once: the answer takes microseconds
  const EndpointIdentity identity_;
  const uint64_t born_in_;  // number of forks before
  Milliseconds timeout_{};
  uint32_t inline_bytes_ = 0;

  std::unique_ptr<GpuOrder> gpu_order_;  // outlives the operations, whose marks and signals are its own
  ChunkBudget budget_;                   // of the sends of all links; used by the one that makes progress
  MemoryRegistry registry_;
  OperationTable operations_;
  NotifyInbox inbox_;
  std::unique_ptr<MemoryOps> host_memory_;
  std::unique_ptr<SegmentCopier> bulk_copier_, short_copier_, host_copier_;
  std::unique_ptr<InlineCopies> copies_;
  std::unique_ptr<StagingBuffers> staging_;
  std::unique_ptr<LinkShared> shared_;

  mutable std::shared_mutex connections_mutex_;
  std::unordered_map<ConnId, std::shared_ptr<ConnectionState>> connections_;
  Mutex remotes_mutex_;
  std::map<std::string, std::shared_ptr<Remote>> remotes_ TCPX_GUARDED_BY(remotes_mutex_);
  std::map<ConnId, std::shared_ptr<Remote>> remote_of_ TCPX_GUARDED_BY(remotes_mutex_);

  SubmissionQueue<Operation> submitted_;         // popped with `progress_mutex_`
  SubmissionQueue<Notification> notifications_;  // too; they belong to the queue
  std::atomic<bool> idle_{true};                 // no links: nothing to look at now and then
  std::atomic<uint64_t> progress_locks_{0};      // so far
  std::atomic<bool> stop_{false};                // waits of connections end
  std::atomic<bool> stop_progress_{false};       // so does the thread
  std::unique_ptr<BootstrapServer> server_;
  std::unique_ptr<Entrance> entrance_;
  // Every caller writes to this one, the thread that makes progress reads its neighbours in every turn: cache lines of their own.
  alignas(64) std::atomic<int> calls_{0};  // that may wait
  alignas(64) WakeableEpoll events_;
  FairMutex progress_mutex_;
  std::map<ConnId, ServedLink> links_ TCPX_GUARDED_BY(progress_mutex_);
  uint64_t last_conn_ = 0, last_link_ = 0;
  TimePoint next_look_;
  std::thread thread_;
};

}  // namespace tcpx
