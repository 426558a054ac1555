// Bootstrap: how two ends find each other over plain TCP (port UCCL_TCPX_BOOTSTRAP_PORT) before they exchange connection handles.
//
// The client connects and says hello first, and may send its first frames right behind it; the server answers with its hello only
// when it takes that client, so both know from then on that they talk to each other. All else that comes to an open port -
// scanners, browsers, half a frame, nothing at all - is logged and dropped and holds up nobody: all connections that have not said
// hello are watched together, each with its own deadline, as many as the process has descriptors for; the others wait in the
// kernel's backlog. In that case the client that has been silent longest makes room, and is told to try again.
//
// Any host that reaches the port can take part: there is no authentication in this version.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket_address.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"
#include "wire/bootstrap_channel.h"
#include "wire/frame.h"

namespace tcpx {

struct BootstrapServerOptions {
  uint16_t port = 0;  ///< 0: any free one
  /// Address or name to listen on; empty: every address of this machine, IPv6 and IPv4.
  std::string host = {};
  /// Time a connection may take to say hello.
  Duration hello_time = std::chrono::seconds(5);
  /// Connections that may be in that state at once, and at most an eighth of the descriptors that the process may have.
  size_t max_waiting = 256;
  /// `accept` returns a client only when its first frame after the hello, its parameters, is whole, for which it has as much time.
  bool wait_for_first_frame = false;
  /// Ends waits early when set, here and in the channels of this server; may be null.
  const std::atomic<bool>* stop = nullptr;
};

/// At most `most` users of descriptors, each of which may take so many of those that the process may have.
size_t bounded_by_descriptors(size_t most, size_t of_each);

/// One thread at a time.
class BootstrapServer {
 public:
  /// @return kSystem with the errno when the port is taken or may not be used; kNotFound for an unknown host.
  static Result<std::unique_ptr<BootstrapServer>> create(const BootstrapServerOptions& options);

  uint16_t port() const { return address_.port(); }
  const SocketAddress& address() const { return address_; }

  /// Waits for the next client that says a proper hello. May be called again for further clients; channels made before stay
  /// valid.
  /// @return kTimeout at the deadline, kExhausted when a client has come and this process or machine is out of what it takes to
  /// serve it; kCancelled when stopped; kSystem
  Result<BootstrapChannel> accept(Deadline deadline);

 private:
  struct Waiting {
    UniqueFd socket;
    SocketAddress peer;
    std::string host;  // of `peer`
    Deadline deadline;
    TimePoint came_at, heard_at;
    FrameAssembler frame;              // the hello, then the first one after it
    std::optional<std::string> build;  // greeted: as it said
  };

  BootstrapServer(UniqueFd listener, const SocketAddress& address, const BootstrapServerOptions& options);
  Result<bool> take_connections();
  bool make_room();
  Status wait_for_event(Deadline deadline);
  Result<bool> advance(Waiting& client);
  Status greet(Waiting& client);
  BootstrapChannel channel_of(Waiting client) const;
  static void drop(const Waiting& client, const Status& why);

  UniqueFd listener_;
  SocketAddress address_;
  BootstrapServerOptions options_;
  std::vector<Waiting> waiting_;
  bool starved_ = false;  // of descriptors: the listener is not looked at for a while
  Status shortage_;       // why clients wait in the backlog; ok: none does
};

/// Connects to a BootstrapServer and exchanges hellos. All addresses of `host`, which may be several hosts separated by commas, are
/// tried (base/connect_first.h), and the first that answers is taken. A refused or unanswered connect is tried again until the
/// deadline, because the server may start later, and so is one that the server cannot serve now; a host name is resolved once.
/// @return kNotFound: unknown host; kTimeout with the last reason: no server until the deadline; kProtocol: something else
/// answers on that port; kPeerGone: the server closed the connection; kExhausted: this process or machine is out of descriptors or
/// ports; else what the server reported.
/// `stop`, which may be null, ends waits early when set, here and in the channel.
/// @param first_words sends what goes behind the hello without waiting for the server's, at each attempt anew; may be empty. Its own
/// error is told to the server, and is that of the connect.
Result<BootstrapChannel> bootstrap_connect(const std::string& host, uint16_t port, Deadline deadline,
                                           const std::atomic<bool>* stop = nullptr,
                                           const std::function<Status(BootstrapChannel&)>& first_words = {});

}  // namespace tcpx
