// Pipeline: transfers of any size over one direction's channels.
//
//   submit -> [ TransferRing ] -> chunks -> ChunkDispatcher -> Channel 0 (comm, window) -> poll
//                                                           -> Channel 1
//                                                           -> ...
//
// The caller drives: `progress` posts chunks while there is room, tests, unpacks and gives back; nothing happens in between. Both
// ends cut the same transfers in the same order. The n-th send of a comm meets its n-th receive, so with one channel no more
// needs to be said. With several the receiver decides which channel carries which chunk, when it posts the receive, and grants
// the chunk to the sender over the PeerLink (chunk_dispatcher.h). A slow channel thus gets what it can take, and never more than
// its window of chunks waits for it.
//
// Failure of a channel. Without failover it is the pipeline's: the peer is told, every transfer fails. With failover the
// channel is closed, the peer is told and closes it too, and what it had not delivered goes over the others. When the last
// channel fails, or the peer link, the pipeline does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transfer/channel_set.h"
#include "transfer/chunk_dispatcher.h"
#include "transfer/nic_watch.h"
#include "wire/peer_link.h"
#include "transfer/peer_messages.h"
#include "transfer/registrations.h"
#include "transfer/transfer_ring.h"

namespace tcpx {

struct PipelineOptions {
  ChannelLimits limits;
  uint32_t chunk_bytes = kDefaultChunkBytes;  ///< 1 ... kMaxRequestBytes; must be the same at both ends
  uint32_t longest_chunk_bytes =
      0;  ///< of long transfers (ChunkPlan::make); likewise (open_sender and _receiver take the smaller one)
  uint32_t max_transfers = 1024;  ///< submitted and not yet polled to their end; at least 1
  bool failover = false;          ///< the same at both ends; needs several channels to be of use
  /// The same at both ends, not with failover. The sender decides which chunk goes over which of several channels and sends at once,
  /// instead of what the receiver has granted: a round trip less. It may have sent all before a receiver that expects another size
  /// says so.
  bool sender_places = false;
};

/// Links of a pipeline to the world besides its comms.
struct PipelineLinks {
  std::unique_ptr<PeerLink> peer = {};  ///< required for several channels
  std::string peer_nic = {};            ///< interface that `peer` goes over, for `link_is_down`; may be empty
  /// Asked about each channel's interface ten times a second while something is pending; true fails the channel, or, for the
  /// interface of `peer` of several channels, the pipeline. May be empty.
  NicWatch::IsDown link_is_down = {};
};

/// One thread at a time. All parts must outlive it.
class Pipeline final : private PeerMessageSink {
 public:
  /// @param channels 1 ... kMaxChannels, all of one direction, in the same order at both ends; owned from here on, also when the
  /// result is an error
  /// @return kInvalidArgument for options or channels that cannot be
  static Result<std::unique_ptr<Pipeline>> create(std::vector<ChannelParts> channels, PipelineLinks links, const Clock& clock,
                                                  const PipelineOptions& options = {});
  /// One channel, no link.
  static Result<std::unique_ptr<Pipeline>> create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                  const PipelineOptions& options = {});
  /// Fails what is pending and drains: returns when nothing touches the memory of any transfer, or after the drain limit.
  ~Pipeline() override;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Direction direction() const { return channels_.direction(); }

  /// Registers with every channel. The memory must live until it is deregistered. The device's GPU must be current for kCuda. Any
  /// alignment and size: the plugin gets the whole pages that GPU memory lies in, and what is longer than a plugin takes in parts
  /// that overlap by a chunk. A refusal is that of this memory alone: the pipeline goes on.
  Result<RegisteredMemory> register_memory(void* data, size_t bytes, MemoryType type);
  /// With every channel whose comm is still open; after a failure, and once the pipeline is closed, that may be none.
  /// @return kInvalidArgument: not registered here (any more), or a pending transfer uses it, and nothing has happened; else what
  /// the plugin answered, and it counts as deregistered.
  Status deregister_memory(const RegisteredMemory& memory);

  /// Queues a transfer. Its memory must be left alone until `poll` says done or failed.
  /// @return kInvalidArgument: beyond the memory, not registered here, or a negative tag; kExhausted: max_transfers wait to be
  /// polled; the pipeline's error once there is one.
  Result<TransferId> submit(const TransferSpec& spec);

  /// @return true when something advanced; a caller with nothing else to do waits a little on false.
  bool progress();

  /// Pending: go on with progress. Done (receive: every byte in place; send: the memory is free again, which does not mean that
  /// the peer has the bytes, unless failover is on) and failed (nothing touches the memory any more) are said once: the id is
  /// unknown afterwards, like any other number that names no transfer.
  TransferAnswer poll(TransferId id);

  /// Ends the pipeline early. Pending transfers fail with `reason` after some more progress calls.
  void cancel(Status reason) { fail(std::move(reason)); }
  /// Deregisters all memory and closes the comms.
  /// @return kInvalidArgument while transfers are pending; the pipeline's error if there was one (progress closes it then).
  Status close();

  /// The first error of the pipeline; ok while all is well, also after a channel was lost and others carry on.
  const Status& status() const { return status_; }
  /// Transfers that are neither done nor failed.
  uint64_t pending() const { return transfers_.pending(); }
  /// Requests the plugin holds for us.
  uint64_t in_flight() const { return channels_.in_flight(); }
  /// Nothing can advance before other pipelines that share the budget have had their turn.
  bool is_behind() const { return status_.is_ok() && channels_.is_behind(); }
  /// Most requests that it can have at the plugin.
  uint64_t window() const { return channels_.size() * channels_[0].window(); }
  std::vector<ChannelCounters> counters() const { return channels_.counters(); }
  /// Chunks in flight on each channel, and waiting ones. For people.
  std::string flight_record() const;

 private:
  /// Progress in dealing with the failure of a channel.
  struct Loss {
    bool told_by_peer = false;
    bool taken = false;       // known to the peer, and the pipeline has decided what it means
    bool dispatched = false;  // closed, and what it held goes elsewhere
  };

  Pipeline(std::vector<ChannelParts> channels, PipelineLinks links, const Clock& clock, const PipelineOptions& options);
  bool has_peer() const { return channels_.size() > 1; }
  bool fails_over() const { return has_peer() && options_.failover; }
  std::string told_at_exit() const;

  bool pump_link();
  bool post();
  bool progress_channel(size_t index);
  void on_peer_message(PeerMessage type, std::span<const std::byte> payload) override;
  Status take_channel_down(std::span<const std::byte> payload);

  void look_at_nics();
  Status first_nic_down() const;
  void take_failure(size_t index);
  Status meaning_of(size_t index) const;
  void fail(Status reason);
  void check_stall(bool advanced);
  void fail_pending();

  PipelineOptions options_;
  std::unique_ptr<PeerLink> peer_;  // null only with one channel
  std::string peer_nic_;
  const Clock& clock_;
  ChannelSet channels_;
  TransferRing transfers_;
  std::unique_ptr<ChunkDispatcher> dispatcher_;
  NicWatch nics_;             // of each channel, and of `peer_` behind them
  std::vector<Loss> losses_;  // by channel
  Status status_;
  bool closed_ = false;

  uint32_t calls_since_pump_ = 0;
  bool heard_ = false;  // the peer has said something since the last pump; another pipeline's pump may deliver it

  TimePoint now_;           // of the current call
  TimePoint last_advance_;  // or the begin of the current work
};

}  // namespace tcpx
