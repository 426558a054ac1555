// Endpoint: an application's side of the library. It registers memory and sends, receives, reads and writes by connection, from
// any thread.
//
// Ids are typed, and errors are Statuses with a message to act on. The names of UCCL's RDMA engine are in tcpx/uccl.h.
//
// Threads: every call from any thread at any time. An Endpoint is used by the process that created it: after fork the child
// gets kUnsupported from every call and may only destroy it, which has no effect there.
//
// Completion (docs/completion.md). `done` on a receive or read: the bytes are in place, visible to every later kernel and host
// read. On a send: the source may be reused. On a write: the bytes are in place at the target. After done, failure or cancel no
// thread, NIC or GPU touches the memory any more.
//
// Matching. The n-th send of a connection meets the n-th receive that the other end posts; both name the same number of bytes, or
// both fail with kMismatch. (A short send that went out inline was done before that could be known.) Vectors are streams of
// bytes: the ends may split them differently. Writes and reads need no call at the target and are not ordered among each other.
#pragma once

#if __cplusplus < 202002L
#error "tcpx/endpoint.h needs C++20: compile with -std=c++20"
#endif

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tcpx/status.h"
#include "tcpx/types.h"
#include "tcpx/visibility.h"

namespace tcpx {

enum class ConnId : uint64_t {};
enum class MemoryId : uint64_t {};
/// Identifies the operation that one asynchronous call started; never reused.
enum class OperationId : uint64_t {};

/// The client that asks for a connection.
struct PeerInfo {
  std::string ip;
  int remote_gpu_idx = 0;
  std::string name = {};  ///< as in ConnectionStats
};

struct EndpointConfig {
  /// GPU that moves all memory; NICs are chosen and the progress thread runs near it. Memory of the host and of other GPUs of the
  /// process can be used, too. 0 without a GPU.
  int gpu_idx = 0;
  /// Cores this endpoint may use; 0: those the process may use (affinity, quota). With fewer than 4 the progress thread sleeps instead of polling.
  uint32_t num_cpus = 0;
  /// Address or name to listen on; empty: every address of this machine, or those of the data NICs and loopback while nothing is
  /// configured that authenticates clients (UCCL_TCPX_SECURITY).
  std::string listen_address = {};
  uint16_t port = 0;  ///< to listen on; 0: any free one (see `get_metadata`)
  /// Address or name in the metadata, or several with commas between them; empty: those of the NICs, at most 8, the one nearest to the
  /// GPU first, else loopback.
  std::string public_address = {};
  std::string plugin_path = {};  ///< net plugin to load; empty: the environment's, else an installed one, else the embedded one
  bool progress_thread = true;   ///< false: data moves only inside `progress` and calls that wait
  std::optional<std::chrono::milliseconds> operation_timeout = {};  ///< default: UCCL_TCPX_OP_TIMEOUT_MS
  /// How long the peer's host, or the way to it, may be silent before it counts as gone; 3300 ms ... 2 min; default:
  /// UCCL_TCPX_PEER_TIMEOUT_MS. A host that says that the process has gone is believed at once.
  std::optional<std::chrono::milliseconds> peer_timeout = {};
  std::optional<uint32_t> inline_bytes = {};    ///< longest message sent inline, 0 ... 65536; default: UCCL_TCPX_INLINE_BYTES
  uint32_t max_operations = 65536;              ///< operations started and not yet polled to their end; 1 ... 2^20
  uint32_t max_idle_connections = 16;           ///< removed connections kept for reuse
  std::chrono::milliseconds idle_time{60'000};  ///< time for which they are kept
  uint32_t max_notifications = 65536;           ///< per connection, received and not yet taken with get_notifs
  /// What all peers together may make this endpoint hold, in bytes, at least 32 MiB; default: UCCL_TCPX_MAX_PEER_BYTES. Counts 4 MiB
  /// of each connection from before it is set up, what its windows are enlarged by, and notifications that nobody has taken. Does
  /// not count what this end registers, asks for or sends, buffers of the plugin and the kernel, and memory that a host shares.
  /// Beyond it peers wait, and new connections are refused (kExhausted) at both ends.
  std::optional<uint64_t> max_peer_bytes = {};
  /// Connections between endpoints of one host share memory instead of using TCP, where the system lets them and both ends wish
  /// it (see UCCL_TCPX_LOCAL).
  bool same_host = true;
  /// Asked about each client that has proved what it must (docs/security.md); false refuses it with kMismatch at both ends, and an exception
  /// does, too. Empty: all may come. Called on the thread that sets up that connection, so by several at a time, and clients that wait for a
  /// long answer are refused after 10 s; the destructor of the endpoint waits for it. It must not call this endpoint.
  std::function<bool(const PeerInfo&)> accepts = {};
};

/// A range of `bytes` bytes at `data`, inside the registration `memory`.
struct LocalRange {
  MemoryId memory{};
  void* data = nullptr;
  size_t bytes = 0;
};

/// 128 random bits that name an advertisement, so that knowing them is the right to use it.
struct SlotId {
  uint64_t high = 0, low = 0;
  friend auto operator<=>(const SlotId&, const SlotId&) = default;
};

/// Made by `advertise`, needed by the other end to write or read: no address, only a name that the advertising endpoint looks
/// up and checks. 64 bytes, trivially copyable, little-endian: ship it by any means.
struct RemoteSlot {
  std::array<char, 4> magic;
  uint16_t version;
  uint16_t flags;
  uint64_t endpoint;  ///< instance that advertised it
  SlotId id;
  uint64_t bytes;  ///< advertised length
  uint64_t reserved[3];
};
static_assert(sizeof(RemoteSlot) == 64);
inline constexpr size_t kRemoteSlotBytes = 64;

/// What a peer may do with memory that is advertised to it.
enum class SlotAccess : uint8_t { kRead, kReadWrite, kWrite };

struct AdvertiseOptions {
  /// What peers write or read waits for the work that this stream (cudaStream_t of the memory's GPU; a default stream is that of its GPU) holds
  /// now. Their operations wait, not the call. kUnsupported without a GPU, and while the stream is being captured.
  std::optional<void*> after_stream = {};
  std::optional<SlotAccess> access = {};  ///< default: what the memory allowed when it was registered
  /// From then on the slot is as one that was withdrawn; operations that have found the memory go on. Such a slot is never the one of an
  /// earlier call.
  std::optional<std::chrono::milliseconds> ends_after = {};
  /// After so many writes and reads the slot ends in the same way; 0: after any number. One that names the slot counts once, though it
  /// may fail later, again for every Endpoint::kMaxRanges ranges that it has, and again if it is started once more
  /// (UCCL_TCPX_CHECKSUM=retry).
  uint32_t uses = 0;
};

/// A range `offset` bytes into the advertised one; its length is that of the matching local range.
struct RemoteRange {
  RemoteSlot slot{};
  uint64_t offset = 0;
};

struct PlannedRanges;

/// Ranges that were checked once, for writes and reads that are started many times: see Endpoint::prepare, and prepare_blocks. Copies share it, and any
/// thread may use it. It keeps no memory registered.
class TransferPlan {
 public:
  TransferPlan() = default;  ///< of no ranges; no operation takes it
  /// Ranges it has; their indices are below.
  size_t size() const { return size_; }

