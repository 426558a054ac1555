// The network interface (NIC) of a data socket: the one that it should use, and the one that it does.
//
// The kernel routes by the target alone. Of two NICs in one subnet it takes one for all, whichever address a socket has, unless the
// socket is bound to its NIC. A bound socket has drawbacks: it does not hear what arrives by another NIC, reaches no other address of
// its own host, and waits in vain where its NIC leads to no target. So only those are bound that would leave by another NIC although
// theirs leads to the target. And where nobody has asked for that NIC, only if no other one answers for its addresses: else the peer may
// find them at the other one some day, when its table of neighbours is made anew, and the connection would end.
#pragma once

#include <string>

#include "base/route.h"
#include "base/socket_address.h"

namespace tcpx::soft {

/// `nic` when a socket from `source` to `target` must be bound to it in order to use it; "" when not, and when the kernel does not
/// tell.
std::string nic_to_bind(const std::string& nic, const SocketAddress& target, const SocketAddress& source);

/// No other NIC of this host answers peers that look for an IPv4 address of this one: arp_ignore. Of IPv6 addresses none does.
bool answers_alone(const std::string& nic);

/// The NIC by which a connected socket sends; "" when the kernel does not tell. What stays in this host goes by "lo".
std::string nic_of_sender(int fd);
/// The NIC by which an accepted socket's connection came in; likewise.
std::string nic_of_receiver(int fd);

}  // namespace tcpx::soft
