// The sockets that GPUDirect-TCPX has opened for one connection, found by the addresses in its handle: nothing else identifies
// them, and one handle leads to one connection (3).
//
// They are needed when a set-up is abandoned: its thread inside the plugin waits in accept(2) or recv(2) without a deadline,
// and only shutting its sockets down ends it. They are also needed when a set-up has failed: the plugin forgets the sockets
// opened so far and leaves them open.
#pragma once

#include <cstdint>
#include <vector>

#include "tcpx/types.h"

namespace tcpx {

/// A descriptor of this process, and the socket that it was when found: the number alone may soon be reused.
struct VendorSocket {
  int fd = -1;
  uint64_t inode = 0;
  bool is_data = false;  ///< not the control connection
};

/// Sockets accepted with `handle` at the listening end.
std::vector<VendorSocket> accepted_sockets(const Handle& handle);
/// Sockets at the end that connects with `handle`, except those that still wait for an answer or were reset by the other end.
std::vector<VendorSocket> connected_sockets(const Handle& handle);

/// Wakes threads that wait on them. They stay open.
void shut_down(const std::vector<VendorSocket>& sockets);
/// Wakes threads that wait for clients of `handle`, or on accepted ones. The listening sockets stay open but release their
/// ports, so late clients are refused. Of the accepted ones only the reading side is shut down: shut down both ways they would
/// lose their peer as soon as it has closed, too, and then closeRecv must not be called (38).
/// @return the accepted sockets
std::vector<VendorSocket> shut_down_listener(const Handle& handle);

/// Whether the data sockets among them still have a peer, which closeRecv asserts (38).
bool have_peers(const std::vector<VendorSocket>& sockets);

/// Call only when the plugin no longer knows them: the set-up has failed, and its thread has ended.
void close_forgotten(const std::vector<VendorSocket>& sockets);

}  // namespace tcpx