 private:
  friend class Endpoint;
  TransferPlan(std::shared_ptr<const PlannedRanges> ranges, size_t size) : ranges_(std::move(ranges)), size_(size) {}
  std::shared_ptr<const PlannedRanges> ranges_;
  size_t size_ = 0;
};

/// A message from one endpoint's application to the other's. Delivered once, after the data of the transfer it came with.
struct NotifyMsg {
  static constexpr size_t kMaxNameBytes = 256, kMaxTextBytes = size_t{1} << 20;
  std::string name;  ///< at most kMaxNameBytes
  std::string msg;   ///< at most kMaxTextBytes; it need not be text
  ConnId conn{};     ///< of a received one: the connection it came over
};

struct SubmitOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  ///< default: the endpoint's
  /// Memory is touched only after the work that this stream (cudaStream_t of any GPU) holds now. A default stream is that of each
  /// GPU whose memory is moved.
  std::optional<void*> after_stream = {};
  /// And only after this event (cudaEvent_t), which must live until the operation has ended.
  void* after_event = nullptr;
  /// Makes `completion_event` return an event for streams to wait on.
  bool completion_event = false;
  /// Delivered to the other end's `get_notifs` once the data is in place: of a send or write there, of a read here. Not for
  /// receives. Copied.
  const NotifyMsg* notify = nullptr;
};

enum class OperationState { kPending, kDone, kFailed, kUnknown };
struct OperationAnswer {
  OperationState state = OperationState::kUnknown;
  Status status;  ///< kFailed: the reason
};

/// Latencies in powers of two: bucket i counts those in [2^i, 2^(i+1)) microseconds, the first also shorter ones, the last all
/// longer ones.
struct LatencyHistogram {
  std::array<uint64_t, 24> buckets{};
  uint64_t count = 0;
  std::chrono::microseconds sum{0};  ///< of what was counted, each in whole microseconds, rounded down
  /// Upper bound of the bucket that holds the quantile `q` (0 ... 1); 0 us when nothing was counted.
  TCPX_CLASS_API std::chrono::microseconds quantile(double q) const;
};

struct NicStats {
  std::string name;  ///< the NIC that the bytes took, also when another was asked for; "lo": they stayed in this host
  uint64_t bytes_sent = 0, bytes_received = 0;
  uint64_t chunks_sent = 0, chunks_received = 0;
};

struct ConnectionStats {
  ConnId conn{};
  std::string peer;  ///< address:port
  std::string name;  ///< that the peer has proved: of its certificate, or "secret"; "": it was not asked (docs/security.md)
  int remote_gpu_idx = 0;
  std::string path;  ///< the route of the bytes, as in the log line
  bool alive = true;
  uint64_t bytes_sent = 0, bytes_received = 0;    ///< payload of both ends' operations, including inline messages
  uint64_t inline_sent = 0, inline_received = 0;  ///< messages
  uint64_t operations_done = 0, operations_failed = 0;
  uint64_t operations_repeated = 0;  ///< started once more by UCCL_TCPX_CHECKSUM=retry; parts and rounds count one by one
  uint64_t operations_pending = 0;
  uint64_t chunks_in_flight = 0, window_chunks = 0;  ///< requests that the plugin holds, and their maximum
  LatencyHistogram latency;                          ///< from submit to the end, successful operations
  std::vector<NicStats> nics;
};

struct EndpointStats {
  std::vector<ConnectionStats> connections;  ///< by id
  /// Counts of connections that are gone, summed up, latencies and NICs included; all else is as of a new connection. Together
  /// with those of `connections` they never fall. Operations that found their connection gone count as failed here.
  ConnectionStats ended;
  uint64_t registered_regions = 0, advertised_ranges = 0;
  uint64_t operations_outstanding = 0;  ///< pending, or ended and not yet polled
  uint64_t notifications_waiting = 0;
  uint64_t peer_bytes = 0, max_peer_bytes = 0;  ///< what peers may make it hold now, and at most
};

/// Errors. A call returns a Status, or a Result that has a value or a Status. Besides the codes that its comment names, every call
/// returns why the endpoint could not be made, kUnsupported in a forked child, and kInternal when memory runs out. Calls that
/// return neither give an empty answer then. `timeout` is by default the endpoint's `operation_timeout`.
class TCPX_CLASS_API Endpoint {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Loads the net plugin unless this process has it already, listens, and starts the progress thread.
  /// @return kInvalidArgument: a field out of range; kBadConfig: a malformed variable; kNotFound, kUnsupported, kPlugin: the plugin;
  /// kSystem: the port is taken
  static Result<std::unique_ptr<Endpoint>> create(const EndpointConfig& config = {});
  /// Fails pending operations, ends calls that wait, tells the peers, and returns when nothing touches the application's memory
  /// any more.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // ---- connections

