// PairingEnd: one end of one direction while its channels are paired (transfer/channel_pairing.h), and the messages that the two
// ends exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transfer/channel_pairing.h"
#include "transfer/peer_messages.h"  // kMaxChannels

namespace tcpx {

inline constexpr const char* kPair = "pair channels";

/// A set of channels: bit i is channel i.
using Mask = uint32_t;
static_assert(kMaxChannels <= 32);

constexpr Mask bit(size_t channel) {
  return Mask{1} << channel;
}
constexpr bool has(Mask mask, size_t channel) {
  return (mask & bit(channel)) != 0;
}

/// Names of the sets of channels in the messages: channels that the connecting end has made, channels that it tries again, and
/// channels that the accepting end has made.
inline constexpr const char *kMade = "made", *kAgain = "again", *kAccepted = "accepted";

/// Reads a set of channels from the peer's message. @return kProtocol when it is not a subset of `possible`
Result<Mask> channels_in(const Parameters& theirs, const std::string& name, Mask possible);
/// The reason that the peer gives for not having made a channel.
std::string reason_in(const Parameters& theirs, size_t channel);
/// The text of a status without the name of its code.
std::string words_of(const Status& status);

/// The channels of one half at one end, and their state.
class PairingEnd {
 public:
  PairingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics, const HandshakeWait& wait)
      : plugin_(plugin), devices_(devices), nics_(std::move(nics)), wait_(wait), why_(devices.size()), made_(devices.size()) {}
  virtual ~PairingEnd() = default;

  /// Does all that is possible without waiting. @return true: the pairing is over
  virtual Result<bool> advance() = 0;
  /// Returns the connected channels, or the error. Call it when the pairing is over.
  virtual Result<std::vector<PairedChannel>> take() = 0;
  /// Takes the peer's handles, which have arrived.
  virtual Status take_handles();

  /// True while the peer's message of this round, or its handles, has not come yet.
  bool listens() const { return listens_ && !heard_; }
  /// Takes the peer's message of this round.
  Status hear(Parameters said);
  /// True when both ends have sent their message of this round, so that the next `advance` ends it.
  bool round_is_over() const { return said_ && heard_; }

 protected:
  size_t size() const { return devices_.size(); }
  bool all_must_stand() const { return plugin_.steers_flows(); }
  bool any_stands() const;
  void stands(size_t channel, PairedChannel made) { made_[channel].emplace(std::move(made)); }
  void failed(size_t channel, const std::string& why, const Status& status);
  /// Adds to a message for the peer why these channels have failed.
  void add_reasons(Mask channels, Parameters& said) const;

  /// Takes the channels that stand, and logs why others are left out.
  /// @param to text before the name of the accepting end's NIC; @param nics the NICs of the accepting end
  Result<std::vector<PairedChannel>> take_standing(const char* to, const std::vector<std::string>& nics);

  NetPlugin& plugin_;
  const ChannelDevices& devices_;
  const std::vector<std::string> nics_;  // of the devices
  const HandshakeWait& wait_;
  std::vector<std::string> why_;  // by channel: the failures so far
  std::vector<std::optional<PairedChannel>> made_;
  Status first_;
  bool listens_ = true;              // the pairing is not over
  bool said_ = false;                // this end has sent its message of this round
  std::optional<Parameters> heard_;  // the peer's message of this round
};

/// Makes the end that connects, and so decides what is tried. The plugin, `devices` and `wait` must outlive it.
std::unique_ptr<PairingEnd> connecting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                           ConnectingHalf half, const HandshakeWait& wait);
/// Makes the end that accepts, and follows the connecting end's decisions. The same objects must outlive it.
std::unique_ptr<PairingEnd> accepting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                          AcceptingHalf half, const HandshakeWait& wait);

}  // namespace tcpx
