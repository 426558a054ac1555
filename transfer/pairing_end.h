// One end of one direction while its channels are paired (transfer/channel_pairing.h), and what the two ends say to each other.
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

/// What the ends say: channels that the connecting end has made, or tries anew, and those that the accepting end has made.
inline constexpr const char *kMade = "made", *kAgain = "again", *kAccepted = "accepted";

/// A set of channels that the peer names, which must be some of `possible`; kProtocol else.
Result<Mask> channels_in(const Parameters& theirs, const std::string& name, Mask possible);
/// Why the peer has not made this one, in its words.
std::string reason_in(const Parameters& theirs, size_t channel);
/// A status without the name of its code.
std::string words_of(const Status& status);

/// The channels of one half at one end, and what has become of them.
class PairingEnd {
 public:
  PairingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics, const HandshakeWait& wait)
      : plugin_(plugin), devices_(devices), nics_(std::move(nics)), wait_(wait), why_(devices.size()), made_(devices.size()) {}
  virtual ~PairingEnd() = default;

  /// Goes on as far as it can without waiting, but not beyond the end. @return true: it is over
  virtual Result<bool> advance() = 0;
  /// What came of it, at the end.
  virtual Result<std::vector<PairedChannel>> take() = 0;
  /// The peer's handles have come, to be asked for.
  virtual Status take_handles();

  /// The peer's word of this round, or its handles, has not come yet.
  bool listens() const { return listens_ && !heard_; }
  Status hear(Parameters said);
  /// Both words of this round are there, so that `advance` ends it.
  bool round_is_over() const { return said_ && heard_; }

 protected:
  size_t size() const { return devices_.size(); }
  bool all_must_stand() const { return plugin_.steers_flows(); }
  bool any_stands() const;
  void stands(size_t channel, PairedChannel made) { made_[channel].emplace(std::move(made)); }
  void failed(size_t channel, const std::string& why, const Status& status);
  /// For the peer, why these have failed.
  void add_reasons(Mask channels, Parameters& said) const;

  /// The end of it. @param to words before the NIC of the accepting end; @param nics of that
  Result<std::vector<PairedChannel>> take_standing(const char* to, const std::vector<std::string>& nics);

  NetPlugin& plugin_;
  const ChannelDevices& devices_;
  const std::vector<std::string> nics_;  // of the devices
  const HandshakeWait& wait_;
  std::vector<std::string> why_;  // there is no way, so far
  std::vector<std::optional<PairedChannel>> made_;
  Status first_;
  bool listens_ = true;              // it is not over
  bool said_ = false;                // this end's word of this round
  std::optional<Parameters> heard_;  // the peer's
};

/// The end that connects, and so decides what is tried. Arguments as of PairingEnd, and outlive it.
std::unique_ptr<PairingEnd> connecting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                           ConnectingHalf half, const HandshakeWait& wait);
/// The end that accepts, and goes along.
std::unique_ptr<PairingEnd> accepting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                          AcceptingHalf half, const HandshakeWait& wait);

}  // namespace tcpx
