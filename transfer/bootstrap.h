// Bootstrap: how two ends find each other over plain TCP (port UCCL_TCPX_BOOTSTRAP_PORT) before they exchange connection handles.
//
// The client connects and says hello first, and may send its first frames right behind it. The server answers with its own hello
// only when it takes that client, so from then on both know that they talk to each other. An open port also attracts scanners,
// browsers and connections that send half a frame or nothing at all. These are logged and dropped, and hold up nobody: the server
// watches all connections that have not said hello together, each with its own deadline. It holds as many of them as the process
// has descriptors for; the others wait in the kernel's backlog. When the server is full, it drops the client that has been silent
// longest, and tells it to try again.
//
// Without a TlsContext any host that reaches the port can take part. With one, a handshake (secure/tls.h) comes before anything else
// is parsed, and all that follows goes through TLS. A server refuses a client before the handshake by a frame in clear. A client with
// a secret reads no other frame in clear, and fails with what it says: no end with a secret goes on without TLS.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/crowd_log.h"
#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "secure/tls.h"
#include "tcpx/status.h"
#include "wire/bootstrap_channel.h"
#include "wire/frame.h"

namespace tcpx {

struct BootstrapServerOptions {
  uint16_t port = 0;  ///< 0: any free port
  /// Address or name to listen on; empty: every address of this machine, IPv6 and IPv4.
  std::string host = {};
  /// Set: serves only clients that have connected to one of these addresses of this machine, or to loopback. Others are refused before
  /// anything that they say is read.
  std::optional<std::vector<std::string>> only_at = {};
  /// Time that a connection has to say hello.
  Duration hello_time = std::chrono::seconds(5);
  /// Most connections that may be waiting to say hello at once. An eighth of the process's descriptor limit bounds it further.
  size_t max_waiting = 256;
  /// `accept` returns a client only when the first frame after its hello (its parameters) is complete. The client has
  /// `hello_time` for that frame, too.
  bool wait_for_first_frame = false;
  /// Set: only clients with its secret are served, and `hello_time` includes the handshake. Must outlive the server.
  const TlsContext* tls = nullptr;
  /// Ends waits early when set, here and in the channels of this server; may be null.
  const std::atomic<bool>* stop = nullptr;
};

/// Number of users of descriptors that there may be: `most`, or fewer when the process's descriptor limit is low. At least 1.
/// @param of_each descriptors counted for each user
size_t bounded_by_descriptors(size_t most, size_t of_each);

/// One thread at a time.
class BootstrapServer {
 public:
  /// @return kSystem with the errno when the port is taken or the process may not use it; kNotFound for an unknown host
  static Result<std::unique_ptr<BootstrapServer>> create(const BootstrapServerOptions& options);

  uint16_t port() const { return address_.port(); }
  const SocketAddress& address() const { return address_; }

  /// Waits for the next client that says a proper hello. Call it again for further clients; earlier channels stay valid.
  /// @return kTimeout at the deadline; kExhausted when a client has come but this process or machine lacks the resources to serve
  /// it; kCancelled when stopped; kSystem
  Result<BootstrapChannel> accept(Deadline deadline);

 private:
  struct Waiting {
    UniqueFd socket;
    std::unique_ptr<TlsSession> tls;  // from the first byte on; null: the server has no secret
    std::optional<std::byte> first;   // byte that the client sent
    short awaited = POLLIN;           // event of the socket
    SocketAddress peer;
    std::string host;  // of `peer`
    Deadline deadline;
    TimePoint came_at, heard_at;
    FrameAssembler frame;              // the hello, then the first frame after it
    std::optional<std::string> build;  // version text of the client's hello; set once it has been greeted
  };

  BootstrapServer(UniqueFd listener, const SocketAddress& address, const BootstrapServerOptions& options);
  Status check_place(int fd) const;
  Result<bool> take_connections();
  bool make_room();
  Status wait_for_event(Deadline deadline);
  Result<bool> advance(Waiting& client);
  Result<bool> secure(Waiting& client);
  Status greet(Waiting& client);
  BootstrapChannel channel_of(Waiting client) const;
  void drop(const Waiting& client, const Status& why);

  UniqueFd listener_;
  SocketAddress address_;
  BootstrapServerOptions options_;
  std::vector<Waiting> waiting_;
  CrowdLog crowd_log_;
  bool starved_ = false;  // descriptors have run out: the server does not poll the listener for a while
  Status shortage_;       // why clients wait in the backlog; ok: no client does
};

/// Connects to a BootstrapServer and exchanges hellos. Tries all addresses of `host` (base/connect_first.h) and takes the first
/// that answers. A refused or unanswered connect is tried again until the deadline, because the server may start later; so is one
/// that the server cannot serve now. A host name is resolved once.
/// @param host one or more hosts, separated by commas
/// @param stop ends waits early when set, here and in the channel; may be null
/// @param first_words sends frames right behind this end's hello, without waiting for the server's; called at each attempt; may
/// be empty. Its error is reported to the server and returned
/// @param tls not null: the server must prove that it has the secret, and must outlive the call
/// @return kNotFound: unknown host; kTimeout with the last reason: no server until the deadline; kProtocol: something else
/// answers on that port; kMismatch: its secret differs; kUnsupported: one end alone has a secret; kPeerGone: the server closed the
/// connection; kExhausted: this process or machine is out of descriptors or ports; otherwise the error that the server reported
Result<BootstrapChannel> bootstrap_connect(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop = nullptr,
                                           const std::function<Status(BootstrapChannel&)>& first_words = {},
                                           const TlsContext* tls = nullptr);

}  // namespace tcpx