  struct PeerAddress {
    std::string ip;  ///< as `connect` takes it: several addresses or names have commas between them
    uint16_t port = 0;
    int gpu_idx = 0;
  };
  struct Accepted {
    ConnId conn{};
    std::string ip;
    int remote_gpu_idx = 0;
    std::string name = {};  ///< as in ConnectionStats
  };
  /// A new connection to a listening endpoint. @param ip an address or name, or up to 8 with commas between them, of which the first
  /// that answers is taken. Tries until the deadline while nobody listens.
  /// @return kTimeout: no answer; kPeerGone; kMismatch: settings or GPU differ; kNotFound: no such host; kUnsupported: a newer
  /// version; kProtocol: what answers is no endpoint; kInvalidArgument: a port or GPU number
  Result<ConnId> connect(const std::string& ip, int remote_gpu_idx, int remote_port, std::optional<Milliseconds> timeout = {});
  /// Waits for the next incoming connection that succeeds. Clients that fail are logged; one still being set up at the timeout
  /// is left for the next call. @return kTimeout; kCancelled: the endpoint is closing; kInvalidArgument after start_accepting
  Result<Accepted> accept(std::optional<Milliseconds> timeout = {});
  /// The address that another endpoint needs to reach this one.
  std::vector<uint8_t> get_metadata() const;
  /// Whom such bytes name. @return kInvalidArgument: no metadata; kUnsupported: of a newer version
  static Result<PeerAddress> read_metadata(std::span<const uint8_t> metadata);
  /// The connection to that endpoint: an existing one, a removed one that was kept, or a new one. An existing one that has
  /// failed (the peer was restarted at the same address) is set up anew under the same id.
  /// @return as `connect`; kPeerGone also when a different endpoint than that of the metadata listens there now
  Result<ConnId> add_remote_endpoint(std::span<const uint8_t> metadata, std::optional<Milliseconds> timeout = {});
  /// Ends the use of a connection: pending operations fail with kCancelled, the id is unknown afterwards. One made by
  /// `add_remote_endpoint` is kept for a while; one asked for n times is removed by the n-th call. Others are closed. @return kNotFound
  Status remove_connection(ConnId conn);
  /// Accepts connections on a thread from now on; `accept` is not needed (and refused). @return kSystem: no thread
  Status start_accepting();

