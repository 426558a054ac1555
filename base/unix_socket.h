// Unix sockets between two processes of one host, for what TCP cannot do: identify the other process, and pass descriptors.
//
// Names are abstract (unix(7)): they leave no file behind, and belong to the network namespace. A name that begins with a slash is
// the path of a file, which every network namespace reaches that has the directory, and which the one that listens removes. Nothing
// here waits: a connect ends at once, and what one end has sent can be read at the other end as soon as the call returns.
//
// Sockets made here are streams unless asked for otherwise, non-blocking and close-on-exec, and a forked child does not hold them.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Listens under a name. @param name at most 100 bytes; any process that knows it may connect
/// @param type SOCK_STREAM, or SOCK_SEQPACKET, which keeps the boundaries of messages
/// @return kInvalidArgument; kSystem with the errno
Result<ForeignFd> listen_unix(std::string_view name, int backlog, int type = SOCK_STREAM);
/// Takes a pending connection. Without one the result is empty and errno is that of accept(2).
ForeignFd accept_unix(int listener);
/// Connects to a name. @return kPeerGone: nobody listens there, at least not in this network namespace or directory; kExhausted:
/// the listener's backlog is full; kInvalidArgument; kSystem
Result<ForeignFd> connect_unix(std::string_view name, int type = SOCK_STREAM);

/// Both ends of a connection without a name.
struct UnixPair {
  ForeignFd a, b;
};
Result<UnixPair> make_unix_pair();

/// The process that was at the other end when the connection was made, as the kernel reports it.
struct PeerProcess {
  pid_t pid = 0;  ///< in this pid namespace; 0: not visible from here
  uid_t uid = 0;  ///< effective user id
};
Result<PeerProcess> peer_process(int socket);
/// Asks the kernel for a pidfd of that process, which is readable once it has ended, also where its number is not visible.
/// @return kUnsupported: the kernel tells no pidfd (it takes Linux 6.5), or that process has ended; kExhausted
Result<UniqueFd> peer_pidfd(int socket);
/// True for a Unix socket. The descriptor may be of any kind: only the kernel is asked, not the file behind it.
bool is_unix_socket(int descriptor);

/// Sends all of `data`, at least one byte, and a copy of the descriptor with it.
/// @return kExhausted: no room for it now, nothing was sent; kPeerGone; kSystem
Status send_descriptor(int socket, std::span<const std::byte> data, int descriptor);
struct ReceivedBytes {
  size_t bytes = 0;      ///< 0: nothing has come
  ForeignFd descriptor;  ///< the one that came with the bytes, close-on-exec; empty: none came, or several, which are closed
  bool lost = false;     ///< a descriptor came that this process could not take, because it has too many open
};
/// Reads what has come, up to the size of `room`. Use it also where no descriptor is expected: a read without room for a
/// descriptor makes the kernel close it within that call. Bytes before a descriptor are returned by themselves. @return kPeerGone
/// at the end
Result<ReceivedBytes> receive_descriptor(int socket, std::span<std::byte> room);

}  // namespace tcpx
