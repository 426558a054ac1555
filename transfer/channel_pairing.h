// Pairing: which device of one end is connected with which of the other, found out by trying.
//
// The receiving end listens for each channel at one of its devices. The sending end first connects channel i from its own device i.
// NICs of two hosts may differ in number, names and order, and not each of one reaches each of the other: a channel that has found no
// way is then tried from this end's other devices, in rounds, for which the receiving end listens anew. A pair of NICs is tried once.
// Rounds go on beside nothing: channels that stand wait for the others, so that each round has a share of the time only. A channel
// that finds no way is left out, and both ends log why; both know the same ones to stand, because each tells the other.
//
// Where the plugin steers flows (NetPlugin::steers_flows) a channel has its NIC for a reason: all must stand, as they are given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transfer/handshake.h"

namespace tcpx {

/// The plugin's device of each channel, in channel order; 1 ... kMaxChannels, a device may stand there more than once.
using ChannelDevices = std::vector<int>;

/// A channel that stands.
struct PairedChannel {
  int device = 0;  ///< of this end
  std::string nic;
  Comm comm;
  std::unique_ptr<DeviceHandleStorage> device_handle = {};  ///< of an accepted comm, which needs it; null for others
};

/// NIC of each device. @return the plugin's error
Result<std::vector<std::string>> nics_of(NetPlugin& plugin, const ChannelDevices& devices);

/// The two ends of it; `wait.peer` must be set. Both must have the same number of channels.
/// @param peer_nics names, one for each channel. For people, and to know one NIC from another
/// @return those that stand, at least one, the same at both ends in the same order; else the first error, which names each pair
/// that was tried with its reason; kProtocol when the peer says something that cannot be.
Result<std::vector<PairedChannel>> connect_channels(NetPlugin& plugin, const ChannelDevices& devices,
                                                    const std::vector<std::string>& peer_nics, const HandshakeWait& wait);
Result<std::vector<PairedChannel>> accept_channels(NetPlugin& plugin, const ChannelDevices& devices, const HandshakeWait& wait);

}  // namespace tcpx