  // ---- memory

  /// Registers memory of the host or of any GPU, which must stay valid until `deregister`. The same range again returns the same
  /// id, reference-counted. The first memory of a GPU that is not the endpoint's makes it that one's peer, for good, or a copier
  /// on it; like an allocation, that may wait for all of a GPU's work. Peers of the same host may map memory of a GPU from now on.
  /// Host memory that may only be read is a source alone: it is sent and written from, and others may read it. What it
  /// allows is looked up here, once, in 10 us, before Linux 6.11 up to 1 us for each mapping of the process; later changes
  /// (mprotect) are not seen.
  /// @param type kind of memory; default: looked up (without a GPU: kHost)
  /// @return kInvalidArgument: no memory, not readable throughout, or not of that type; kUnsupported: of a GPU that the endpoint's does not reach and that
  /// has no copier
  Result<MemoryId> register_memory(const void* data, size_t bytes, std::optional<MemoryType> type = {});
  /// Revokes its advertised slots, waits for operations that use it, and releases it. A connection whose peer still uses it at the
  /// timeout is closed.
  /// @param timeout default: the operation timeout
  /// @return kTimeout: still in use by operations of this end, and so still registered; kNotFound
  Status deregister(MemoryId memory, std::optional<Milliseconds> timeout = {});
  /// Lets the other end of `conn` write to and read from the range until `withdraw`, or until the memory is deregistered or the
  /// connection ends. A range has one slot for each access, however often it is advertised.
  /// @return kNotFound: the connection or the memory; kInvalidArgument: a range beyond the registration, or kReadWrite of memory
  /// that may only be read; kExhausted: too many are advertised
  Result<RemoteSlot> advertise(ConnId conn, const LocalRange& range, const AdvertiseOptions& options = {});
  /// The same for the other end of any connection, those of later included: whoever knows the slot may use it.
  Result<RemoteSlot> advertise(const LocalRange& range, const AdvertiseOptions& options = {});
  /// Ends one advertisement. Does not wait: operations that have found the memory go on, and `deregister` waits for them. A read that a
  /// peer of this host has begun by itself, because it had used the slot before, fails instead.
  /// @return kNotFound: no such advertisement, or it has ended; kInvalidArgument: no slot
  Status withdraw(const RemoteSlot& slot);
  /// True as long as a peer may use the slot: it was advertised here, and has not ended.
  bool is_advertised(const RemoteSlot& slot) const;
  /// Ships a slot to the other end, which takes it with `recv_slot`. A send of 64 bytes like any other: it is matched in order
  /// with the connection's other sends.
  Status send_slot(ConnId conn, const RemoteSlot& slot, std::optional<Milliseconds> timeout = {});
  /// @return kProtocol when the other end's send was no slot; else as `recv`
  Result<RemoteSlot> recv_slot(ConnId conn, std::optional<Milliseconds> timeout = {});

