// Pairing: finds out by trying which device of one end can be connected with which device of the other.
//
// The receiving end listens for each channel at one of its devices. The sending end first connects channel i from its own device i.
// The NICs of two hosts may differ in number, names and order, and not every NIC of one host reaches every NIC of the other. So a
// channel that could not connect is tried from the sending end's other devices, in rounds, and the receiving end listens again
// for each round. A pair of NICs is tried once. Channels that are already connected wait until the last round is over, so each
// round
// gets only a share of the time. A channel that cannot be connected is left out, and both ends log why. Both ends agree on the
// channels that are left, because each tells the other which channels it has made, and only those that both have made are used.
// Neither end waits for the other's message before it sends its own, unless a channel is missing:
//
//   sending end                                     receiving end
//                                  <-  handles
//   connects; made, again              ->
//                                  <-  accepted; handles of those to be tried again
//
// Two directions are paired side by side, unless an end wants them one after the other. Where the plugin steers flows
// (NetPlugin::steers_flows), each channel needs the NIC it was given: all channels must connect as given. One direction is then
// paired after the other, because a plugin's connect may wait for the other end's accept.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transfer/handshake.h"

namespace tcpx {

/// The plugin's device of each channel, in channel order; 1 ... kMaxChannels entries. Several channels may use the same device.
using ChannelDevices = std::vector<int>;

/// A channel that both ends have connected.
struct PairedChannel {
  int device = 0;  ///< this end's device
  std::string nic;
  Comm comm;
  std::unique_ptr<DeviceHandleStorage> device_handle = {};  ///< an accepted comm needs it as long as it lives; null for others
};

/// Returns the name of each device's NIC, or the plugin's error.
Result<std::vector<std::string>> nics_of(NetPlugin& plugin, const ChannelDevices& devices);

/// Listens on each device. @return one listener per device, or the plugin's error
Result<std::vector<Listener>> listen_all(NetPlugin& plugin, std::span<const int> devices);
std::vector<Handle> handles_of(std::span<const Listener> listeners);
/// Receives `count` handles. @return kProtocol when the peer sends fewer or more
Result<std::vector<Handle>> receive_handles(BootstrapChannel& peer, size_t count, Deadline deadline);

/// The half in which this end sends: it connects.
struct ConnectingHalf {
  std::vector<std::string> peer_nics;  ///< one name per channel, for messages and to tell the peer's NICs apart
  std::vector<Handle> handles;         ///< of the peer's listeners
};
/// The half in which this end receives: it accepts.
struct AcceptingHalf {
  std::vector<Listener> listeners;  ///< the peer has been told their handles
};
struct PairedHalves {
  std::vector<PairedChannel> sending, receiving;
};

/// The order in which two directions are paired.
struct PairingOrder {
  bool accepts_first = false;  ///< true at exactly one end
  bool in_turn = false;        ///< one direction is paired after the other, as steered flows need; the same at both ends
};

/// Pairs the channels of one or both halves. Both ends call it, with the same number of channels; `wait.peer` must be set.
/// @return for each half the connected channels: at least one, and the same at both ends, in the same order. Otherwise the first
/// error, which names each pair that was tried and why it failed; kProtocol when the peer's messages are inconsistent.
Result<PairedHalves> pair_channels(NetPlugin& plugin, const ChannelDevices& devices, std::optional<ConnectingHalf> connecting,
                                   std::optional<AcceptingHalf> accepting, PairingOrder order, const HandshakeWait& wait);

}  // namespace tcpx
