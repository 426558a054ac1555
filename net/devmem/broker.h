// The broker of tcpx_devmemd: binds dma-bufs to receive queues, and leads flows there, in the place of processes that lack
// CAP_NET_ADMIN.
//
// A client is given no more than what is its own: a queue that nobody uses, and packets for a port on which it listens itself. It
// proves that with the listening socket, of which the broker believes the kernel alone: the socket is of this network namespace,
// bound to no other interface, and its address is one of the interface's, because a client may listen at any address
// (IP_FREEBIND), also at that of a container behind the same NIC. A rule stays until the client ends it: whoever lets go of the
// port earlier takes the packets of the next one to listen there.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "net/devmem/flow_table.h"
#include "net/devmem/netdev.h"
#include "net/devmem/steering_record.h"
#include "net/devmem/user_shares.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

struct BrokerConfig {
  std::string socket;                   ///< a path; its directory is made if there is none
  std::optional<gid_t> group;           ///< whose members may ask, beside root and the broker's own user
  std::vector<std::string> interfaces;  ///< patterns of a shell (fnmatch(3)); empty: all
  std::string records = SteeringRecords::default_directory();
  // Each rule holds a file open, and each client three.
  size_t clients = 64, clients_of_user = 48;
  size_t rules = 8192, rules_of_user = 4096, rules_of_client = 256;
  Duration patience = std::chrono::seconds(10);  ///< with a client that has no binding
};

/// Who is at the other end of a Unix socket, as the kernel reports it.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  std::vector<gid_t> groups;  ///< the first is the primary one
  static Result<PeerCredentials> of(int socket);
};
/// Whether the broker serves these. `own`: the broker's user
bool may_ask(const PeerCredentials& peer, uid_t own, std::optional<gid_t> group);

class Broker {
 public:
  /// What it asks of the kernel. Must outlive the broker.
  struct Kernel {
    EthtoolCalls& ethtool;
    std::function<Result<Netdev>()> netdev;
    static Kernel real();
  };

  /// Undoes what a broker that was killed has left at these interfaces, and listens from then on, in a thread of its own. Each client
  /// has another one: a bind takes as long as a driver takes to restart a queue.
  /// @return kInvalidArgument: not a path; kExhausted: another broker listens there; kSystem: the socket cannot be made
  static Result<std::unique_ptr<Broker>> start(BrokerConfig config, Kernel kernel = Kernel::real());
  /// Ends all bindings and rules.
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

 private:
  struct Client;

  Broker(BrokerConfig config, Kernel kernel, ForeignFd listener, UniqueFd wake);
  void run();
  /// False: there is no descriptor for it. It waits.
  bool take_client();
  /// Until the client or the broker ends.
  void attend(Client& client);
  /// False: the client has ended.
  bool serve(Client& client);
  void stop();

  const BrokerConfig config_;
  const Kernel kernel_;
  ForeignFd listener_;
  UniqueFd wake_;
  std::atomic<bool> stops_ = false;
  UserShares places_, rules_;
  std::vector<std::unique_ptr<Client>> clients_;  // of the thread that listens
  std::thread thread_;
};

}  // namespace tcpx::devmem