  // ---- transfers: of any number of ranges, sends and receives of at most kMaxRanges; their bytes are concatenated
  //
  // The ranges of an operation are all of host memory or all of GPU memory. What is wrong with them is said at once, before anything
  // is queued: kNotFound: no such connection or memory; kInvalidArgument: a range outside its registration or slot, mixed memory, too
  // many ranges, a notification with a receive; kExhausted: `max_operations` are started and not polled to their end, or 64 completion
  // events are lent; kUnsupported: order with GPU work without a GPU, a slot of a newer version, ranges of several GPUs that the
  // endpoint's does not all reach.
  //
  // At the end of an operation: kTimeout: its deadline passed; kPeerGone: the peer closed, died, was restarted, or its host is
  // silent; kMismatch: send and receive differ in size; kCancelled: given up here or at the other end; kNotFound, kInvalidArgument of
  // a write or read: what the other end says of the slot; kProtocol, kPlugin, kSystem, kCuda: the connection broke. The calls that
  // wait return either.

  static constexpr size_t kMaxRanges = 16384;
  Result<OperationId> send_async(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options = {});
  Result<OperationId> recv_async(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options = {});
  /// Range i goes to remote[i] and must fit into it.
  Result<OperationId> write_async(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                                  const SubmitOptions& options = {});
  Result<OperationId> read_async(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                                 const SubmitOptions& options = {});
  Status send(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options = {});
  Status recv(ConnId conn, std::span<const LocalRange> ranges, const SubmitOptions& options = {});
  Status write(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
               const SubmitOptions& options = {});
  Status read(ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
              const SubmitOptions& options = {});

  // The same for one range. `remote` for a whole slot: `{slot}`.
  Result<OperationId> send_async(ConnId conn, const LocalRange& range, const SubmitOptions& options = {}) {
    return send_async(conn, std::span(&range, 1), options);
  }
  Result<OperationId> recv_async(ConnId conn, const LocalRange& range, const SubmitOptions& options = {}) {
    return recv_async(conn, std::span(&range, 1), options);
  }
  Result<OperationId> write_async(ConnId conn, const LocalRange& range, const RemoteRange& remote,
                                  const SubmitOptions& options = {}) {
    return write_async(conn, std::span(&range, 1), std::span(&remote, 1), options);
  }
  Result<OperationId> read_async(ConnId conn, const LocalRange& range, const RemoteRange& remote,
                                 const SubmitOptions& options = {}) {
    return read_async(conn, std::span(&range, 1), std::span(&remote, 1), options);
  }
  Status send(ConnId conn, const LocalRange& range, const SubmitOptions& options = {}) {
    return send(conn, std::span(&range, 1), options);
  }
  Status recv(ConnId conn, const LocalRange& range, const SubmitOptions& options = {}) {
    return recv(conn, std::span(&range, 1), options);
  }
  Status write(ConnId conn, const LocalRange& range, const RemoteRange& remote, const SubmitOptions& options = {}) {
    return write(conn, std::span(&range, 1), std::span(&remote, 1), options);
  }
  Status read(ConnId conn, const LocalRange& range, const RemoteRange& remote, const SubmitOptions& options = {}) {
    return read(conn, std::span(&range, 1), std::span(&remote, 1), options);
  }

