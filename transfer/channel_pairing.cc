#include "transfer/channel_pairing.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "transfer/pairing_end.h"

namespace tcpx {

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
                                   std::optional<AcceptingHalf> accepting, PairingOrder order, const HandshakeWait& wait) {
  TCPX_ASSIGN_OR_RETURN(const auto nics, nics_of(plugin, devices));
  std::unique_ptr<PairingEnd> connects, accepts;
  if (connecting) connects = connecting_end(plugin, devices, nics, std::move(*connecting), wait);
  if (accepting) accepts = accepting_end(plugin, devices, nics, std::move(*accepting), wait);
  PairedHalves paired;
  struct Pending {
    PairingEnd* end;
    std::vector<PairedChannel>* standing;
  };
  std::vector<Pending> pending;  // the halves that are not over
  if (connects) pending.push_back({connects.get(), &paired.sending});
  if (accepts) pending.insert(order.accepts_first ? pending.begin() : pending.end(), {accepts.get(), &paired.receiving});

  // Messages that come when no half expects one any more belong to later steps, and stay in the channel.
  const auto hear = [&]() -> Status {
    const auto listens = [](const Pending& half) { return half.end->listens(); };
    while (std::any_of(pending.begin(), pending.end(), listens) && wait.peer->next_message()) {
      if (*wait.peer->next_message() == FrameType::kHandles && connects) {
        if (connects->round_is_over()) return Status::ok();  // the handles belong to the next round
        TCPX_RETURN_IF_ERROR(connects->take_handles());
        continue;
      }
      TCPX_ASSIGN_OR_RETURN(auto said, wait.peer->receive_parameters(wait.deadline));
      PairingEnd* end = said.contains(kAccepted) ? connects.get() : accepts.get();
      if (end == nullptr) return Status(Code::kProtocol, kPair, "the peer reports channels of the other direction");
      TCPX_RETURN_IF_ERROR(end->hear(std::move(said)));
    }
    return Status::ok();
  };
  const auto done = until_answer(wait, kPair, [&]() -> Result<std::optional<bool>> {
    TCPX_RETURN_IF_ERROR(hear());
    for (auto half = pending.begin(); half != pending.end();) {
      TCPX_ASSIGN_OR_RETURN(const bool over, half->end->advance());
      if (over) {
        TCPX_ASSIGN_OR_RETURN(*half->standing, half->end->take());
        half = pending.erase(half);
      } else if (order.in_turn || plugin.steers_flows()) {
        break;
      } else {
        ++half;
      }
    }
    return pending.empty() ? std::optional(true) : std::nullopt;
  });
  if (!done.is_ok()) return done.status();
  return paired;
}

}  // namespace tcpx
