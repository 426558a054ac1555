#include "transfer/channel_pairing.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "transfer/peer_messages.h"  // kMaxChannels

namespace tcpx {
namespace {

constexpr const char* kPair = "pair channels";
// Shares of the time. While nothing stands: enough for a neighbour that does not answer to be given up. Beside channels that stand:
// enough for a lost packet to be sent again.
constexpr Duration kLongestShare = std::chrono::milliseconds(3500), kLongestBeside = std::chrono::milliseconds(2500);
constexpr size_t kMaxReasonBytes = 400;  // of one channel, in a message to the peer
// One for each device, and one more for a network that was away.
constexpr size_t kMaxRounds = kMaxChannels + 1;

using Mask = uint32_t;  // bit i: channel i
static_assert(kMaxChannels <= 32);

constexpr Mask bit(size_t channel) {
  return Mask{1} << channel;
}
constexpr bool has(Mask mask, size_t channel) {
  return (mask & bit(channel)) != 0;
}

// A set of channels that the peer names, which must be some of `possible`.
Result<Mask> channels_in(const Parameters& theirs, const std::string& name, Mask possible) {
  const auto found = theirs.find(name);
  const std::string text = found != theirs.end() ? found->second : "";
  Mask mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask);
  if (error == std::errc() && end == text.data() + text.size() && (mask & ~possible) == 0) return mask;
  return Status(Code::kProtocol, kPair,
                concat("the peer's \"", name, "\" is \"", printable(std::as_bytes(std::span(text)), 32), '"'));
}

std::string reason_of(size_t channel) {
  return concat("why ", channel);
}

std::string reason_in(const Parameters& theirs, size_t channel) {
  const auto found = theirs.find(reason_of(channel));
  if (found == theirs.end()) return "the peer does not say why";
  return printable(std::as_bytes(std::span(found->second)), kMaxReasonBytes);
}

// Without the name of the code.
std::string words_of(const Status& status) {
  return status.to_string().substr(name_of(status.code()).size() + 2);
}

/// The channels of one end, and what has become of them.
class PairingEnd {
 public:
  PairingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics)
      : plugin_(plugin), devices_(devices), nics_(std::move(nics)), why_(devices.size()), made_(devices.size()) {}

  size_t size() const { return devices_.size(); }
  bool all_must_stand() const { return plugin_.steers_flows(); }
  bool any_stands() const {
    return std::any_of(made_.begin(), made_.end(), [](const auto& channel) { return channel.has_value(); });
  }
  void stands(size_t channel, PairedChannel made) { made_[channel].emplace(std::move(made)); }
  void failed(size_t channel, const std::string& why, const Status& status) {
    why_[channel] += concat(why_[channel].empty() ? "" : "; ", why);
    if (first_.is_ok()) first_ = status;
  }
  void add_reasons(Mask channels, Parameters& said) const {
    for (size_t i = 0; i < size(); ++i) {
      if (has(channels, i)) said.emplace(reason_of(i), why_[i].substr(0, kMaxReasonBytes));
    }
  }

  /// The end of it. @param to words before the NIC of the accepting end; @param nics of that
  Result<std::vector<PairedChannel>> take(const char* to, const std::vector<std::string>& nics, const HandshakeWait& wait) {
    std::vector<PairedChannel> standing;
    std::string all;
    for (size_t i = 0; i < size(); ++i) {
      if (made_[i]) {
        standing.push_back(std::move(*made_[i]));
        continue;
      }
      all += concat(all.empty() ? "" : ", ", to, nics[i], ": ", why_[i]);
    }
    if (standing.empty() || (all_must_stand() && standing.size() < size()))
      return Status(first_.code(), kPair, concat("no way ", all), first_.domain(), first_.native());
    for (size_t i = 0; i < size(); ++i) {
      if (made_[i]) continue;
      log(LogLevel::kWarning, "connection to ", wait.peer->peer().to_string(), ": channel ", i, " is left out: no way ", to,
          nics[i], ": ", why_[i]);
    }
    return standing;
  }

 protected:
  NetPlugin& plugin_;
  const ChannelDevices& devices_;
  const std::vector<std::string> nics_;  // of the devices
  std::vector<std::string> why_;         // there is no way, so far
  std::vector<std::optional<PairedChannel>> made_;
  Status first_;
};

