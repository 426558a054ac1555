// Unix sockets between two processes of one host, for what TCP cannot do: say who the other one is, and pass descriptors.
//
// Names are abstract ones (unix(7)): they leave no file behind, and are those of the network namespace. Nothing here waits: a
// connect ends at once, and what one end has sent is there for the other when the call returns.
//
// Sockets made here are streams, non-blocking and close-on-exec, and a forked child does not hold them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// @param name at most 100 bytes; whoever knows it may connect. @return kInvalidArgument; kSystem with the errno
Result<ForeignFd> listen_unix(std::string_view name, int backlog);
/// Takes a pending connection. Without one the result is empty and errno is that of accept(2).
ForeignFd accept_unix(int listener);
/// @return kPeerGone: nobody listens there, at least not in this network namespace; kExhausted: too many wait to be let in;
/// kInvalidArgument; kSystem
Result<ForeignFd> connect_unix(std::string_view name);

/// Both ends of one that has no name.
struct UnixPair {
  ForeignFd a, b;
};
Result<UnixPair> make_unix_pair();

/// The process at the other end when the connection was made, as the kernel knows it.
struct PeerProcess {
  pid_t pid = 0;  ///< in this pid namespace; 0: not visible from here
  uid_t uid = 0;  ///< effective one
};
Result<PeerProcess> peer_process(int socket);
/// The descriptor may be of any kind: the kernel alone is asked, not the file behind it.
bool is_unix_socket(int descriptor);

/// Sends all of `data`, at least one byte, and a copy of the descriptor with it.
/// @return kExhausted: no room for it now, nothing was sent; kPeerGone; kSystem
Status send_descriptor(int socket, std::span<const std::byte> data, int descriptor);
struct ReceivedBytes {
  size_t bytes = 0;      ///< none: nothing has come
  ForeignFd descriptor;  ///< that came with them, close-on-exec; empty: none, or several, which are closed
  bool lost = false;     ///< one came that this process could not take, having too many open
};
/// Takes what has come, as far as there is room. Also to be used where no descriptor is expected: one for which there is no room is
/// closed by the kernel, within the call that reads. Bytes in front of a descriptor come by themselves. @return kPeerGone at the end
Result<ReceivedBytes> receive_descriptor(int socket, std::span<std::byte> room);

}  // namespace tcpx
