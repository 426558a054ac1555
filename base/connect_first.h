// One connection to a peer that may be at several addresses, as RFC 8305 ("Happy Eyeballs") makes it: an address that leads nowhere
// costs a quarter of a second, not a timeout.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// The next address is tried so long after the one before, or at once when that one fails.
inline constexpr Duration kConnectDelay = std::chrono::milliseconds(250);
/// More addresses than that are not tried.
inline constexpr size_t kMostAddresses = 32;

/// Pure. IPv4 and IPv6 in turns, beginning with the family of the first; within a family the order stays.
std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses);

enum class WhenRefused {
  kGiveUp,    ///< each address is tried once
  kTryAgain,  ///< until the deadline: the listener may come later
};

/// Tries the addresses, interleaved, and returns the first connection that is made; the others are closed. A connection with itself,
/// which a port of the ephemeral range allows, counts as refused.
/// @param stop ends the wait early with kCancelled; may be null
/// @return kTimeout at the deadline, kPeerGone when all have refused or are unreachable, kExhausted, kSystem; with several addresses
/// the detail says what became of each
Result<UniqueFd> connect_first(const std::vector<SocketAddress>& addresses, WhenRefused when_refused, Deadline deadline,
                               const std::atomic<bool>* stop = nullptr);

}  // namespace tcpx
