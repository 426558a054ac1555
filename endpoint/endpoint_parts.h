// The parts from which an Endpoint is made. Tests give it other parts than the machine's own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "base/socket_address.h"
#include "endpoint/link_setup.h"
#include "net/net_plugin.h"
#include "rx/unpacker.h"
#include "secure/tls.h"
#include "tcpx/endpoint.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

struct EndpointParts {
  std::shared_ptr<MemoryOps> memory;   ///< shared: several endpoints of a process may use one
  std::shared_ptr<NetPlugin> plugin;   ///< shared with the loader's registry
  std::unique_ptr<Unpacker> unpacker;  ///< for GPU memory, or for host memory standing in for it
  std::unique_ptr<CopyLane> lane;
  ChannelDevices devices;
  PipelineSettings settings;
  std::vector<SocketAddress> addresses;  ///< for the metadata, in the order to try them
  std::string unused_nic;   ///< NIC that other hosts could reach although its address is not in `addresses`; may be ""
  bool checksums = false;   ///< as in LinkSetup
  bool repeats = false;     ///< as in LinkShared
  std::unique_ptr<TlsContext> tls;  ///< with the secret of this endpoint; null: the control connections are in clear
  Protection protection = Protection::kOff;  ///< peers have the same; kEncrypt: the plugin does it for the payload
  /// Nothing is configured that authenticates, nor that nothing shall: hosts of the data NICs. As in BootstrapServerOptions, for a config
  /// that names no address to listen on.
  std::optional<std::vector<std::string>> only_at;
  std::string path;         ///< how bytes travel, for people
  std::string local_dir;    ///< as in LinkSetup
  bool reads_peers = true;  ///< false: as if the kernel let no process read another one
};

/// The machine's own parts (default_parts.cc).
Result<EndpointParts> make_default_parts(const EndpointConfig& config);

class EndpointMaker {
 public:
  static Result<std::unique_ptr<Endpoint>> make(EndpointParts parts, const EndpointConfig& config);
};

}  // namespace tcpx
