// Where an endpoint is: what it tells others, and what it makes of their word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/socket_address.h"
#include "endpoint/metadata.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// A number of the calling thread's network: its loopback is that of all who have the same number, and of nobody else. 0: the system
/// does not tell.
uint64_t network_of_thread();

/// Hosts for the metadata, and a line for the log where they lead to this host alone and nobody has asked for that.
struct Whereabouts {
  std::string hosts;
  std::string line = {};
  LogLevel level = LogLevel::kInfo;
};

/// Pure. The public address; else the one that is listened on; else of `own` what that listener serves, and loopback without any.
/// @param unused a NIC whose address is not in `own`, "": none. Then the line is a warning
/// @return kInvalidArgument: the public address is no list of hosts
Result<Whereabouts> whereabouts(const EndpointConfig& config, const SocketAddress& listens, const std::vector<SocketAddress>& own,
                                const std::string& unused);

/// The hosts of a peer's metadata that can be the peer.
struct PeerHosts {
  std::string hosts;
  bool foreign_loopback = false;  ///< all are loopback of another network: only a tunnel could lead there
};

/// Pure. Leaves out loopback where the peer is in another network than `here` and tells of something better.
PeerHosts hosts_to_try(const EndpointMetadata& peer, uint64_t here);

/// `why` a connection to such a peer was not made, with the way out of it.
Status explain_foreign_loopback(const Status& why, const std::string& hosts);

}  // namespace tcpx
