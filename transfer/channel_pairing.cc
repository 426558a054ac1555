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

// What the ends say: channels that the connecting end has made, or tries anew, and those that the accepting end has made.
constexpr const char *kMade = "made", *kAgain = "again", *kAccepted = "accepted";

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

  /// The peer's word of this round, or its handles, has not come yet.
  bool listens() const { return listens_ && !heard_; }
  Status hear(Parameters said) {
    if (!listens()) return Status(Code::kProtocol, kPair, "the peer says twice which channels stand");
    heard_ = std::move(said);
    return Status::ok();
  }

 protected:
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
  Result<std::vector<PairedChannel>> take_standing(const char* to, const std::vector<std::string>& nics) {
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
      log(LogLevel::kWarning, "connection to ", wait_.peer->peer().to_string(), ": channel ", i, " is left out: no way ", to,
          nics[i], ": ", why_[i]);
    }
    return standing;
  }

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

/// The end that connects, and so decides what is tried.
class ConnectingEnd : public PairingEnd {
 public:
  ConnectingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics, ConnectingHalf half,
                const HandshakeWait& wait)
      : PairingEnd(plugin, devices, std::move(nics), wait),
        peer_nics_(std::move(half.peer_nics)),
        handles_(std::move(half.handles)) {
    for (size_t i = 0; i < size(); ++i) {
      if (std::find(devices.begin(), devices.end(), devices[i]) == devices.begin() + static_cast<ptrdiff_t>(i))
        places_.push_back(i);
      round_.push_back({.channel = i, .place = i});
      tried_.emplace(devices[i], peer_nics_[i]);
    }
  }

  Result<std::vector<PairedChannel>> take() override { return take_standing("to its ", peer_nics_); }

  Result<bool> advance() override {
    if (!said_) {
      if (handles_.empty()) return false;
      if (!comms_) begin_round();
      TCPX_ASSIGN_OR_RETURN(const bool over, comms_->advance());
      if (!over) return false;
      TCPX_RETURN_IF_ERROR(say());
      if (round_.empty()) return true;
    }
    if (!heard_) return false;
    TCPX_RETURN_IF_ERROR(end_round());
    listens_ = !round_.empty();
    return round_.empty();
  }

  /// Those of a round that is not the first.
  Status take_handles() {
    if (round_.empty() || said_ || !handles_.empty())
      return Status(Code::kProtocol, kPair, "the peer sends handles that nobody has asked for");
    TCPX_ASSIGN_OR_RETURN(handles_, receive_handles(*wait_.peer, round_.size(), wait_.deadline));
    return Status::ok();
  }

 private:
  /// A channel, and the place of the device in `devices_` that it is tried from.
  struct Try {
    size_t channel, place;
  };

  void begin_round() {
    ++rounds_;
    next_ = next_tries();
    ChannelDevices from;
    for (const Try& one : round_) from.push_back(devices_[one.place]);
    more_ = !next_.empty() || (rounds_ > 1 && !hasty_.empty());
    comms_.emplace(plugin_, from, handles_, wait_.deadline, patience_of(rounds_, more_));
  }

  // Leaves no round where nothing stands and there is nothing left to try: the peer is told the error instead.
  Status say() {
    Mask failed = 0;
    made_now_ = 0;
    for (size_t k = 0; k < round_.size(); ++k) {
      const Try& one = round_[k];
      const CommAnswer& answer = *comms_->answer(k);
      if (answer.is_ok()) {
        made_now_ |= bit(one.channel);
        continue;
      }
      failed |= bit(one.channel);
      const Status& why = answer.status();
      this->failed(one.channel, concat("from ", nics_[one.place], ": ", words_of(why)), why);
      if (rounds_ == 1 && more_ && why.code() != Code::kProtocol) hasty_.push_back(one);
    }
    std::erase_if(next_, [&](const Try& one) { return !has(failed, one.channel); });
    if (made_now_ != 0 && !beside_)
      beside_ = Deadline::after(std::min(kLongestBeside, (wait_.deadline.at() - Clock::steady().now()) / 4));
    if (beside_ && beside_->expired()) next_.clear();
    for (const Try& one : next_) tried_.emplace(devices_[one.place], peer_nics_[one.channel]);
    // A network that was away may be back.
    if (next_.empty() && made_now_ == 0 && !any_stands()) next_ = std::exchange(hasty_, {});
    if (next_.empty() && made_now_ == 0 && !any_stands()) {
      round_.clear();
      return Status::ok();
    }
    Mask again = 0;
    for (const Try& one : next_) again |= bit(one.channel);
    Parameters said = {{kMade, std::to_string(made_now_)}, {kAgain, std::to_string(again)}};
    add_reasons(failed & ~again, said);
    said_ = true;
    return wait_.peer->send_parameters(said, wait_.deadline);
  }

  Status end_round() {
    Mask of_round = 0;
    for (const Try& one : round_) of_round |= bit(one.channel);
    TCPX_ASSIGN_OR_RETURN(const Mask accepted, channels_in(*heard_, kAccepted, of_round));
    for (size_t k = 0; k < round_.size(); ++k) {
      const Try& one = round_[k];
      if (!has(made_now_, one.channel)) continue;
      if (has(accepted, one.channel)) {
        stands(one.channel,
               {.device = devices_[one.place], .nic = nics_[one.place], .comm = std::move(**comms_->answer(k))});
      } else {
        const std::string why = concat("from ", nics_[one.place], ": the peer: ", reason_in(*heard_, one.channel));
        failed(one.channel, why, Status(Code::kPeerGone, kPair, why));
      }
    }
    round_ = std::exchange(next_, {});
    comms_.reset();
    handles_.clear();
    heard_.reset();
    said_ = false;
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

  const std::vector<std::string> peer_nics_;
  std::vector<Handle> handles_;                  // of this round; none have come yet
  std::vector<size_t> places_;                   // of each device, the first
  std::set<std::pair<int, std::string>> tried_;  // this end's device, the peer's NIC
  size_t rounds_ = 0;
  std::vector<Try> round_, next_;  // over when there are none in this one
  bool more_ = false;              // to try when this round brings nothing
  std::optional<ConnectingComms> comms_;
  Mask made_now_ = 0;
  std::optional<Deadline> beside_;  // of trying other devices, since a channel has stood
  std::vector<Try> hasty_;          // given up in the first round to try others
};

