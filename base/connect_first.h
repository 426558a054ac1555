// One connection to a peer that may be at several addresses, as RFC 8305 ("Happy Eyeballs") makes it: an address that leads nowhere
// costs a quarter of a second, not a timeout, and the next connection nothing: what was silent is remembered (base/way_memory.h).
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

/// The next address is tried so long after the one before, or at once when that one fails.
inline constexpr Duration kConnectDelay = std::chrono::milliseconds(250);
/// More addresses than that are not tried.
inline constexpr size_t kMostAddresses = 32;

/// Pure. IPv4 and IPv6 in turns, beginning with the family of the first; within a family the order stays.
std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses);

/// What ends with a refusal. A network that is away for a moment and used-up local ports are waited for by all but kGiveUp.
enum class WhenRefused {
  kGiveUp,       ///< each address is tried once
  kSoonGivesUp,  ///< kRefusalPatience after the first: the path may flap, but more often a listener that was there has gone for good
  kTryAgain,     ///< until the deadline: the listener may come later
};
inline constexpr Duration kRefusalPatience = std::chrono::seconds(1);

/// The attempts to connect to one peer, in steps for who waits for other things, too. One thread at a time; destruction gives up.
class ConnectRace {
 public:
  struct Target {
    SocketAddress address;
    std::optional<SocketAddress> source = {};  ///< the local address to bind
    std::string device = {};                   ///< as begin_connect
  };
  /// `targets` are tried in their order, but those that are known to lead nowhere at last. `memory` outlives the race.
  ConnectRace(const std::vector<Target>& targets, WhenRefused when_refused, WayMemory& memory = WayMemory::of_process());

  /// Never waits. @return the first connection that is made, the others are closed; empty: not yet; else `trouble`: no target is left.
  /// Any answer but "not yet" is final. A connection with itself, which a port of the ephemeral range allows, counts as refused.
  Result<UniqueFd> advance();
  /// Adds what the next step waits for. @return when it is due, `until` at the latest
  Deadline wait_on(std::vector<pollfd>& entries, Deadline until) const;
  /// What became of all, with the code of the one that says most; ok: no attempt has failed.
  Status trouble() const;
  /// "connect to " the addresses.
  std::string operation() const;

 private:
  struct Candidate {
    Target target;
    TimePoint next;  // without a socket: when to try; with one: when to give this attempt up
    UniqueFd socket = {};
    Duration pause = {};
    Status last = {};  // of the attempts before
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

/// Tries the addresses, interleaved, until one is connected.
/// @param stop ends the wait early with kCancelled; may be null
/// @param memory as ConnectRace
/// @return kTimeout at the deadline, or kExhausted when what is used up has not come back until then; before it kPeerGone when all have
/// refused or are unreachable, kExhausted, kSystem; with several addresses the detail says what became of each
Result<UniqueFd> connect_first(const std::vector<SocketAddress>& addresses, WhenRefused when_refused, Deadline deadline,
                               const std::atomic<bool>* stop = nullptr, WayMemory& memory = WayMemory::of_process());

}  // namespace tcpx
