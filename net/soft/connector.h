// The connecting end's handshake.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "net/soft/comm.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// One attempt to connect: opens all sockets of a connection at once and sends a hello on each; done when the listener has
/// answered all of them. Needs no call of accept at the other end. One thread at a time; destruction gives up.
///
/// A network that is away for a moment, and ports that are used up, end a socket's connect but not the attempt: that socket
/// connects again, after a pause. A refusal may come from a path that flaps, but more often the listener has gone for good,
/// so an attempt ends kRefusalPatience after its first one.
class Connector {
 public:
  /// `source` is the local address to bind, and `control_source` that of the control socket when the listener has a control
  /// address of its own; one of another address family than the listener's is ignored. Sockets
  /// from `source` leave by `nic` where it leads to the listener (net/soft/socket_nic.h), "" for any; where nothing comes back that
  /// way, they leave by whatever the kernel takes, with a warning.
  static Result<std::unique_ptr<Connector>> start(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                                  const std::optional<SocketAddress>& control_source = std::nullopt,
                                                  const std::string& nic = {});

  static constexpr Duration kRefusalPatience = std::chrono::seconds(1);
  /// Of a socket bound to its NIC. Long enough for a lost packet, which is sent again after a second.
  static constexpr Duration kBoundPatience = std::chrono::milliseconds(1500);

  /// Waits for at most `patience`. @return nullopt: not yet; kPeerGone when the listener is gone or refuses, kProtocol when it is
  /// something else; at the deadline `trouble`, or kTimeout when there is none. Any answer but "not yet" is final.
  Result<std::optional<ConnectedSockets>> advance(Duration patience);
  Deadline deadline() const { return deadline_; }
  /// Why a socket that is not connected yet had to connect again: kPeerGone, kExhausted. Ok when none had to.
  Status trouble() const;

 private:
  enum class Step : uint8_t { kRests, kConnects, kSaysHello, kListens, kDone };
  struct Socket {
    UniqueFd fd;  // none while it rests
    SocketAddress target;
    std::optional<SocketAddress> source;
    bool has_nic = false;                    // it may be bound to nic_
    std::optional<TimePoint> bound_until{};  // none: it is not bound
    Step step = Step::kRests;
    TimePoint rests_until{};
    Duration next_rest{};
    Status trouble;    // of the connect before
    size_t moved = 0;  // bytes of the record of this step
    std::array<std::byte, kHelloBytes> hello{};
    std::array<std::byte, kHelloAnswerBytes> answer{};
  };

  Connector(const HandleInfo& listener, Deadline deadline) : listener_(listener), deadline_(deadline) {}
  Status advance(Socket& socket);
  Status connect(Socket& socket);
  Status put_off(Socket& socket, const Status& why);
  void let_go_of_nic(const Socket& socket, const Status& why);
  Result<bool> move(Socket& socket);

  HandleInfo listener_;
  Deadline deadline_;
  uint64_t connection_ = 0;
  std::optional<TimePoint> refused_since_;
  std::string nic_;              // "" when sockets leave by any
  std::vector<Socket> sockets_;  // the control socket last
};

/// A whole attempt, for callers with nothing else to do.
Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                             const std::optional<SocketAddress>& control_source = std::nullopt,
                                             const std::string& nic = {});

}  // namespace tcpx::soft
