// Parts of an Endpoint, so that tests can give it others than the machine's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "base/socket_address.h"
#include "net/net_plugin.h"
#include "rx/unpacker.h"
#include "tcpx/endpoint.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {

struct EndpointParts {
  std::shared_ptr<MemoryOps> memory;   // shared: several endpoints of a process may use one
  std::shared_ptr<NetPlugin> plugin;   // shared with the loader's registry
  std::unique_ptr<Unpacker> unpacker;  ///< of GPU memory, or what stands in for it
  std::unique_ptr<CopyLane> lane;
  ChannelDevices devices;
  PipelineSettings settings;
  std::vector<SocketAddress> addresses;  ///< for the metadata, in the order to try them
  std::string unused_nic;                ///< one by which other hosts would reach this one, and whose address is none of these
  std::string path;                      ///< how bytes travel, for people
  bool reads_peers = true;               ///< false: as where the kernel lets no process read another one
};

/// The machine's own parts (default_parts.cc).
Result<EndpointParts> make_default_parts(const EndpointConfig& config);

/// Makes endpoints of any parts.
class EndpointMaker {
 public:
  static Result<std::unique_ptr<Endpoint>> make(EndpointParts parts, const EndpointConfig& config);
};

}  // namespace tcpx
