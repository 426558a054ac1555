// Connection: transfers of any size over one direction's channels.
//
//   submit -> [ transfers, oldest first ] -> chunks -> Channel 0 (comm, window) -> poll
//                                                   -> Channel 1
//                                                   -> ...
//
// The caller drives: `progress` posts chunks while there is room, tests, unpacks and gives back; nothing happens in between. Both
// ends cut the same transfers in the same order. The n-th send of a comm meets its n-th receive, so with one channel no more
// needs to be said. With several the receiver decides which channel carries which chunk, when it posts the receive
// (chunk_router.h), and grants the chunk to the sender over the PeerLink; the sender posts each channel's chunks in the order in
// which they were granted. A slow channel thus gets what it can take, and never more than its window of chunks waits for it.
//
// Failure of a channel. Without failover it is the connection's: the peer is told, every transfer fails. With failover the
// channel is closed, the peer is told and closes it too, and what it had not delivered goes over the others. A send is then done
// only when the peer has acknowledged the whole transfer, because bytes that a plugin has taken may be lost with the channel; and
// nothing is granted before the sender has submitted it, because a chunk granted anew must not end up behind one that waits for
// that. When the last channel fails, or the peer link, the connection does.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transfer/channel.h"
#include "transfer/chunk_router.h"
#include "transfer/peer_link.h"
#include "transfer/peer_messages.h"

namespace tcpx {

struct ConnectionOptions {
  ChannelLimits limits;
  uint32_t chunk_bytes = kDefaultChunkBytes;  ///< 1 ... kMaxRequestBytes; must be the same at both ends
  uint32_t max_transfers = 1024;              ///< submitted and not yet polled to their end; at least 1
  bool failover = false;                      ///< the same at both ends; needs several channels to be of use
};

/// Memory registered with every channel of a connection. A view: the memory must live until it is deregistered, which the
/// connection does at the latest when it closes.
struct RegisteredMemory {
  std::byte* data = nullptr;  ///< device address for kCuda, host address for kHost
  size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  uint32_t slot = 0;        ///< of the connection's registrations
  uint32_t generation = 0;  ///< which registration of that slot
};

/// What to move: `bytes` bytes from (send) or into (receive) `memory`, starting at `offset`.
struct TransferSpec {
  RegisteredMemory memory;
  size_t offset = 0;
  size_t bytes = 0;
  /// Chunk i of the n-th transfer (n = 0, 1, ...) carries tag + n * kTagsPerTransfer + i, where transfers of more chunks count as
  /// several; only the lowest 31 bits, which is all a plugin takes. Known plugins ignore tags (17), another may match them.
  int tag = 0;
};
inline constexpr uint64_t kTagsPerTransfer = 10000;

enum class TransferState { kPending, kDone, kFailed, kUnknown };

struct TransferAnswer {
  TransferState state = TransferState::kUnknown;
  Status status;            ///< kFailed: why
  uint64_t bytes_done = 0;  ///< of chunks that reached their good end
};

/// One channel of a connection to be.
struct ChannelParts {
  /// Of an accepted comm, which needs it as long as it lives; may be null.
  std::unique_ptr<DeviceHandleStorage> device_handle = {};
  Comm comm;
  ReceiveParts receive;  ///< ignored for sends
  /// Network interface, for error messages, counters and `link_is_down`; may be empty.
  std::string nic = {};
};

/// What a connection hears of the world besides its comms.
struct ConnectionLinks {
  std::unique_ptr<PeerLink> peer = {};  ///< required for several channels
  std::string peer_nic = {};            ///< interface that `peer` goes over, for `link_is_down`; may be empty
  /// Asked about each channel's interface ten times a second while something is pending; true fails the channel, or, for the
  /// interface of `peer` of several channels, the connection. May be empty.
  std::function<bool(const std::string& nic)> link_is_down = {};
};

/// What one channel has done so far.
struct ChannelCounters {
  std::string nic;
  uint64_t bytes = 0;   ///< of chunks that reached their good end
  uint64_t chunks = 0;  ///< that reached their good end
  bool open = true;     ///< false: failed, or closed
};

/// One thread at a time. All parts must outlive it.
class Connection final : private PeerMessageSink {
 public:
  /// @param channels 1 ... kMaxChannels, all of one direction, in the same order at both ends; owned from here on, also when the
  /// result is an error
  /// @return kInvalidArgument for options or channels that cannot be
  static Result<std::unique_ptr<Connection>> create(std::vector<ChannelParts> channels, ConnectionLinks links, const Clock& clock,
                                                    const ConnectionOptions& options = {});
  /// One channel, no link.
  static Result<std::unique_ptr<Connection>> create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                    const ConnectionOptions& options = {});
  /// Fails what is pending and drains: returns when nothing touches the memory of any transfer, or after the drain limit.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Direction direction() const { return direction_; }

