// The connecting end's handshake.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/connect_first.h"
#include "net/soft/comm.h"
#include "net/soft/hello_proofs.h"
#include "net/soft/wire.h"

namespace tcpx::soft {

/// One attempt to connect: opens all sockets of a connection and sends a hello on each; done when the listener has answered all of
/// them. Needs no call of accept at the other end. One thread at a time; destruction gives up.
///
/// Of several addresses of the listener the first data socket finds the one that answers, and the others follow. A network that is away for
/// a moment, and ports that are used up, end a socket's connect but not the attempt: that socket connects again, after a pause, until
/// the deadline, or for kRefusalPatience when it is refused. So does one whose hello took so long, over a network that loses packets,
/// that the listener has taken it for a stranger.
///
/// Where the listener's NIC would put what comes into device memory, each device socket has to prove that: a page follows its hello, and
/// the listener compares it. If one cannot, or has no answer while others have, the attempt begins anew and goes to host memory. The page
/// comes from device memory if this end can send from there, which is then proved as well.
class Connector {
 public:
  /// `sources` are the local addresses to bind, and `control_sources` those of the control socket when the listener has control
  /// addresses of its own. Addresses of a family that has no source are left out, unless that is so for all. Data sockets leave by
  /// `nic` where it leads to the listener (net/soft/socket_nic.h), "" for any; where nothing comes back that way, they leave by
  /// whatever the kernel takes, with a warning. `secret` is null where there is none, and is not needed later.
  /// @return kMismatch: one end has a secret, or encrypts, and the other does not; nothing is sent then
  static Result<std::unique_ptr<Connector>> start(const HandleInfo& listener, const std::vector<SocketAddress>& sources,
                                                  Deadline deadline, const std::vector<SocketAddress>& control_sources = {},
                                                  const std::string& nic = {}, const Prover* secret = nullptr,
                                                  bool encrypts = false);

  /// What device sockets leave by `interface` is sent from `sources`, if the NIC can. Call before `advance`.
  void send_from(std::shared_ptr<DeviceSources> sources, std::string interface) {
    device_sources_ = std::move(sources);
    device_interface_ = std::move(interface);
  }
  /// Waits for at most `patience`. @return nullopt: not yet; kPeerGone when the listener is gone or refuses, kProtocol when it is
  /// something else; at the deadline `trouble`, or kTimeout when there is none. Any answer but "not yet" is final.
  Result<std::optional<ConnectedSockets>> advance(Duration patience);
  Deadline deadline() const { return deadline_; }
  /// Why a socket that is not connected yet had to connect again: kPeerGone, kExhausted. Ok when none had to.
  Status trouble() const;

 private:
  enum class Step : uint8_t { kFollows, kConnects, kSaysHello, kProves, kListens, kDone };
  struct Socket {
    UniqueFd fd;                      // none before it is connected
    std::optional<ConnectRace> race;  // kConnects
    Step step = Step::kFollows;
    size_t moved = 0;  // bytes of the record of this step
    TimePoint connected_at;
    std::array<std::byte, kHelloBytes> hello{};
    std::vector<std::byte> page;    // the proof of a device socket
    std::optional<BoundPage> from;  // nullopt: it is sent from host memory
    std::optional<devmem::DevmemSender> sender;
    std::array<std::byte, kHelloAnswerBytes> answer{};
    std::unique_ptr<RecordCipher> cipher;  // kDone, if it is to be encrypted
  };

  using Targets = std::vector<ConnectRace::Target>;
  Connector(const HandleInfo& listener, Deadline deadline, HelloProofs proofs)
      : listener_(listener), deadline_(deadline), proofs_(std::move(proofs)) {}
  /// Opens all sockets. @param device_sockets none, or as many as the handle says
  Status open(uint32_t device_sockets);
  /// Does so without device sockets, because of what one of them met.
  Status open_to_host(const Status& why);
  bool is_device(const Socket& socket) const { return static_cast<size_t>(&socket - sockets_.data()) < device_sockets_; }
  const Targets& targets_of(const Socket& socket) const;
  Status advance(Socket& socket);
  /// All of them, once.
  Status advance_all();
  /// When a device socket that is not done is late; nullopt: there is none, or perhaps nothing comes to the listener at all.
  std::optional<Deadline> proof_deadline() const;
  void race(Socket& socket);
  Status connect(Socket& socket);
  Result<bool> move(Socket& socket);
  /// Finds out whether the proof comes from device memory.
  Status choose_source(Socket& socket);
  Result<bool> prove(Socket& socket);
  Status begin_again(Socket& socket, const Status& why);
  std::string peer() const;

  HandleInfo listener_;
  Deadline deadline_;
  const HelloProofs proofs_;
  std::vector<SocketAddress> sources_, control_sources_;
  uint64_t connection_ = 0;
  uint32_t device_sockets_ = 0;
  Duration proof_patience_{};
  Targets targets_;          // of the first data sockets; one once the first of all has found it
  Targets host_targets_;     // of the ordinary ones behind device sockets; likewise
  Targets control_targets_;  // of the control socket; none: those of the data socket before it
  bool found_ = false;
  std::string nic_;              // that data sockets are to leave by
  std::shared_ptr<DeviceSources> device_sources_;  // null: device sockets send from host memory
  std::string device_interface_;                   // that they leave by
  std::vector<Socket> sockets_;  // the control socket last
};

}  // namespace tcpx::soft
