// From a bootstrap channel to a pipeline of several channels: the end that receives listens on a device per channel. Both tell
// their settings, and the handles of all channels behind them, without waiting for each other. Both compare what must be equal, so
// that a mistake stops both ends before a comm is made; then the sending end connects to each. A channel for which there is no way
// is left out (channel_pairing.h).
//
// Both ends make the same sequence of calls on their bootstrap channel, one opening the receiving and the other the sending half.
// Both directions can be opened at once.
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
  uint32_t channels = 0;  ///< 0: one per device, at most kMaxChannels
  /// ChannelLimits::window
  uint32_t recv_window = 0, send_window = 0;
  uint32_t chunk_bytes = kDefaultChunkBytes;
  uint32_t longest_chunk_bytes = 0;  ///< as of PipelineOptions; a plugin that loses pages to long requests gets none
  bool failover = false;
  Duration stall_limit = ChannelLimits().stall_limit;

  /// UCCL_TCPX_NUM_CHANNELS, _RECV_WINDOW, _SEND_WINDOW, _CHUNK_BYTES (not set: 512 KiB, and chunks of long transfers grow),
  /// _FAILOVER, _TIMEOUT_MS. @return kBadConfig naming a malformed one.
  static Result<PipelineSettings> from_environment();
  /// Options of the half that sends or receives. The channel count is no option but the number of devices below.
  PipelineOptions options(Direction direction) const;
};

/// For ends that agree on chunks by themselves: what the peer must know of how the plugin cuts messages, if it does. The one of
/// kPluginPieceBytes must be the same at both ends.
inline constexpr std::string_view kPluginPieceBytes = "plugin chunk bytes";
void add_message_cut(const NetPlugin& plugin, Parameters& mine);
/// @return kBadConfig for chunks that a half which sends or receives here cannot have without losing pages
/// (NetPlugin::message_cut); kProtocol
Status check_chunk_bytes(const NetPlugin& plugin, Direction mine, const Parameters& theirs, uint32_t chunk_bytes);

/// Parts that a receiving half needs. All must outlive the pipeline.
struct ReceiverParts {
  Unpacker* unpacker = nullptr;  ///< may be null when only host memory is received
  const MemoryOps* memory = nullptr;
  CopyLane* lane = nullptr;   ///< null: no bounce pool is looked for, only host memory can be received
  ReceiveTap* tap = nullptr;  ///< may be null
};

/// One end's part in opening one half, or both, of a connection: begun without a word of the peer, so that it can be told together
/// with other things, then gone through with when the peer's has come.
///
/// The GPU whose memory is sent or received must be current on this thread (27).
class PipelineOpening {
 public:
  struct Halves {
    std::optional<PipelineOptions> send, recv;  ///< one at least; where there are both, the peer opens both, too
    ReceiverParts receiver;                     ///< of `recv`
    bool recv_first = false;                    ///< of both, where one goes behind the other: true at one end
  };
  struct Links {
    std::unique_ptr<PeerLink> send, recv;
    bool sender_places = false;  ///< PipelineOptions::sender_places, of both, unless they fail over
  };
  struct Opened {
    std::unique_ptr<Pipeline> send, recv;
  };

  /// Listens on every device, if it receives. @return the plugin's error; kInvalidArgument
  static Result<PipelineOpening> begin(NetPlugin& plugin, ChannelDevices devices, Halves halves);
  /// Tells the peer the settings, and the handles.
  Status tell(BootstrapChannel& peer, Deadline deadline);
  /// More channels than were told: listens for the rest and tells the peer their handles.
  Status add_channels(ChannelDevices devices, BootstrapChannel& peer, Deadline deadline);
  /// Hears what the peer's `tell` and `add_channels` say, and compares. @param told channels that the peer's `tell` is about
  /// @return kMismatch naming what differs, at both ends; kBadConfig, at both ends, for a chunk longer than the plugin can take
  /// without losing pages (NetPlugin::message_cut); kProtocol; kTimeout
  Status hear(BootstrapChannel& peer, size_t told, Deadline deadline);
  /// Connects and accepts the channels. Both halves watch the devices' network interfaces: one that is down fails its channel.
  /// @param wait `peer` must be set
  /// @param links what a pipeline sends its grants and failure reports over; none: a flow of `wait.peer`, which then must outlive
  /// the pipeline and be used by the thread that drives it. The same kind at both ends. Both ends must take messages of it from
  /// when they have opened the pipelines.
  /// @return kTimeout; the peer's or the plugin's error, which names the NICs where no channel finds a way.
  Result<Opened> finish(const HandshakeWait& wait, Links links);

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
  bool in_turn_ = false;  // an end wants it so
};

/// The whole of it for the receiving half alone. `wait.peer` must be set. @return errors as of each step
Result<std::unique_ptr<Pipeline>> open_receiver(NetPlugin& plugin, const ChannelDevices& devices, const ReceiverParts& parts,
                                                const PipelineOptions& options, const HandshakeWait& wait);

/// The other half.
Result<std::unique_ptr<Pipeline>> open_sender(NetPlugin& plugin, const ChannelDevices& devices, const PipelineOptions& options,
                                              const HandshakeWait& wait);

}  // namespace tcpx
