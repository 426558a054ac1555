// Pairing: which device of one end is connected with which of the other, found out by trying.
//
// The receiving end listens for each channel at one of its devices. The sending end first connects channel i from its own device i.
// NICs of two hosts may differ in number, names and order, and not each of one reaches each of the other: a channel that has found no
// way is then tried from this end's other devices, in rounds, for which the receiving end listens anew. A pair of NICs is tried once.
// Rounds go on beside nothing: channels that stand wait for the others, so that each round has a share of the time only. A channel
// that finds no way is left out, and both ends log why; both know the same ones to stand, because each tells the other which it has
// made, and those stand that both have. Neither waits for the other's word before it says its own, unless a channel is missing:
//
//   sending end                                     receiving end
//                                  <-  handles
//   connects; made, again              ->
//                                  <-  accepted; handles of those to be tried again
//
// Two directions are paired side by side, unless an end wants them in turn. Where the plugin steers flows (NetPlugin::steers_flows) a channel has its NIC for a reason:
// all must stand, as they are given, and one direction goes behind the other, because a plugin's connect may wait for the other
// end's accept.
#pragma once

#include <memory>
#include <optional>
#include <span>
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

/// A listener at each device. @return the plugin's error
Result<std::vector<Listener>> listen_all(NetPlugin& plugin, std::span<const int> devices);
std::vector<Handle> handles_of(std::span<const Listener> listeners);
/// @return kProtocol when the peer sends another number
Result<std::vector<Handle>> receive_handles(BootstrapChannel& peer, size_t count, Deadline deadline);

/// The direction that this end sends in.
struct ConnectingHalf {
  std::vector<std::string> peer_nics;  ///< names, one for each channel. For people, and to know one NIC from another
  std::vector<Handle> handles;         ///< of the peer's listeners
};
/// The other one.
struct AcceptingHalf {
  std::vector<Listener> listeners;  ///< whose handles the peer is told
};
struct PairedHalves {
  std::vector<PairedChannel> sending, receiving;
};

/// What goes behind what, of two directions.
struct PairingOrder {
  bool accepts_first = false;  ///< true at one end
  bool in_turn = false;        ///< one direction goes behind the other, as with a plugin that steers flows; the same at both ends
};

/// Both ends call it; `wait.peer` must be set. Both must have the same number of channels.
/// @return for each half those that stand, at least one, the same at both ends in the same order; else the first error, which names
/// each pair that was tried with its reason; kProtocol when the peer says something that cannot be.
Result<PairedHalves> pair_channels(NetPlugin& plugin, const ChannelDevices& devices, std::optional<ConnectingHalf> connecting,
                                   std::optional<AcceptingHalf> accepting, PairingOrder order, const HandshakeWait& wait);

}  // namespace tcpx
