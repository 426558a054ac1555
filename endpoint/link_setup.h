// Turns a bootstrap channel into all parts of one connection between two endpoints: a pipeline half for each direction and the
// control stream. Blocking, with a deadline. Runs on a thread of the application or of the Entrance, never on the progress thread.
//
// Both ends tell who and where they are and how many channels they would open; the larger number counts. Two ends on one host meet
// (same_host.h). Then they open the direction in which the connector sends, then the other.
// Last, the channel's socket becomes the stream's. Until then the channel serves to tell the peer what went wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/byte_sum.h"
#include "endpoint/peer_memory.h"
#include "lanes/host_area.h"
#include "net/net_plugin.h"
#include "secure/settings.h"
#include "transfer/pipeline.h"
#include "transfer/pipeline_setup.h"
#include "wire/bootstrap_channel.h"
#include "wire/control_stream.h"
#include "wire/credit_windows.h"

namespace tcpx {

/// The parameters with which one end introduces itself to the other.
struct EndpointIdentity {
  uint64_t instance = 0;  ///< random, of this Endpoint object
  int gpu_idx = 0;
  int wanted_gpu_idx = -1;       ///< connector: GPU to reach, -1: any. An acceptor with another one refuses (kMismatch)
  uint64_t wanted_instance = 0;  ///< connector: instance to reach, 0: any. Another acceptor refuses (kPeerGone: restarted)
  uint32_t inline_bytes = 0;     ///< longest inline message that this end sends
  std::string gpu_bus = {};      ///< PCI bus id of the GPU; empty: no GPU, or unknown
};

struct LinkSetup {
  NetPlugin& plugin;
  const ChannelDevices& devices;  ///< the end with fewer uses them repeatedly; if the plugin steers flows, both need as many
  ReceiverParts receiver;
  PipelineSettings settings;
  uint32_t max_transfers = 64;    ///< per half
  ChunkBudget* budget = nullptr;  ///< for the sending halves of all links; null: none
  PeerMemory* peers = nullptr;    ///< for all links; null: unbounded
  EndpointIdentity identity;
  bool eager = true;         ///< the peer may begin transfers before this end's Go, unless flows are steered
  bool same_host = false;    ///< a peer on this host may share memory with this end (same_host.h), if it wants to, too
  bool reads_peer = true;    ///< this end reads the memory of a peer on this host, if the kernel lets it
  std::string boot_id = {};  ///< of this host; empty: ask the kernel
  bool checksums = false;    ///< false: not unless the peer wants them
  const std::function<bool(const PeerInfo&)>* accepts = nullptr;  ///< of an acceptor: EndpointConfig::accepts
  const TlsContext* tls = nullptr;  ///< for `connect_link`: the server must prove that it has the secret; null: in clear
  Protection protection = Protection::kOff;  ///< the peer has the same
  std::string local_dir = {};  ///< where a peer of this host but of another network namespace is met; empty: nowhere
  /// Set together with the channel's stop flag when another client is to have this one's place; may be null. The peer is then
  /// told kExhausted, so that it tries again.
  const std::atomic<bool>* gives_way = nullptr;
};

/// All parts of one connection. The stream must outlive the halves, as it does here; do not move-assign over a LinkParts.
struct LinkParts {
  PeerMemory::Place place;
  CreditWindows::Size own_windows = CreditWindows::Size::kWhole, peers_windows = CreditWindows::Size::kWhole;  ///< at first
  std::unique_ptr<HostPeer> host;  ///< used by the stream; null unless both ends are on one host and share memory
  std::unique_ptr<ControlStream> stream;
  uint32_t inline_bytes = 0;  ///< longest inline message that this end sends; the peer's is in `peer`
  /// The data sender decides the order of transfers, and may begin them before the receiver's Go (wire/messages.h).
  bool eager = false;
  std::unique_ptr<Pipeline> send;
  std::unique_ptr<Pipeline> recv;
  EndpointIdentity peer;
  std::string peer_host;  ///< address without port
  std::string peer_name;  ///< address:port
  std::string proved;     ///< ConnectionStats::name
  std::string local;      ///< for people: how bytes travel on one host, or why over TCP; empty if the hosts differ
  std::string interface;  ///< network interface of the control connection; may be empty
  std::shared_ptr<const ByteSumKey> sum_key;  ///< of the checksums; null: there are none
};

/// Both ends call it, one with `connector` true. The GPU must be current. The channel's stop flag ends it early. On failure the peer
/// is told, without waiting for it.
/// @return kMismatch naming the difference; kExhausted: no memory for one more connection, here or there; kTimeout; kPeerGone;
/// kProtocol; the plugin's or the peer's error
Result<LinkParts> set_up_link(BootstrapChannel channel, bool connector, const LinkSetup& setup, Deadline deadline);

/// bootstrap_connect and set_up_link in one, for the connector: its first frames follow the hello at once. So the connector is done
/// after four round trips, including TCP's, and the acceptor half a round trip later. A peer that fails after this end is done says so
/// over the stream.
/// @return errors of both
Result<LinkParts> connect_link(const std::string& hosts, uint16_t port, const LinkSetup& setup, Deadline deadline,
                               const std::atomic<bool>* stop);

}  // namespace tcpx
