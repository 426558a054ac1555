// Addresses of endpoints: which hosts an endpoint puts into its metadata, and which hosts of a peer's metadata it tries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/socket_address.h"
#include "endpoint/metadata.h"
#include "tcpx/endpoint.h"

namespace tcpx {

/// Identifies the network namespace of the calling thread and its host: threads with the same number share one loopback. 0: unknown.
uint64_t network_of_thread();

/// Hosts for the metadata, and a line for the log if they unexpectedly lead to this host only.
struct Whereabouts {
  std::string hosts;
  std::string line = {};
  LogLevel level = LogLevel::kInfo;
};

/// Chooses the public address; else the address listened on; else those of `own` that the listener serves; else loopback. Pure.
/// @param unused a NIC that leads to other hosts but is not in `own`, "": none. If there is one, the line is a warning
/// @return kInvalidArgument: the public address is not a list of hosts
Result<Whereabouts> whereabouts(const EndpointConfig& config, const SocketAddress& listens, const std::vector<SocketAddress>& own,
                                const std::string& unused);

/// Hosts at which anybody may connect to an endpoint that authenticates nobody; "": processes of this host alone can. Pure.
/// @param nics those at which a listener takes clients for a config that names no address
std::string open_hosts(const EndpointConfig& config, const SocketAddress& listens, const std::vector<std::string>& nics);

/// The hosts of a peer's metadata that are worth trying.
struct PeerHosts {
  std::string hosts;
  bool foreign_loopback = false;  ///< all are loopback of another network: only a tunnel could lead there
};

/// Leaves out loopback if the peer is in another network than `here` and names other hosts. Pure.
PeerHosts hosts_to_try(const EndpointMetadata& peer, uint64_t here);

/// Adds to `why`, the error of a connection to foreign loopback, how to fix it.
Status explain_foreign_loopback(const Status& why, const std::string& hosts);

}  // namespace tcpx
