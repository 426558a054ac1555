#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "transfer/pairing_end.h"

namespace tcpx {
namespace {

// Longest shares of the time. kLongestShare applies while no channel is connected: long enough for the kernel to give up on a
// neighbour that does not answer. kLongestBeside applies when other channels are connected: long enough to retransmit a lost
// packet.
constexpr Duration kLongestShare = std::chrono::milliseconds(3500), kLongestBeside = std::chrono::milliseconds(2500);

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

  // Takes the handles of every round but the first.
  Status take_handles() override {
    if (round_.empty() || said_ || !handles_.empty()) return PairingEnd::take_handles();
    TCPX_ASSIGN_OR_RETURN(handles_, receive_handles(*wait_.peer, round_.size(), wait_.deadline));
    return Status::ok();
  }

 private:
  /// A channel, and the index in `devices_` of the device from which it is tried.
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

  // Sends this end's message of the round. When no channel is connected and nothing is left to try, it empties the round instead;
  // the peer is then told the error.
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
    // A network that was down may be up again.
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

  // Finds what to try if all of this round fails: for each channel another device of this end. That device must not have been
  // tried yet with the peer's NIC of the channel, neither by this channel nor by another.
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

  // Only the last round of a pairing without a connected channel may use all the time that is left; any other round has a share.
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
  std::vector<Handle> handles_;                  // of this round; empty: they have not come yet
  std::vector<size_t> places_;                   // for each distinct device, its first index in `devices_`
  std::set<std::pair<int, std::string>> tried_;  // pairs of this end's device and the peer's NIC
  size_t rounds_ = 0;
  std::vector<Try> round_, next_;  // of this round and the next; the pairing is over when this round has none
  bool more_ = false;              // something is left to try if this round fails
  std::optional<ConnectingComms> comms_;
  Mask made_now_ = 0;
  std::optional<Deadline> beside_;  // limit for trying other devices; set once a channel is connected
  std::vector<Try> hasty_;          // given up early in the first round, so that others could be tried
};

}  // namespace

std::unique_ptr<PairingEnd> connecting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                           ConnectingHalf half, const HandshakeWait& wait) {
  return std::make_unique<ConnectingEnd>(plugin, devices, std::move(nics), std::move(half), wait);
}

}  // namespace tcpx
