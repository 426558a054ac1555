#include "transfer/pairing_end.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr size_t kMaxReasonBytes = 400;  // for each channel, in a message to the peer

std::string reason_of(size_t channel) {
  return concat("why ", channel);
}

}  // namespace

Result<Mask> channels_in(const Parameters& theirs, const std::string& name, Mask possible) {
  const auto found = theirs.find(name);
  const std::string text = found != theirs.end() ? found->second : "";
  Mask mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask);
  if (error == std::errc() && end == text.data() + text.size() && (mask & ~possible) == 0) return mask;
  return Status(Code::kProtocol, kPair,
                concat("the peer's \"", name, "\" is \"", printable(std::as_bytes(std::span(text)), 32), '"'));
}

std::string reason_in(const Parameters& theirs, size_t channel) {
  const auto found = theirs.find(reason_of(channel));
  if (found == theirs.end()) return "the peer gives no reason";
  return printable(std::as_bytes(std::span(found->second)), kMaxReasonBytes);
}

std::string words_of(const Status& status) {
  return status.to_string().substr(name_of(status.code()).size() + 2);
}

Status PairingEnd::take_handles() {
  return Status(Code::kProtocol, kPair, "the peer sends handles that this end has not asked for");
}

Status PairingEnd::hear(Parameters said) {
  if (!listens()) return Status(Code::kProtocol, kPair, "the peer reports its channels twice");
  heard_ = std::move(said);
  return Status::ok();
}

bool PairingEnd::any_stands() const {
  return std::any_of(made_.begin(), made_.end(), [](const auto& channel) { return channel.has_value(); });
}

void PairingEnd::failed(size_t channel, const std::string& why, const Status& status) {
  why_[channel] += concat(why_[channel].empty() ? "" : "; ", why);
  if (first_.is_ok()) first_ = status;
}

void PairingEnd::add_reasons(Mask channels, Parameters& said) const {
  for (size_t i = 0; i < size(); ++i) {
    if (has(channels, i)) said.emplace(reason_of(i), why_[i].substr(0, kMaxReasonBytes));
  }
}

Result<std::vector<PairedChannel>> PairingEnd::take_standing(const char* to, const std::vector<std::string>& nics) {
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

}  // namespace tcpx
