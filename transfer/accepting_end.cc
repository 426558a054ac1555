#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "transfer/pairing_end.h"

namespace tcpx {
namespace {

// One round for each device, and one more in case the network was down for a while.
constexpr size_t kMaxRounds = kMaxChannels + 1;

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

  // An accept may complete a moment after its connect.
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
  std::vector<size_t> round_;  // the channels of this round; the pairing is over when there are none
  std::optional<AcceptingComms> comms_;
  std::optional<Mask> made_there_;  // the channels that the peer has made; set together with `again_`
  Mask again_ = 0, accepted_ = 0;
  std::optional<Deadline> late_;  // how long to wait for accepts of channels that the peer has made
};

}  // namespace

std::unique_ptr<PairingEnd> accepting_end(NetPlugin& plugin, const ChannelDevices& devices, std::vector<std::string> nics,
                                          AcceptingHalf half, const HandshakeWait& wait) {
  return std::make_unique<AcceptingEnd>(plugin, devices, std::move(nics), std::move(half), wait);
}

}  // namespace tcpx
