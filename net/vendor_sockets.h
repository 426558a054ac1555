// The sockets that GPUDirect-TCPX has made for one connection, found by the addresses in its handle: it gives no other name for
// them, and one handle leads to one connection (3).
//
// They are wanted when a set-up is given up. Its thread inside the plugin waits in accept(2) or recv(2) without a deadline, and
// shutting its sockets down is what ends it. And when a set-up has failed: the plugin forgets the sockets that it had made by
// then and leaves them open.
#pragma once

#include <cstdint>
#include <vector>

#include "tcpx/types.h"

namespace tcpx {

/// A descriptor of this process, and which socket it was when it was found: a number alone may soon be another's.
struct VendorSocket {
  int fd = -1;
  uint64_t inode = 0;
};

/// Those accepted with `handle` at the end that listens.
std::vector<VendorSocket> accepted_sockets(const Handle& handle);
/// Those at the end that connects with `handle`; not those that are waiting to be answered, or that the other end has reset.
std::vector<VendorSocket> connected_sockets(const Handle& handle);

/// Wakes whoever waits on them. They stay open.
void shut_down(const std::vector<VendorSocket>& sockets);
/// Wakes whoever waits for clients of `handle`, or for those that have come. The listening sockets stay open but give their ports
/// back, so late clients are refused.
/// @return what has been accepted
std::vector<VendorSocket> shut_down_listener(const Handle& handle);

/// Only when the plugin knows them no more: the set-up has failed, and its thread has ended.
void close_forgotten(const std::vector<VendorSocket>& sockets);

}  // namespace tcpx