/// The end that accepts, and goes along.
class AcceptingEnd : public PairingEnd {
 public:
  AcceptingEnd(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics, AcceptingHalf half,
               const HandshakeWait& wait)
      : PairingEnd(plugin, devices, std::move(nics), wait) {
    for (size_t i = 0; i < size(); ++i) round_.push_back(i);
    comms_.emplace(std::move(half.listeners), all_must_stand());
  }

  Result<std::vector<PairedChannel>> take() override { return take_standing("from the peer to ", nics_); }

  Result<bool> advance() override {
    TCPX_RETURN_IF_ERROR(comms_->advance());
    if (heard_ && !made_there_) TCPX_RETURN_IF_ERROR(look_at_word());
    if (!said_) {
      if (waits_for_comms()) return false;
      TCPX_RETURN_IF_ERROR(say());
    }
    if (!heard_) return false;
    TCPX_RETURN_IF_ERROR(end_round());
    listens_ = !round_.empty();
    return round_.empty();
  }

 private:
  Status look_at_word() {
    Mask possible = 0;
    for (const size_t channel : round_) possible |= bit(channel);
    TCPX_ASSIGN_OR_RETURN(const Mask made, channels_in(*heard_, kMade, possible));
    TCPX_ASSIGN_OR_RETURN(again_, channels_in(*heard_, kAgain, possible & ~made));
    made_there_ = made;
    late_ = Deadline::after((wait_.deadline.at() - Clock::steady().now()) / 2);
    return Status::ok();
  }

  // Of a connect that has been answered the accept is a matter of a moment.
  bool waits_for_comms() {
    if (comms_->all_answered()) return false;
    if (!made_there_) return true;
    if (late_->expired()) return false;
    for (size_t k = 0; k < round_.size(); ++k) {
      if (has(*made_there_, round_[k]) && !comms_->answer(k)) return true;
    }
    return false;
  }

  Status say() {
    accepted_ = 0;
    Mask failed = 0;
    for (size_t k = 0; k < round_.size(); ++k) {
      const size_t channel = round_[k];
      const auto& answer = comms_->answer(k);
      if (answer && answer->is_ok()) {
        accepted_ |= bit(channel);
      } else if (!made_there_ || has(*made_there_, channel)) {
        const Status why =
            answer ? answer->status() : Status(Code::kTimeout, "accept", "the other end did not come until the deadline");
        this->failed(channel, concat("at ", nics_[channel], ": ", words_of(why)), why);
        failed |= bit(channel);
      }
    }
    Parameters said = {{kAccepted, std::to_string(accepted_)}};
    add_reasons(failed, said);
    said_ = true;
    return wait_.peer->send_parameters(said, wait_.deadline);
  }

