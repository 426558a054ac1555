// Settings of the software plugin, read once from the environment.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/environment.h"
#include "net/soft/bindings.h"
#include "tcpx/status.h"

namespace tcpx::soft {

enum class AddressFamily { kAny, kIpv4, kIpv6 };
enum class ZeroCopy { kAuto, kOff, kOn };
enum class Network { kAuto, kTcpx, kDevmem, kSoft };  // UCCL_TCPX_NETWORK

struct Config {
  std::string interfaces;                                ///< a pattern of choose_interfaces, "" when unset
  Variable interfaces_are_of = Variable::kSocketIfname;  ///< where that is from
  AddressFamily family = AddressFamily::kAny;
  uint32_t sockets_per_thread = 0;    ///< NCCL_NSOCKS_PERTHREAD, 0 when unset
  uint32_t socket_threads = 1;        ///< NCCL_SOCKET_NTHREADS
  uint32_t chunk_bytes = 512 * 1024;  ///< multiple of kPageBytes
  uint64_t pool_bytes = 0;            ///< multiple of kPageBytes
  uint32_t io_threads = 1;
  Duration spin{};
  bool lends_io = false;  ///< NetPlugin::borrow_io: there would be one thread, and no variable asks for it
  ZeroCopy zero_copy = ZeroCopy::kAuto;
  Network network = Network::kAuto;
  std::string devmem_socket;      ///< of tcpx_devmemd
  std::string control_interface;  ///< NCCL_GPUDIRECTTCPX_CTRL_DEV, "" when unset
  Bindings send_cores;            ///< by interface; threads of others run anywhere
  Bindings receive_cores;
  Duration connect_timeout{};
  Duration peer_timeout{};  ///< UCCL_TCPX_PEER_TIMEOUT_MS

  /// Data sockets of a connection, 1 ... kMaxDataSockets, where the plugin has `devices` devices on a machine of `cores` cores.
  /// Devices are used side by side: by default they share as many sockets as the machine can feed.
  uint32_t data_sockets(uint32_t cores, size_t devices) const;
  /// ConnectedSockets::spare_copies of a connection by `nic` (ConnectedSockets::nic).
  bool spare_copies(const std::string& nic) const;
  /// kBadConfig naming the first malformed variable.
  static Result<Config> from_environment();
  /// Reads only which interfaces are wanted: `interfaces`, `interfaces_are_of` and `family`. Also for where another plugin is in use,
  /// which may read the other variables in its own way.
  static Result<Config> of_interfaces();
};

}  // namespace tcpx::soft