  /// Checks ranges once, for operations that move all of them or some, many times: starting one costs the caller a copy of its
  /// indices and a look for each region of the plan. Range i belongs to remote[i] and must fit into it. The memory may be
  /// deregistered: operations fail with kNotFound then.
  /// @return kNotFound, kInvalidArgument, kUnsupported as of an operation
  Result<TransferPlan> prepare(std::span<const LocalRange> ranges, std::span<const RemoteRange> remote) const;
  /// Writes or reads the ranges of a plan of this endpoint: those of the indices in their order, or all.
  /// @return kInvalidArgument also for an index beyond it, or a plan of another endpoint
  Result<OperationId> write_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> indices,
                                  const SubmitOptions& options = {});
  Result<OperationId> read_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> indices,
                                 const SubmitOptions& options = {});
  Result<OperationId> write_async(ConnId conn, const TransferPlan& plan, const SubmitOptions& options = {});
  Result<OperationId> read_async(ConnId conn, const TransferPlan& plan, const SubmitOptions& options = {});

  /// A plan of two block tables, whatever their size: blocks of `block_bytes` bytes, numbered from 0 from the beginning of `local`,
  /// and from that of `remote` to the end of its slot. What is left at an end is no block.
  /// @return as `prepare`
  Result<TransferPlan> prepare_blocks(const LocalRange& local, const RemoteRange& remote, size_t block_bytes) const;
  /// Writes or reads blocks: number local_blocks[i] of this end and number remote_blocks[i] of the other.
  /// @return kInvalidArgument also for lists of different lengths, a number beyond a table, or a plan that is not of blocks
  Result<OperationId> write_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> local_blocks,
                                  std::span<const uint32_t> remote_blocks, const SubmitOptions& options = {});
  Result<OperationId> read_async(ConnId conn, const TransferPlan& plan, std::span<const uint32_t> local_blocks,
                                 std::span<const uint32_t> remote_blocks, const SubmitOptions& options = {});

  /// Pending; done or failed, reported once: the id is unknown afterwards. Does not wait. In vain, it moves data along on the
  /// caller's thread if the progress thread sleeps, so it may call CUDA: not in a host function of a stream.
  OperationAnswer poll(OperationId id);
  /// Waits until the operation has ended, by default 30 s beyond the endpoint's timeout. @return its status; kTimeout: `timeout` passed and it is still pending; kNotFound
  Status wait(OperationId id, std::optional<Milliseconds> timeout = {});
  /// Ends an operation early: it fails with kCancelled, at once if no byte has moved, else when the transfer in progress has
  /// ended. `poll` or `wait` says when. @return kNotFound; ok also if it has ended already
  Status cancel(OperationId id);
  /// The event (cudaEvent_t) of an operation that was started with `completion_event`: fires when the operation ends, done or
  /// failed. Valid until its end has been polled. @return kNotFound; kInvalidArgument: it has none
  Result<void*> completion_event(OperationId id);

  /// Sends a message to the other end's application. Those of one connection keep their order.
  /// @return kNotFound; kInvalidArgument: too long; kExhausted: 65536 or 64 MiB of them wait for the peer to take some, as do reads
  /// with one; kPeerGone, or why the connection broke
  Status notify(ConnId conn, const NotifyMsg& message);
  /// All notifications that arrived since the last call, in order of arrival. If there are none, it moves data along as `poll`
  /// does.
  std::vector<NotifyMsg> get_notifs();
  /// The same, but waits for the first one when there is none. @return empty: the deadline has passed
  std::vector<NotifyMsg> wait_notifs(std::optional<Milliseconds> timeout = {});

  /// A descriptor to wait on with poll, select or epoll: readable when operations have ended, or notifications have come, since it
  /// was last read. Read its 8 bytes (that does not block), then call `poll` and `get_notifs`: what happens in between makes it
  /// readable again, so nothing is missed. It may tell of an end that another call has taken, or that was told before.
  ///
  /// The first call makes it, readable, for what happened before; later ones return the same. It belongs to the endpoint, which
  /// closes it in the end: no thread may wait on it then. A read clears it for all threads, so whoever reads it looks for all of
  /// them. Or each has an epoll set of its own, with EPOLLET, and reads nothing: every event then wakes them all.
  ///
  /// Without a progress thread operations end only inside `progress` and calls that wait: whoever waits for the descriptor needs
  /// another thread that calls those, or wakes up in between to do so.
  /// @return kExhausted: no descriptor is left; kUnsupported
  Result<int> event_fd();

  /// Ends waits for connections and for notifications, those of other threads and of later calls, with kCancelled or nothing. For an
  /// endpoint that is about to go, when its users share it and have to leave first. Connections and operations go on.
  void stop_waiting();

  /// Makes progress once; for endpoints without a progress thread. @return true when something advanced
  bool progress();
  EndpointStats stats() const;
  /// Figures of `stats` in Prometheus' text exposition format 0.0.4, to answer a scrape with as `text/plain; version=0.0.4`; see
  /// docs/metrics.md for each metric. At most about 1 MB: connections beyond the first 256 count in the endpoint's totals only.
  /// @return empty when the endpoint is of no use
  std::string metrics_text() const;
  /// Text that shows the state of every connection. For humans.
  std::string flight_record() const;

  class TCPX_CLASS_INTERNAL Impl;  ///< internal to this library

 private:
  friend class EndpointMaker;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  Result<OperationId> start(int kind, ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                            const SubmitOptions& options);
  Result<OperationId> start(int kind, ConnId conn, const TransferPlan& plan, std::optional<std::span<const uint32_t>> indices,
                            std::span<const uint32_t> remote_indices, const SubmitOptions& options);
  Status perform(int kind, ConnId conn, std::span<const LocalRange> ranges, std::span<const RemoteRange> remote,
                 const SubmitOptions& options);

  std::unique_ptr<Impl> impl_;  // never null
};

}  // namespace tcpx
