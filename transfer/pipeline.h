// Pipeline: transfers of any size over one direction's channels.
//
//   submit -> [ TransferRing ] -> chunks -> ChunkDispatcher -> Channel 0 (comm, window) -> poll
//                                                           -> Channel 1
//                                                           -> ...
//
// The caller drives: `progress` posts chunks while there is room, tests requests, unpacks messages and gives them back. Nothing
// happens between calls. Both ends cut the same transfers in the same order. The n-th send of a comm meets its n-th receive, so
// with one channel the halves need not talk. With several channels the receiver decides which channel carries which chunk when it
// posts the receive, and grants the chunk to the sender over the PeerMailbox (chunk_dispatcher.h). A slow channel thus gets only
// what it can take, and never more than its window of chunks waits for it.
//
// Failure of a channel. Without failover the whole pipeline fails: the peer is told, and every transfer fails. With failover the
// channel is closed, the peer is told and closes it, too, and the chunks that it had not delivered go over the others. The
// pipeline fails when its last channel or the peer link fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transfer/channel_set.h"
#include "transfer/chunk_dispatcher.h"
#include "transfer/nic_watch.h"
#include "transfer/peer_messages.h"
#include "transfer/registrations.h"
#include "transfer/transfer_ring.h"
#include "wire/peer_mailbox.h"

namespace tcpx {

struct PipelineOptions {
  ChannelLimits limits;
  uint32_t chunk_bytes = kDefaultChunkBytes;  ///< 1 ... kMaxRequestBytes; must be the same at both ends
  /// Longest chunk of a long transfer (ChunkPlan::make); must be the same at both ends. open_sender and open_receiver agree on
  /// the smaller value.
  uint32_t longest_chunk_bytes = 0;
  uint32_t max_transfers = 1024;  ///< most transfers submitted and not yet polled to their end; at least 1
  bool failover = false;          ///< the same at both ends; only useful with several channels
  /// The sender decides which channel carries which chunk and sends at once, instead of waiting for the receiver's grants: this
  /// saves a round trip. The same at both ends, and not together with failover. The sender may have sent a whole transfer before
  /// a receiver that expects another size reports the mismatch.
  bool sender_places = false;
};

/// The means of a pipeline besides its comms.
struct PipelineMeans {
  std::unique_ptr<PeerMailbox> peer = {};  ///< required for several channels
  std::string peer_nic = {};               ///< interface that `peer` goes over, for `link_is_down`; may be empty
  /// Called for each channel's interface ten times a second while a transfer is pending; true fails the channel. With several
  /// channels it is also called for `peer_nic`, and true fails the pipeline. May be empty.
  NicWatch::IsDown link_is_down = {};
};

/// One thread at a time. The plugin, the parts for receiving, the clock and the budget must outlive it.
class Pipeline final : public PeerMessageSink {
 public:
  /// @param channels 1 ... kMaxChannels, all of one direction, in the same order at both ends; the pipeline owns them, also when
  /// the result is an error
  /// @return kInvalidArgument for invalid options or channels
  static Result<std::unique_ptr<Pipeline>> create(std::vector<ChannelParts> channels, PipelineMeans means, const Clock& clock,
                                                  const PipelineOptions& options = {});
  /// Makes a pipeline of one channel, without a link to the peer.
  static Result<std::unique_ptr<Pipeline>> create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                  const PipelineOptions& options = {});
  /// Fails all pending transfers and drains: returns when nothing touches the memory of any transfer, or after the drain limit.
  ~Pipeline() override;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  Direction direction() const { return channels_.direction(); }

  /// Registers memory with every channel. The memory must live until it is deregistered. The device's GPU must be current for
  /// kCuda. Alignment and size are free: for GPU memory the plugin gets whole pages, and memory longer than a plugin takes is
  /// registered in parts that overlap by a chunk.
  /// @return the plugin's refusal, which concerns this memory only: the pipeline goes on
  Result<RegisteredMemory> register_memory(void* data, size_t bytes, MemoryType type);
  /// True if `register_list` works: the plugin sends from, and receives into, host memory in several places.
  bool takes_lists() const { return channels_.takes_lists(); }
  /// As `register_memory`, for the memory of a list, which is used as if it were in one place.
  Result<RegisteredMemory> register_list(const std::shared_ptr<const RangeList>& list);
  /// Deregisters memory with every channel whose comm is still open. After a failure, or once the pipeline is closed, there may
  /// be no such channel.
  /// @return kInvalidArgument: not registered here (any more), or a pending transfer uses it; nothing has changed then. Otherwise
  /// the plugin's answer; the memory counts as deregistered even when that is an error.
  Status deregister_memory(const RegisteredMemory& memory);

