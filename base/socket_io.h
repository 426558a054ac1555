// Blocking TCP calls with a deadline for every step. They are for set-up traffic (bootstrap, handshakes); payload has its own
// event loop.
//
// All sockets made here are non-blocking and close-on-exec, and belong to the process that created them: a forked child does
// not hold them (base/fork.h). Sends never raise SIGPIPE. A `stop` flag, which may be null, ends a wait early with kCancelled
// "interrupted"; a signal handler may set it.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "base/usable_cores.h"
#include "tcpx/status.h"

namespace tcpx {

/// Status for the errno of a failed system call. @return kExhausted: this process or machine is out of descriptors, memory or
/// buffers; kPeerGone: the other end is gone or unreachable; otherwise kSystem
Status system_error(std::string operation, int error_number);
/// Status for an errno that ends a connection. Here a shortage is kSystem, because kExhausted tells users of a connection to try
/// again.
Status stream_error(std::string operation, int error_number);
/// True when this process or machine is out of a resource. Any other kExhausted says that a queue of this library or the peer is
/// full, or that the peer has reported its own shortage: room may come back soon.
bool is_shortage(const Status& status);

/// Makes a listening socket on `address`. An IPv6 wildcard also takes IPv4. With port 0 it uses any free port that the user has
/// opened (base/port_range.h), or without such a setting one that the kernel picks. An explicit port is used even when it is not
/// one of the opened ports, with a notice in the log.
/// @return kBadConfig when the variables that open ports are malformed; kExhausted when none of the opened ports is free
Result<UniqueFd> listen_tcp(const SocketAddress& address, int backlog);
/// Takes a pending connection. Without one the result is empty and errno is that of accept(2).
UniqueFd accept_tcp(int listener);
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);

/// Connects within the deadline. `source`, when not null, is the local address to bind (its port is ignored).
/// @return kPeerGone when refused or unreachable, kTimeout at the deadline; kExhausted, also when no local port is free.
Result<UniqueFd> connect_tcp(const SocketAddress& address, Deadline deadline, const SocketAddress* source = nullptr,
                             const std::atomic<bool>* stop = nullptr);
/// Connects in two steps: `begin_connect` does not wait; `end_connect` returns the result once the socket is writable.
/// @param device network interface to which the socket is bound, so that no data leaves or arrives over another; "" for none.
/// Linux before 5.7 refuses it to ordinary users (EPERM).
Result<UniqueFd> begin_connect(const SocketAddress& address, const SocketAddress* source = nullptr,
                               const std::string& device = {});
Status end_connect(int fd, const SocketAddress& address);

/// Sends or receives exactly `data.size()` bytes. @return kPeerGone when the connection ends early; kTimeout at the deadline
Status send_all(int fd, std::span<const std::byte> data, Deadline deadline, const std::atomic<bool>* stop = nullptr);
Status recv_all(int fd, std::span<std::byte> data, Deadline deadline);

/// Waits until `fd` has one of `events` (poll(2)) or the deadline passes.
Status wait_for(int fd, short events, Deadline deadline, const std::atomic<bool>* stop = nullptr);

/// Interval at which waits check `stop` again, because setting the flag wakes no thread.
inline constexpr Duration kLookAtStop = std::chrono::milliseconds(50);

/// Makes a TCP socket send what it is given at once. Within a host, where nothing is lost, that is on few cores also not to pace: bbr
/// waits for timers there (1 MiB 245 us, without them 200), and gives way to reno, which every kernel has. (On 16 cores streams of eight
/// sockets gain 15 % by that, but 1 MiB alone takes 90 us and not 77.)
Status send_without_delay(int fd, bool few_cores = cores_are_few());
/// Makes the socket accept no more data once it holds `bytes` unsent bytes (TCP_NOTSENT_LOWAT), however large its buffer is.
Status limit_unsent(int fd, int bytes);

/// Acknowledges what has been read without the delay that TCP is allowed.
void acknowledge_now(int fd);
/// Ends a TCP connection at once: what the peer has not got yet is not sent.
void reset_connection(UniqueFd fd);

/// Smoothed round-trip time of a connected TCP socket, as the kernel has measured it so far; zero when it is unknown.
Duration round_trip_of(int fd);
/// Bytes that the peer of a connected TCP socket may send ahead of what has been read, at most, as the kernel has it now; 0: unknown.
uint32_t receive_window(int fd);
/// Has the window of a connected TCP socket grow up to `bytes` as they come, even before they are read, and beyond as the kernel sees fit.
/// Else it begins with half of the middle number of tcp_rmem, and doubles at most once a round trip. For a peer that may be trusted with
/// so much of the kernel's memory. Only a wish.
void widen_receive_window(int fd, uint32_t bytes);

/// TCP keep-alive: the kernel probes the host of an idle peer after `idle` of silence, then every `interval`. After `probes`
/// unanswered probes the connection ends with ETIMEDOUT.
struct KeepAlive {
  std::chrono::seconds idle;
  std::chrono::seconds interval;
  int probes;
};
/// Chooses the keep-alive times for a connection. Pure. The connection survives when the path is silent for `silence` (at most
/// two minutes), whenever that begins, and ends at most 12 s after that time. TCP_USER_TIMEOUT is not suitable: it also ends a
/// connection whose peer answers but takes no data.
KeepAlive keep_alive_for(Duration silence);
/// Lets the kernel detect that the host at the other end of an idle connection vanished silently.
Status set_keep_alive(int fd, const KeepAlive& keep_alive);

}  // namespace tcpx