  Status end_round() {
    for (size_t k = 0; k < round_.size(); ++k) {
      const size_t channel = round_[k];
      if (!has(*made_there_, channel)) {
        if (has(again_, channel)) continue;
        const std::string why = reason_in(*heard_, channel);
        failed(channel, why, Status(Code::kPeerGone, kPair, why));
      } else if (has(accepted_, channel)) {
        stands(channel, {.device = devices_[channel],
                         .nic = nics_[channel],
                         .comm = std::move(**comms_->answer(k)),
                         .device_handle = comms_->take_device_handle(k)});
      }
    }
    std::erase_if(round_, [&](size_t channel) { return !has(again_, channel); });
    comms_.reset();
    made_there_.reset();
    heard_.reset();
    said_ = false;
    if (round_.empty()) return Status::ok();
    if (++rounds_ > kMaxRounds) return Status(Code::kProtocol, kPair, "the peer tries again and again");
    ChannelDevices at;
    for (const size_t channel : round_) at.push_back(devices_[channel]);
    TCPX_ASSIGN_OR_RETURN(auto listeners, listen_all(plugin_, at));
    const auto handles = handles_of(listeners);
    comms_.emplace(std::move(listeners), all_must_stand());
    return wait_.peer->send_handles(handles, wait_.deadline);
  }

  size_t rounds_ = 1;
  std::vector<size_t> round_;  // channels; over when there are none
  std::optional<AcceptingComms> comms_;
  std::optional<Mask> made_there_;  // as the peer has said, with `again_`
  Mask again_ = 0, accepted_ = 0;
  std::optional<Deadline> late_;    // for accepts of what the peer has made
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

Result<std::vector<Listener>> listen_all(NetPlugin& plugin, std::span<const int> devices) {
  std::vector<Listener> listeners;
  for (const int dev : devices) {
    TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(plugin, dev));
    listeners.push_back(std::move(listener));
  }
  return listeners;
}

std::vector<Handle> handles_of(std::span<const Listener> listeners) {
  std::vector<Handle> handles;
  for (const Listener& listener : listeners) handles.push_back(listener.handle());
  return handles;
}

Result<std::vector<Handle>> receive_handles(BootstrapChannel& peer, size_t count, Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(auto handles, peer.receive_handles(count, deadline));
  if (handles.size() == count) return handles;
  return Status(Code::kProtocol, kPair, concat(handles.size(), " handles for ", count, " channels"));
}

Result<PairedHalves> pair_channels(NetPlugin& plugin, const ChannelDevices& devices, std::optional<ConnectingHalf> connecting,
                                   std::optional<AcceptingHalf> accepting, bool accepts_first, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(const auto nics, nics_of(plugin, devices));
  std::optional<ConnectingEnd> connects;
  std::optional<AcceptingEnd> accepts;
  if (connecting) connects.emplace(plugin, devices, nics, std::move(*connecting), wait);
  if (accepting) accepts.emplace(plugin, devices, nics, std::move(*accepting), wait);
  PairedHalves paired;
  struct Way {
    PairingEnd* end;
    std::vector<PairedChannel>* standing;
  };
  std::vector<Way> ways;  // that are not over
  if (connects) ways.push_back({&*connects, &paired.sending});
  if (accepts) ways.insert(accepts_first ? ways.begin() : ways.end(), {&*accepts, &paired.receiving});

  // What comes when nothing is due any more is for others.
  const auto hear = [&]() -> Status {
    const auto listens = [](const Way& way) { return way.end->listens(); };
    while (std::any_of(ways.begin(), ways.end(), listens) && wait.peer->next_message()) {
      if (*wait.peer->next_message() == FrameType::kHandles && connects) {
        TCPX_RETURN_IF_ERROR(connects->take_handles());
        continue;
      }
      TCPX_ASSIGN_OR_RETURN(auto said, wait.peer->receive_parameters(wait.deadline));
      PairingEnd* end = accepts ? &*accepts : nullptr;
      if (said.contains(kAccepted)) end = connects ? &*connects : nullptr;
      if (end == nullptr) return Status(Code::kProtocol, kPair, "the peer tells of channels of the other direction");
      TCPX_RETURN_IF_ERROR(end->hear(std::move(said)));
    }
    return Status::ok();
  };
  const auto done = until_answer(wait, kPair, [&]() -> Result<std::optional<bool>> {
    TCPX_RETURN_IF_ERROR(hear());
    for (auto way = ways.begin(); way != ways.end();) {
      TCPX_ASSIGN_OR_RETURN(const bool over, way->end->advance());
      if (over) {
        TCPX_ASSIGN_OR_RETURN(*way->standing, way->end->take());
        way = ways.erase(way);
      } else if (plugin.steers_flows()) {
        break;
      } else {
        ++way;
      }
    }
    return ways.empty() ? std::optional(true) : std::nullopt;
  });
  if (!done.is_ok()) return done.status();
  return paired;
}

}  // namespace tcpx
