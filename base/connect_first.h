// Makes one connection to a peer that may have several addresses, as in RFC 8305 ("Happy Eyeballs"). An address that leads
// nowhere costs a quarter of a second and not a whole timeout. It costs later connections nothing, because silent addresses are
// remembered (base/way_memory.h).
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "base/way_memory.h"
#include "tcpx/status.h"

namespace tcpx {

/// Delay between trying one address and the next. When an attempt fails, the next address is tried at once.
inline constexpr Duration kConnectDelay = std::chrono::milliseconds(250);
/// Most addresses that are tried.
inline constexpr size_t kMostAddresses = 32;

/// Returns IPv4 and IPv6 addresses in turns, beginning with the family of the first; within a family the order stays. Pure.
std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses);

/// Reaction to an address that refuses. All but kGiveUp also wait when the network is down or no local port is free.
enum class WhenRefused {
  kGiveUp,       ///< tries each address once
  kSoonGivesUp,  ///< tries for kRefusalPatience after the first refusal: the path may flap, but the listener may be gone for good
  kTryAgain,     ///< tries until the deadline: the listener may start later
};
inline constexpr Duration kRefusalPatience = std::chrono::seconds(1);

/// The attempts to connect to one peer, in steps, for callers that wait for other things at the same time. One thread at a time.
/// Destruction gives up.
class ConnectRace {
 public:
  struct Target {
    SocketAddress address;
    std::optional<SocketAddress> source = {};  ///< the local address to bind
    std::string device = {};                   ///< network interface to bind, as for begin_connect
  };
  /// Tries `targets` in their order, but those that are known to lead nowhere last. `memory` must outlive the race.
  ConnectRace(const std::vector<Target>& targets, WhenRefused when_refused, WayMemory& memory = WayMemory::of_process());

  /// Does the next step. Never waits. Any answer but "not yet" is final.
  /// @return the first connection that is made, and the others are closed; empty: not yet; `trouble` when no target is left. A
  /// connection of a socket with itself, which can happen on a port of the ephemeral range, counts as refused.
  Result<UniqueFd> advance();
  /// Adds to `entries` what the next step waits for. @return when the next step is due, at the latest `until`
  Deadline wait_on(std::vector<pollfd>& entries, Deadline until) const;
  /// The outcome of all attempts, with the code of the most telling one; ok: no attempt has failed.
  Status trouble() const;
  /// "connect to ", followed by the addresses.
  std::string operation() const;

 private:
  struct Candidate {
    Target target;
    TimePoint next;  // without a socket: when to try; with one: when to give up this attempt
    UniqueFd socket = {};
    Duration pause = {};
    Status last = {};  // error of the latest attempt that failed
    std::optional<TimePoint> refused_since = {};
    bool tried = false;
    bool hopeless = false;
  };
  Result<UniqueFd> look_at(Candidate& candidate);
  void failed(Candidate& candidate, Status why);
  void remember(const Candidate& winner);
  void try_next_at(TimePoint time);

  WhenRefused when_refused_;
  WayMemory& memory_;
  std::vector<Candidate> candidates_;
};

/// Tries the addresses, families interleaved, until one is connected.
/// @param stop ends the wait early with kCancelled; may be null
/// @param memory as for ConnectRace
/// @return kTimeout at the deadline, or kExhausted when a resource that was used up is still missing then. Before the deadline:
/// kPeerGone when all addresses have refused or are unreachable; kExhausted; kSystem. With several addresses the detail says what
/// happened to each.
Result<UniqueFd> connect_first(const std::vector<SocketAddress>& addresses, WhenRefused when_refused, Deadline deadline,
                               const std::atomic<bool>* stop = nullptr, WayMemory& memory = WayMemory::of_process());

}  // namespace tcpx