  /// Registers with every channel. The memory must live until it is deregistered. The device's GPU must be current for kCuda. Any
  /// alignment and size: the plugin gets the whole pages that GPU memory lies in, and what is longer than a plugin takes in parts
  /// that overlap by a chunk. A refusal is that of this memory alone: the connection goes on.
  Result<RegisteredMemory> register_memory(void* data, size_t bytes, MemoryType type);
  /// With every channel whose comm is still open; after a failure, and once the connection is closed, that may be none.
  /// @return kInvalidArgument: not registered here (any more), or a pending transfer uses it, and nothing has happened; else what
  /// the plugin answered, and it counts as deregistered.
  Status deregister_memory(const RegisteredMemory& memory);

  /// Queues a transfer. Its memory must be left alone until `poll` says done or failed.
  /// @return kInvalidArgument: beyond the memory, not registered here, or a negative tag; kExhausted: max_transfers wait to be
  /// polled; the connection's error once there is one.
  Result<TransferId> submit(const TransferSpec& spec);

  /// @return true when something advanced; a caller with nothing else to do waits a little on false.
  bool progress();

  /// Pending: go on with progress. Done (receive: every byte in place; send: the memory is free again, which does not mean that
  /// the peer has the bytes, unless failover is on) and failed (nothing touches the memory any more) are said once: the id is
  /// unknown afterwards, like any other number that names no transfer.
  TransferAnswer poll(TransferId id);

  /// Ends the connection early. Pending transfers fail with `reason` after some more progress calls.
  void cancel(Status reason) { fail(std::move(reason)); }
  /// Deregisters all memory and closes the comms.
  /// @return kInvalidArgument while transfers are pending; the connection's error if there was one (progress closes it then).
  Status close();

  /// The first error of the connection; ok while all is well, also after a channel was lost and others carry on.
  const Status& status() const { return status_; }
  /// Transfers that are neither done nor failed.
  uint64_t pending() const { return pending_; }
  /// Requests the plugin holds for us.
  uint64_t in_flight() const;
  /// Most requests that it can have at the plugin.
  uint64_t window() const { return paths_.size() * options_.limits.window; }
  /// One entry per channel.
  std::vector<ChannelCounters> counters() const;
  /// What is in flight on each channel, and what waits. For people.
  std::string flight_record() const;

 private:
  struct Transfer {
    TransferId id{};
    TransferState state = TransferState::kUnknown;
    TransferSpec spec;
    ChunkPlan plan;
    uint64_t first_tag = 0;
    uint64_t placed_chunks = 0;    // given to a channel (one channel: posted; receiver: granted)
    uint64_t finished_chunks = 0;  // with failover a sender may count a chunk twice
    uint64_t finished_bytes = 0;
    uint32_t outstanding = 0;   // chunks that a channel holds
    bool acknowledged = false;  // sender with failover: the peer has everything
  };
  /// A chunk by number, before it is known here what it stands for.
  struct ChunkName {
    uint64_t transfer = 0;
    uint64_t chunk = 0;
    uint64_t transfer_bytes = 0;  // sender: as the receiver posted it
  };
  /// What a sender has been granted on one channel. A receiver posts at most a window, so no more can wait.
  class GrantQueue {
   public:
    bool empty() const { return begin_ == end_; }
    uint64_t size() const { return end_ - begin_; }
    const ChunkName& front() const { return names_[begin_ % kQueueDepth]; }
    void pop() { ++begin_; }
    void clear() { begin_ = end_; }
    bool push(const ChunkName& name) {
      if (size() == kQueueDepth) return false;
      names_[end_++ % kQueueDepth] = name;
      return true;
    }

