// From a bootstrap channel to all parts of one connection between two endpoints: pipeline halves for both directions and the
// control stream. Blocking, with a deadline; the thread that calls it is the application's or an acceptor's, never the one that
// moves data.
//
// Both ends say who they are, where, and how many channels they would open; the larger number holds. On one host they meet (same_host.h). Then they open the direction in which the connector sends, then the
// other, each over a flow of the control stream; then they detach the channel's socket, which becomes the stream's. Until then
// the channel is there to tell the peer what went wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "wire/control_stream.h"
#include "wire/credit_windows.h"
#include "lanes/host_area.h"
#include "endpoint/peer_memory.h"
#include "net/net_plugin.h"
#include "transfer/bootstrap_channel.h"
#include "transfer/pipeline.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

/// Identity of one end, as it tells the other.
struct EndpointIdentity {
  uint64_t instance = 0;  ///< random, of this Endpoint object
  int gpu_idx = 0;
  int wanted_gpu_idx = -1;       ///< connector: the GPU it means to reach, -1: any. The acceptor refuses another one (kMismatch)
  uint64_t wanted_instance = 0;  ///< connector: 0: any. The acceptor refuses when it is another one (kPeerGone: it was restarted)
  uint32_t inline_bytes = 0;     ///< longest inline message this end sends
  std::string gpu_bus = {};      ///< PCI bus id of the GPU; empty: there is none, or it is unknown
};

struct LinkSetup {
  NetPlugin& plugin;
  const ChannelDevices& devices;  ///< the end that has fewer goes round them; as many at both ends where the plugin steers flows
  ReceiverParts receiver;
  PipelineSettings settings;
  uint32_t max_transfers = 64;    ///< per half
  ChunkBudget* budget = nullptr;  ///< of the sending halves of all links; null: none
  PeerMemory* peers = nullptr;    ///< of all links; null: they hold whatever their peers want
  EndpointIdentity identity;
  bool eager = true;         ///< the peer may begin transfers before this end has said Go, unless flows are steered
  bool same_host = false;    ///< a peer on this host may share memory with this end (same_host.h), if it wishes so, too
  bool reads_peer = true;    ///< out of its memory, where the kernel lets it
  std::string boot_id = {};  ///< of this host; empty: as the kernel says
  /// Set together with the channel's stop flag when another client is to have this one's place; may be null. The peer is then
  /// told kExhausted, so that it tries again.
  const std::atomic<bool>* gives_way = nullptr;
};

/// All of one connection. The stream must outlive the halves, as it does here; do not move another link over this one.
struct LinkParts {
  PeerMemory::Place place;
  CreditWindows::Size own_windows = CreditWindows::Size::kWhole, peers_windows = CreditWindows::Size::kWhole;  ///< at first
  std::unique_ptr<HostPeer> host;  ///< null unless both are on one host and share memory; the stream may use it
  std::unique_ptr<ControlStream> stream;
  /// The data sender decides the order of transfers, and begins them before the receiver has said Go (wire/messages.h).
  bool eager = false;
  std::unique_ptr<Pipeline> send;
  std::unique_ptr<Pipeline> recv;
  EndpointIdentity peer;
  std::string peer_host;  ///< address without port
  std::string peer_name;  ///< address:port
  std::string local;      ///< how bytes travel on one host, or why over TCP there; empty when the hosts differ. For people
  std::string interface;  ///< network interface the control connection goes over; may be empty
};

/// Both ends call it, one with `connector` true. The GPU must be current. A stop flag of the channel ends it early.
/// @return kMismatch naming the difference; kExhausted: no memory for one more, here or there; kTimeout; kPeerGone; kProtocol; the plugin's or the peer's error. The peer is told,
/// without waiting for it.
Result<LinkParts> set_up_link(BootstrapChannel channel, bool connector, const LinkSetup& setup, Deadline deadline);

/// The connector's end with its bootstrap_connect, whose hello is followed at once by all that the connector has to say first: it
/// has its connection after four round trips, the one of TCP included, and the acceptor half a round trip later. A peer that fails
/// after this end is done says so over the stream.
/// @return errors as of both
Result<LinkParts> connect_link(const std::string& hosts, uint16_t port, const LinkSetup& setup, Deadline deadline,
                               const std::atomic<bool>* stop);

}  // namespace tcpx
