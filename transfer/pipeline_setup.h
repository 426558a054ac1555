// Pipeline setup: makes pipelines over several channels from a bootstrap channel. The receiving end listens on one device per
// channel. Each end sends its settings, and a receiving end the handles of all channels behind them, without waiting for the
// other. Both ends compare the settings that must be equal, so that a mistake stops both before a comm is made. Then the sending
// end connects to each handle. A channel that cannot be connected is left out (channel_pairing.h).
//
// Both ends make the same sequence of calls on their bootstrap channel: one opens the receiving half and the other the sending
// half. Both directions can be opened at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "transfer/channel_pairing.h"
#include "transfer/handshake.h"
#include "transfer/pipeline.h"

namespace tcpx {

/// Settings of a pipeline that a user can choose.
struct PipelineSettings {
  uint32_t channels = 0;                      ///< 0: one per device, at most kMaxChannels
  uint32_t recv_window = 0, send_window = 0;  ///< ChannelLimits::window
  uint32_t chunk_bytes = kDefaultChunkBytes;
  /// PipelineOptions::longest_chunk_bytes; taken as 0 with a plugin that loses pages to long requests.
  uint32_t longest_chunk_bytes = 0;
  bool failover = false;
  Duration stall_limit = ChannelLimits().stall_limit;

  /// Reads UCCL_TCPX_NUM_CHANNELS, _RECV_WINDOW, _SEND_WINDOW, _CHUNK_BYTES (not set: 512 KiB, and chunks of long transfers
  /// grow), _FAILOVER and _TIMEOUT_MS. @return kBadConfig naming a malformed variable
  static Result<PipelineSettings> from_environment();
  /// Options of the half that sends or receives. They do not contain the number of channels; that is the number of devices below.
  PipelineOptions options(Direction direction) const;
};

/// Name of the parameter for the size of the pieces into which a plugin cuts messages; must be the same at both ends.
inline constexpr std::string_view kPluginPieceBytes = "plugin chunk bytes";
/// Adds what the peer must know about how the plugin cuts messages, if it does. For ends that agree on the chunk size without a
/// PipelineOpening.
void add_message_cut(const NetPlugin& plugin, Parameters& mine);
/// Checks that chunks of this size lose no pages of the plugin's pool (NetPlugin::message_cut). @param mine the direction of this
/// end's half
/// @return kBadConfig for longer chunks; kProtocol
Status check_chunk_bytes(const NetPlugin& plugin, Direction mine, const Parameters& theirs, uint32_t chunk_bytes);

/// Parts that a receiving half needs. All must outlive the pipeline.
struct ReceiverParts {
  Unpacker* unpacker = nullptr;  ///< may be null when only host memory is received
  const MemoryOps* memory = nullptr;
  CopyLane* lane = nullptr;   ///< null: the pipeline asks for no bounce pool, and can receive into host memory only
  ReceiveTap* tap = nullptr;  ///< may be null
};

/// One end's part in opening one half, or both, of a connection. `begin` needs nothing from the peer, so `tell` can send its
/// messages together with others. `hear` and `finish` need the peer's messages.
///
/// The GPU whose memory is sent or received must be current on this thread (27).
class PipelineOpening {
 public:
  struct Halves {
    std::optional<PipelineOptions> send, recv;  ///< at least one; with both, the peer opens both, too
    ReceiverParts receiver;                     ///< for `recv`
    bool recv_first = false;                    ///< with both, when one half is opened after the other: true at exactly one end
  };
  struct Mailboxes {
    std::unique_ptr<PeerMailbox> send, recv;
    bool sender_places = false;  ///< PipelineOptions::sender_places for both halves; ignored with failover
  };
  struct Opened {
    std::unique_ptr<Pipeline> send, recv;
  };

  /// Starts listening on every device when this end receives. @return the plugin's error; kInvalidArgument
  static Result<PipelineOpening> begin(NetPlugin& plugin, ChannelDevices devices, Halves halves);
  /// Sends the settings and the handles to the peer.
  Status tell(BootstrapChannel& peer, Deadline deadline);
  /// Adds channels after `tell`: listens for the added ones and sends the peer their handles.
  /// @param devices of all channels; begins with those of `begin`
  Status add_channels(ChannelDevices devices, BootstrapChannel& peer, Deadline deadline);
  /// Receives what the peer's `tell` and `add_channels` have sent, and compares the settings.
  /// @param told number of channels in the peer's `tell`
  /// @return kMismatch, at both ends, naming what differs; kBadConfig, at both ends, for a chunk longer than the plugin can take
  /// without losing pages (NetPlugin::message_cut); kProtocol; kTimeout
  Status hear(BootstrapChannel& peer, size_t told, Deadline deadline);
  /// Connects and accepts the channels, and makes the pipelines. Both halves watch the devices' network interfaces: a channel
  /// fails when its interface goes down.
  /// @param wait `peer` must be set
  /// @param mailboxes through which the pipelines send grants and failure reports, of the same kind at both ends. Null: those of
  /// `wait.peer`, which then must outlive the pipeline and be used by the thread that drives it. From the moment the pipelines are
  /// open, both ends must take the messages that come.
  /// @return kTimeout; the peer's or the plugin's error, which names the NICs when no channel can be connected
  Result<Opened> finish(const HandshakeWait& wait, Mailboxes mailboxes);

 private:
  PipelineOpening(NetPlugin& plugin, ChannelDevices devices, Halves halves, Parameters mine)
      : plugin_(&plugin), devices_(std::move(devices)), halves_(std::move(halves)), mine_(std::move(mine)) {}
  Status check_half(const Parameters& theirs) const;
  bool wants_turns(const BootstrapChannel& peer) const;

  NetPlugin* plugin_;
  ChannelDevices devices_;
  Halves halves_;
  Parameters mine_;
  std::vector<Listener> listeners_;
  ConnectingHalf theirs_;
  bool in_turn_ = false;  // an end wants one direction paired after the other
};

/// Runs all steps of a PipelineOpening for the receiving half alone. `wait.peer` must be set. @return the errors of the steps
Result<std::unique_ptr<Pipeline>> open_receiver(NetPlugin& plugin, const ChannelDevices& devices, const ReceiverParts& parts,
                                                const PipelineOptions& options, const HandshakeWait& wait);

/// Runs all steps of a PipelineOpening for the sending half alone. `wait.peer` must be set. @return the errors of the steps
Result<std::unique_ptr<Pipeline>> open_sender(NetPlugin& plugin, const ChannelDevices& devices, const PipelineOptions& options,
                                              const HandshakeWait& wait);

}  // namespace tcpx