  /// Queues a transfer. The caller must not touch its memory until `poll` answers done or failed.
  /// @return kInvalidArgument: the range exceeds the memory, the memory is not registered here, or the tag is negative;
  /// kExhausted: max_transfers transfers wait to be polled; the pipeline's error once it has failed
  Result<TransferId> submit(const TransferSpec& spec);

  /// Does all that can be done without waiting. @return true when something advanced; on false, a caller with nothing else to do
  /// waits a little
  bool progress();

  /// Takes a message of the peer's half. A wrong one fails the pipeline.
  void on_peer_message(PeerMessage type, std::span<const std::byte> payload) override;

  /// State of a transfer.
  ///  - pending: go on calling `progress`
  ///  - done: a receive has every byte in place; a send no longer uses its memory, which means that the peer has the bytes only
  /// with
  ///    failover
  ///  - failed: nothing touches the memory any more
  ///  - unknown: no such transfer. Done and failed are answered once; afterwards the id is unknown.
  TransferAnswer poll(TransferId id);

  /// Ends the pipeline early. Pending transfers fail with `reason` after some more progress calls.
  void cancel(Status reason) { fail(std::move(reason)); }
  /// Deregisters all memory and closes the comms.
  /// @return kInvalidArgument while transfers are pending; the pipeline's error if it has failed (`progress` closes the comms
  /// then)
  Status close();

  /// The first error of the pipeline; ok while all is well, also when a channel is lost and the others carry on.
  const Status& status() const { return status_; }
  /// Number of transfers that are neither done nor failed.
  uint64_t pending() const { return transfers_.pending(); }
  /// Number of requests that the plugin holds for this pipeline.
  uint64_t in_flight() const { return channels_.in_flight(); }
  /// As Channel::tell_changes, for all channels.
  void tell_changes(const std::function<void()>& told) { channels_.tell_changes(told); }
  /// True if the plugin, the peer's messages or another pipeline end the wait for whatever this one waits for.
  bool is_told() const { return status_.is_ok() && channels_.is_told(); }
  /// True when nothing can advance before other pipelines that share the budget have had their turn.
  bool is_behind() const { return status_.is_ok() && channels_.is_behind(); }
  /// Most requests that the plugin can hold for this pipeline.
  uint64_t window() const { return channels_.size() * channels_[0].window(); }
  std::vector<ChannelCounters> counters() const { return channels_.counters(); }
  /// Describes the chunks in flight on each channel, and the waiting ones, for people.
  std::string flight_record() const;

 private:
  template <class Add>
  Result<RegisteredMemory> register_with(Add add);
  /// Progress of the pipeline in dealing with the failure of a channel.
  struct Loss {
    bool told_by_peer = false;
    bool taken = false;       // the peer knows, and the pipeline has decided what the failure means
    bool dispatched = false;  // the channel is closed, and its chunks go elsewhere
  };

  Pipeline(std::vector<ChannelParts> channels, PipelineMeans means, const Clock& clock, const PipelineOptions& options);
  bool has_peer() const { return channels_.size() > 1; }
  bool fails_over() const { return has_peer() && options_.failover; }
  std::string told_at_exit() const;

  bool pump_link();
  bool post();
  bool progress_channel(size_t index);
  Status take_channel_down(std::span<const std::byte> payload);

  void look_at_nics();
  Status first_nic_down() const;
  void take_failure(size_t index);
  Status meaning_of(size_t index) const;
  void fail(Status reason);
  void check_stall(bool advanced);
  void fail_pending();

  PipelineOptions options_;
  std::unique_ptr<PeerMailbox> peer_;  // null only with one channel
  std::string peer_nic_;
  const Clock& clock_;
  ChannelSet channels_;
  TransferRing transfers_;
  std::unique_ptr<ChunkDispatcher> dispatcher_;
  NicWatch nics_;             // users: each channel, then `peer_`
  std::vector<Loss> losses_;  // by channel
  Status status_;
  bool closed_ = false;

  uint32_t calls_since_pump_ = 0;
  bool heard_ = false;  // a message of the peer has come since the last pump; another pipeline's pump may have delivered it

  TimePoint now_;           // time of the current call
  TimePoint last_advance_;  // or the start of the current work
};

}  // namespace tcpx