   private:
    std::array<ChunkName, kQueueDepth> names_{};
    uint64_t begin_ = 0, end_ = 0;
  };
  /// Channels, a bit each, as the chunks of one call are placed.
  struct Room {
    uint32_t open = 0;     // can take a chunk
    uint32_t refused = 0;  // did not, although it could
  };
  struct Path {
    Path(ChannelParts parts, const Clock& clock, const ChannelLimits& limits);
    std::string nic;
    std::unique_ptr<DeviceHandleStorage> device_handle;  // outlives the channel's comm
    Channel channel;
    /// Of the memory in each slot: its parts, in order. None where the channel had failed already.
    std::vector<std::vector<std::optional<MemoryHandle>>> memory;
    GrantQueue granted;              // sender: to be posted in this order
    uint64_t bytes = 0, chunks = 0;  // that reached their good end
    int looks_down = 0;              // at its interface, the last ones
    bool told_by_peer = false;       // of its failure
    bool failure_taken = false;      // known to the peer, and the connection has decided what it means
    bool written_off = false;        // closed, and what it held goes elsewhere
  };

  Connection(std::vector<ChannelParts> channels, ConnectionLinks links, const Clock& clock, const ConnectionOptions& options);
  bool grants() const { return paths_.size() > 1; }
  bool acknowledges() const { return grants() && options_.failover; }
  Transfer& slot(uint64_t number) { return transfers_[number % transfers_.size()]; }
  bool is_pending(uint64_t number) const;
  bool all_closed() const;

  // connection.cc
  std::string told_at_exit() const;
  bool is_registered(const RegisteredMemory& memory) const;
  Status let_go(const RegisteredMemory& memory);
  bool post_in_order();
  bool try_post(size_t index, Transfer& transfer, uint64_t number);
  bool progress_path(size_t index);
  void count_finished(const ChunkEnd& end);
  void end_if_complete(Transfer& transfer);

  // connection_grants.cc
  bool pump_link();
  bool needs_peer() const;
  bool post_and_grant();
  Room look_for_room() const;
  std::optional<size_t> place(Transfer& transfer, uint64_t chunk, Room& room);
  uint64_t queued_behind(const Transfer& transfer) const;
  bool regrant_lost();
  bool post_granted();
  bool tell(FrameType type, std::span<const std::byte> payload);
  void acknowledge(const Transfer& transfer);
  void on_peer_message(FrameType type, std::span<const std::byte> payload) override;
  Status take_grant(const Grant& grant);
  Status take_regrant(const Regrant& regrant);
  Status queue_granted(size_t index, const ChunkName& name);
  Status take_received(uint64_t number);
  Status take_submitted(uint64_t number);
  uint64_t end_of_grantable() const;

  // connection_failures.cc
  std::string label(size_t index) const;
  Status link_down(const std::string& nic, std::string_view what) const;
  Status link_lost(const std::string& nic, std::string_view what, int patience, int& looks) const;
  void look_at_links();
  Status first_link_down() const;
  Status labelled(size_t index, const Status& reason) const;
  void take_failure(size_t index);
  void write_off(size_t index);
  Status take_channel_down(const ChannelDown& down);
  void fail(Status reason);
  void check_stall(bool advanced);
  void fail_pending();

  Direction direction_;
  ConnectionOptions options_;
  ConnectionLinks links_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Path>> paths_;
  ChunkRouter router_;  // receiver with several channels
  Status status_;

  // Ring by id: transfer n lives in slot n modulo the size until it has been polled to its end.
  std::vector<Transfer> transfers_;
  uint64_t next_id_ = 1;     // of the next submit
  uint64_t placing_id_ = 1;  // oldest transfer with chunks not yet placed; next_id_ when there is none
  uint64_t pending_ = 0;
  uint64_t next_tag_ = 0;
  std::vector<uint32_t> generations_;  // by slot: of the memory registered there, or to be registered next
  std::vector<uint32_t> free_slots_;
  bool closed_ = false;

  std::deque<ChunkName> lost_;       // receiver: chunks of failed channels
  ChunkName next_granted_{1, 0, 0};  // sender: what the next grant begins with
  uint64_t submitted_by_peer_ = 0;   // receiver with failover: transfers that the sender has said it has
  uint32_t calls_since_pump_ = 0;
  bool heard_ = false;  // the peer has said something since the last pump; another connection's pump may deliver it

  TimePoint now_;           // of the current call
  TimePoint last_advance_;  // or the begin of the current work
  TimePoint next_link_look_;
  int peer_looks_down_ = 0;
};

}  // namespace tcpx
