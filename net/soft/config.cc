#include "net/soft/config.h"

#include <algorithm>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "net/soft/wire.h"

namespace tcpx::soft {
namespace {

// A wake-up takes longer than that on many virtual machines, so an earlier sleep would delay small messages.
constexpr Duration kDefaultSpin = std::chrono::microseconds(200);
// With this many there is a core for each of eight sockets at both ends of a loopback, and as many for the application.
constexpr uint32_t kManyCores = 32;

uint64_t round_up_to_page(int64_t bytes) {
  return (static_cast<uint64_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Result<Bindings> bindings_from(Variable id) {
  const char* name = environment_info(id).name;
  auto bindings = parse_bindings(name, environment_text(id));
  if (bindings.is_ok()) TCPX_RETURN_IF_ERROR(check_bindings(name, *bindings));
  return bindings;
}

/// NCCL's variable where ours is unset, and it is not.
Variable own_or(Variable own, Variable of_nccl) {
  return environment_is_set(own) || !environment_is_set(of_nccl) ? own : of_nccl;
}

void say_which(Variable own, Variable of_nccl) {
  if (own_or(own, of_nccl) == own) return;
  log(LogLevel::kNotice, "tcpx-soft: ", environment_info(of_nccl).name, "=", environment_text(of_nccl), " is used, for ",
      environment_info(own).name, " is unset");
}

}  // namespace

uint32_t Config::data_sockets(uint32_t cores, size_t devices) const {
  const size_t shared = cores >= kManyCores ? std::max<size_t>(2, 8 / devices) : std::max<size_t>(1, 4 / devices);
  const size_t per_thread = sockets_per_thread > 0 ? sockets_per_thread : shared;
  return static_cast<uint32_t>(std::min<size_t>(per_thread * socket_threads, kMaxDataSockets));
}

bool Config::spare_copies(const std::string& nic) const {
  // What stays in the host goes by "lo", whichever of its addresses it is for. There the kernel copies after all.
  return zero_copy == ZeroCopy::kOn || (zero_copy == ZeroCopy::kAuto && !nic.empty() && nic != "lo");
}

Result<Config> Config::of_interfaces() {
  Config config;
  config.interfaces_are_of = own_or(Variable::kSocketIfname, Variable::kNcclSocketIfname);
  config.interfaces = environment_text(config.interfaces_are_of);
  if (config.interfaces_are_of == Variable::kNcclSocketIfname)
    config.interfaces = config.interfaces.substr(0, config.interfaces.find(':'));
  TCPX_ASSIGN_OR_RETURN(const auto family, environment_choice(own_or(Variable::kSocketFamily, Variable::kNcclSocketFamily)));
  config.family = static_cast<AddressFamily>(family);
  return config;
}

Result<Config> Config::from_environment() {
  TCPX_ASSIGN_OR_RETURN(Config config, of_interfaces());
  say_which(Variable::kSocketIfname, Variable::kNcclSocketIfname);
  say_which(Variable::kSocketFamily, Variable::kNcclSocketFamily);

  TCPX_ASSIGN_OR_RETURN(const auto per_thread, environment_integer(Variable::kNsocksPerThread));
  TCPX_ASSIGN_OR_RETURN(const auto threads, environment_integer(Variable::kSocketNthreads));
  config.sockets_per_thread = static_cast<uint32_t>(per_thread);
  config.socket_threads = static_cast<uint32_t>(threads);

  TCPX_ASSIGN_OR_RETURN(const auto chunk, environment_integer(Variable::kDynamicChunkSize));
  config.chunk_bytes = static_cast<uint32_t>(round_up_to_page(chunk));

  TCPX_ASSIGN_OR_RETURN(const auto pool, environment_integer(Variable::kSoftPoolBytes));
  config.pool_bytes = std::min(round_up_to_page(pool), kMaxPoolBytes);

  const uint32_t cores = usable_cores();
  TCPX_ASSIGN_OR_RETURN(const auto io_threads, environment_integer(Variable::kSoftIoThreads));
  config.io_threads = io_threads > 0 ? static_cast<uint32_t>(io_threads) : std::clamp(cores / 4, 1u, 8u);

  TCPX_ASSIGN_OR_RETURN(const auto spin, environment_integer(Variable::kSoftSpinUs));
  // A polling thread occupies a core. That is harmless where two remain for the callers, one per direction.
  const bool cores_to_spare = cores >= config.io_threads + 2;
  config.spin = spin >= 0 ? std::chrono::microseconds(spin) : cores_to_spare ? kDefaultSpin : Duration::zero();
  // Between two processes that share 3 or 4 cores, 256 KiB alone move 1.3 to 2 times as fast so, and 8 MiB 1.1 to 1.4; streams, and
  // processes with 4 cores of their own, are as fast as with the thread (an H200's host, 2026-11-28).
  config.lends_io = io_threads == 0 && spin < 0 && config.io_threads == 1;

  TCPX_ASSIGN_OR_RETURN(const auto zero_copy, environment_choice(Variable::kSoftZeroCopy));
  config.zero_copy = static_cast<ZeroCopy>(zero_copy);
  TCPX_ASSIGN_OR_RETURN(const auto network, environment_choice(Variable::kNetwork));
  config.network = static_cast<Network>(network);
  config.devmem_socket = environment_text(Variable::kDevmemSocket);

  config.control_interface = environment_text(Variable::kCtrlDev);
  TCPX_ASSIGN_OR_RETURN(config.send_cores, bindings_from(Variable::kTxBindings));
  TCPX_ASSIGN_OR_RETURN(config.receive_cores, bindings_from(Variable::kRxBindings));

  TCPX_ASSIGN_OR_RETURN(const auto connect, environment_integer(Variable::kSoftConnectTimeoutMs));
  config.connect_timeout = std::chrono::milliseconds(connect);
  TCPX_ASSIGN_OR_RETURN(const auto peer, environment_integer(Variable::kPeerTimeoutMs));
  config.peer_timeout = std::chrono::milliseconds(peer);
  return config;
}

}  // namespace tcpx::soft