/// The end that connects, and so decides what is tried.
class ConnectingEnd : public PairingEnd {
 public:
  ConnectingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                const std::vector<std::string>& peer_nics, const HandshakeWait& wait)
      : PairingEnd(plugin, devices, std::move(nics)), peer_nics_(peer_nics), wait_(wait) {
    for (size_t i = 0; i < size(); ++i) {
      if (std::find(devices.begin(), devices.end(), devices[i]) == devices.begin() + static_cast<ptrdiff_t>(i))
        places_.push_back(i);
      round_.push_back({.channel = i, .place = i});
      tried_.emplace(devices[i], peer_nics[i]);
    }
  }

  Result<std::vector<PairedChannel>> run() {
    for (size_t rounds = 1; !round_.empty(); ++rounds) TCPX_RETURN_IF_ERROR(run_round(rounds));
    return take("to its ", peer_nics_, wait_);
  }

 private:
  /// A channel, and the place of the device in `devices_` that it is tried from.
  struct Try {
    size_t channel, place;
  };

  Status run_round(size_t rounds) {
    TCPX_ASSIGN_OR_RETURN(const auto handles, wait_.peer->receive_handles(round_.size(), wait_.deadline));
    if (handles.size() != round_.size())
      return Status(Code::kProtocol, kPair, concat(handles.size(), " handles for ", round_.size(), " channels"));
    std::vector<Try> next = next_tries();
    ChannelDevices from;
    for (const Try& one : round_) from.push_back(devices_[one.place]);
    const bool more = !next.empty() || (rounds > 1 && !hasty_.empty());
    const HandshakePatience patience = patience_of(rounds, more);
    TCPX_ASSIGN_OR_RETURN(auto answers, connect_all(plugin_, from, handles, wait_, patience));

    Mask made = 0, failed = 0;
    for (size_t k = 0; k < round_.size(); ++k) {
      const Try& one = round_[k];
      if (answers[k].is_ok()) {
        made |= bit(one.channel);
        continue;
      }
      failed |= bit(one.channel);
      const Status& why = answers[k].status();
      this->failed(one.channel, concat("from ", nics_[one.place], ": ", words_of(why)), why);
      if (rounds == 1 && more && why.code() != Code::kProtocol) hasty_.push_back(one);
    }
    std::erase_if(next, [&](const Try& one) { return !has(failed, one.channel); });
    if (made != 0 && !beside_)
      beside_ = Deadline::after(std::min(kLongestBeside, (wait_.deadline.at() - Clock::steady().now()) / 4));
    if (beside_ && beside_->expired()) next.clear();
    for (const Try& one : next) tried_.emplace(devices_[one.place], peer_nics_[one.channel]);
    // A network that was away may be back.
    if (next.empty() && made == 0 && !any_stands()) next = std::exchange(hasty_, {});
    if (next.empty() && made == 0 && !any_stands()) {
      round_.clear();
      return Status::ok();  // the peer is told the error
    }

    Mask again = 0;
    for (const Try& one : next) again |= bit(one.channel);
    Parameters said = {{"made", std::to_string(made)}, {"again", std::to_string(again)}};
    add_reasons(failed & ~again, said);
    TCPX_RETURN_IF_ERROR(wait_.peer->send_parameters(said, wait_.deadline));
    TCPX_ASSIGN_OR_RETURN(const auto theirs, wait_.peer->receive_parameters(wait_.deadline));
    TCPX_ASSIGN_OR_RETURN(const Mask accepted, channels_in(theirs, "made", made));
    for (size_t k = 0; k < round_.size(); ++k) {
      const Try& one = round_[k];
      if (has(accepted, one.channel)) {
        stands(one.channel, {.device = devices_[one.place], .nic = nics_[one.place], .comm = std::move(*answers[k])});
      } else if (has(made, one.channel)) {
        const std::string why = concat("from ", nics_[one.place], ": the peer: ", reason_in(theirs, one.channel));
        this->failed(one.channel, why, Status(Code::kPeerGone, kPair, why));
      }
    }
    round_ = std::move(next);
    return Status::ok();
  }

  // Should all of this round fail: for each channel another device of this end, of which it is not known that it does not reach
  // the peer's NIC, nor that another channel goes there.
  std::vector<Try> next_tries() const {
    std::vector<Try> next;
    auto tried = tried_;
    for (const Try& one : round_) {
      const auto begin =
          std::find_if(places_.begin(), places_.end(), [&](size_t place) { return devices_[place] == devices_[one.place]; });
      for (size_t k = 1; k < places_.size(); ++k) {
        const size_t place = places_[(static_cast<size_t>(begin - places_.begin()) + k) % places_.size()];
        if (!tried.emplace(devices_[place], peer_nics_[one.channel]).second) continue;
        next.push_back({.channel = one.channel, .place = place});
        break;
      }
    }
    return next;
  }

  // A round that is not the last, and one of channels that come on top of others, has a share of the time that is left.
  HandshakePatience patience_of(size_t rounds, bool more) const {
    if (all_must_stand()) return {.for_first = wait_.deadline, .all_or_none = true};
    const Duration left = wait_.deadline.at() - Clock::steady().now();
    const Duration late = std::min(rounds == 1 ? kLongestBeside : kLongestBeside / 2, left / 4);
    if (any_stands()) return {.for_first = Deadline::after(late), .for_others = late};
    if (!more) return {.for_first = wait_.deadline, .for_others = late};
    const auto rounds_left = static_cast<int>(std::max(places_.size() + 1, rounds) - rounds + 1);
    return {.for_first = Deadline::after(std::min(kLongestShare, left / rounds_left)), .for_others = late};
  }

  const std::vector<std::string>& peer_nics_;
  const HandshakeWait& wait_;
  std::vector<size_t> places_;                   // of each device, the first
  std::set<std::pair<int, std::string>> tried_;  // this end's device, the peer's NIC
  std::vector<Try> round_;
  std::optional<Deadline> beside_;  // of trying other devices, since a channel has stood
  std::vector<Try> hasty_;          // given up in the first round to try others
};

