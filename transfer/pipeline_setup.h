// From a bootstrap channel to a pipeline of several channels: one end listens on a device per channel and ships all handles in
// one message, the other connects to each; both compare what must be equal first, so that a mistake stops both ends before a comm
// is made. A channel for which there is no way is left out (channel_pairing.h).
//
// Both ends make the same sequence of calls on their bootstrap channel, one opening the receiving and the other the sending half.
// For both directions: first one way, then the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/memory_ops.h"
#include "transfer/channel_pairing.h"
#include "transfer/handshake.h"
#include "transfer/pipeline.h"

namespace tcpx {

/// Settings of a pipeline that a user can choose.
struct PipelineSettings {
  uint32_t channels = 0;  ///< 0: one per device, at most kMaxChannels
  uint32_t recv_window = kDefaultRecvWindow;
  uint32_t send_window = kDefaultSendWindow;
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

/// Compares the settings with those of the peer, listens on every device, ships the handles and accepts. The GPU whose memory is
/// received must be current on this thread (27). `wait.peer` must be set. Both halves watch the devices' network interfaces: one
/// that is down fails its channel.
/// @param link what the pipeline sends its grants and failure reports over; null: a flow of `wait.peer`, which then must
/// outlive the pipeline and be used by the thread that drives it. The same kind at both ends.
/// @param standing this end's device of each channel that stands, as many at both ends; may be null
/// @return kMismatch naming what differs, at both ends; kBadConfig, at both ends, for a chunk longer than the plugin can take
/// without losing pages (NetPlugin::message_cut); kTimeout; the peer's or the plugin's error, which names the NICs where no channel
/// finds a way.
Result<std::unique_ptr<Pipeline>> open_receiver(NetPlugin& plugin, const ChannelDevices& devices, const ReceiverParts& parts,
                                                const PipelineOptions& options, const HandshakeWait& wait,
                                                std::unique_ptr<PeerLink> link = nullptr, ChannelDevices* standing = nullptr);

/// The other half; the GPU whose memory is sent must be current.
Result<std::unique_ptr<Pipeline>> open_sender(NetPlugin& plugin, const ChannelDevices& devices, const PipelineOptions& options,
                                              const HandshakeWait& wait, std::unique_ptr<PeerLink> link = nullptr,
                                              ChannelDevices* standing = nullptr);

}  // namespace tcpx
