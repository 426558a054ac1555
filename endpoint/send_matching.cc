#include "endpoint/send_matching.h"

#include <utility>

namespace tcpx {
namespace {

Status against_protocol(std::string_view why) {
  return Status(Code::kProtocol, "match a send", std::string(why));
}

}  // namespace

SendMatching::Met SendMatching::post(uint64_t sequence) {
  Met met{.cancelled = cancelled_.erase(sequence), .arrival = {}};
  const auto arrived = arrivals_.find(sequence);
  if (arrived != arrivals_.end()) {
    met.arrival = std::move(arrived->second);
    arrivals_.erase(arrived);
  }
  if (met.cancelled || met.arrival) {
    receives_.erase(sequence);
  } else if (const auto receive = receives_.find(sequence); receive != receives_.end()) {
    receive->second.posted = true;
  }
  return met;
}

std::optional<Arrival> SendMatching::give_up(uint64_t sequence) {
  receives_.erase(sequence);
  if (cancelled_.erase(sequence)) return std::nullopt;
  const auto arrived = arrivals_.find(sequence);
  if (arrived == arrivals_.end()) {
    given_up_.insert(sequence);
    return std::nullopt;
  }
  std::optional<Arrival> arrival = std::move(arrived->second);
  arrivals_.erase(arrived);
  return arrival;
}

SendMatching::Meeting SendMatching::meet(uint64_t sequence) {
  if (arrivals_.contains(sequence) || cancelled_.contains(sequence)) return {Meets::kAnotherSend};
  if (given_up_.erase(sequence)) return {Meets::kGivenUpReceive};
  const auto receive = receives_.find(sequence);
  if (receive == receives_.end() || !receive->second.posted) return {Meets::kNobody};
  const uint64_t number = receive->second.number;
  receives_.erase(receive);
  return {Meets::kReceive, number};
}

Result<std::optional<Charge>> SendMatching::cancel_announced(uint64_t sequence, uint64_t number) {
  const auto arrived = arrivals_.find(sequence);
  if (arrived == arrivals_.end()) return std::optional<Charge>();
  if (arrived->second.number != number || arrived->second.with_data) return against_protocol("no such send");
  const std::optional<Charge> charge = arrived->second.charge;
  arrivals_.erase(arrived);
  cancelled_.insert(sequence);
  return charge;
}

Result<std::optional<uint64_t>> SendMatching::cancel_unannounced(uint64_t sequence) {
  if (has_come(sequence)) return against_protocol("the send has come before");
  if (given_up_.erase(sequence)) return std::optional<uint64_t>();
  const auto receive = receives_.find(sequence);
  if (receive != receives_.end()) {
    const std::optional<uint64_t> number = receive->second.number;
    receives_.erase(receive);
    return number;
  }
  if (cancelled_.intervals() >= kMaxGivenUpSends) return against_protocol("too many gaps between sends that were given up");
  cancelled_.insert(sequence);
  return std::optional<uint64_t>();
}

void SendMatching::end() {
  receives_.clear();
  given_up_.clear();
  cancelled_.clear();
  std::erase_if(arrivals_, [](const auto& entry) { return !entry.second.with_data; });
}

}  // namespace tcpx