/// The end that accepts, and goes along.
class AcceptingEnd : public PairingEnd {
 public:
  AcceptingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics, const HandshakeWait& wait)
      : PairingEnd(plugin, devices, std::move(nics)), wait_(wait) {
    for (size_t i = 0; i < size(); ++i) round_.push_back(i);
  }

  Result<std::vector<PairedChannel>> run() {
    for (size_t rounds = 1; !round_.empty(); ++rounds) {
      if (rounds > kMaxRounds) return Status(Code::kProtocol, kPair, "the peer tries again and again");
      TCPX_RETURN_IF_ERROR(run_round());
    }
    return take("from the peer to ", nics_, wait_);
  }

 private:
  Status run_round() {
    std::vector<Listener> listeners;
    std::vector<Handle> handles;
    std::vector<std::unique_ptr<DeviceHandleStorage>> storages;
    Mask possible = 0;
    for (const size_t channel : round_) {
      TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(plugin_, devices_[channel]));
      handles.push_back(listener.handle());
      listeners.push_back(std::move(listener));
      storages.push_back(std::make_unique<DeviceHandleStorage>());
      possible |= bit(channel);
    }
    TCPX_RETURN_IF_ERROR(wait_.peer->send_handles(handles, wait_.deadline));
    TCPX_ASSIGN_OR_RETURN(auto answers, accept_all(listeners, storages, wait_, all_must_stand()));
    TCPX_ASSIGN_OR_RETURN(const auto theirs, wait_.peer->receive_parameters(wait_.deadline));
    TCPX_ASSIGN_OR_RETURN(const Mask made, channels_in(theirs, "made", possible));
    TCPX_ASSIGN_OR_RETURN(const Mask again, channels_in(theirs, "again", possible & ~made));

    Mask accepted = 0, failed = 0;
    for (size_t k = 0; k < round_.size(); ++k) {
      const size_t channel = round_[k];
      if (!has(made, channel)) {
        if (!has(again, channel)) {
          const std::string why = reason_in(theirs, channel);
          this->failed(channel, why, Status(Code::kPeerGone, kPair, why));
        }
        continue;
      }
      // The peer's connect has been answered: its accept is a matter of a moment.
      const bool late = answers[k].status().code() == Code::kTimeout;
      HandshakeWait rest = wait_;
      rest.deadline = Deadline::after((wait_.deadline.at() - Clock::steady().now()) / 2);
      CommAnswer answer = late ? listeners[k].accept(*storages[k], rest) : std::move(answers[k]);
      if (answer.is_ok()) {
        accepted |= bit(channel);
        stands(channel, {.device = devices_[channel],
                         .nic = nics_[channel],
                         .comm = std::move(*answer),
                         .device_handle = std::move(storages[k])});
      } else {
        failed |= bit(channel);
        this->failed(channel, concat("at ", nics_[channel], ": ", words_of(answer.status())), answer.status());
      }
    }
    Parameters said = {{"made", std::to_string(accepted)}};
    add_reasons(failed, said);
    TCPX_RETURN_IF_ERROR(wait_.peer->send_parameters(said, wait_.deadline));
    std::erase_if(round_, [&](size_t channel) { return !has(again, channel); });
    return Status::ok();
  }

  const HandshakeWait& wait_;
  std::vector<size_t> round_;  // channels
};

}  // namespace

Result<std::vector<std::string>> nics_of(NetPlugin& plugin, const ChannelDevices& devices) {
  std::vector<std::string> nics;
  for (const int dev : devices) {
    TCPX_ASSIGN_OR_RETURN(auto properties, plugin.properties(dev));
    nics.push_back(std::move(properties.name));
  }
  return nics;
}

Result<std::vector<PairedChannel>> connect_channels(NetPlugin& plugin, const ChannelDevices& devices,
                                                    const std::vector<std::string>& peer_nics, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto nics, nics_of(plugin, devices));
  return ConnectingEnd(plugin, devices, std::move(nics), peer_nics, wait).run();
}

Result<std::vector<PairedChannel>> accept_channels(NetPlugin& plugin, const ChannelDevices& devices, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(auto nics, nics_of(plugin, devices));
  return AcceptingEnd(plugin, devices, std::move(nics), wait).run();
}

}  // namespace tcpx
