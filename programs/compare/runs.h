// All measurements of bench_soft_plugin, and of bench_endpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "programs/compare/comparison.h"

namespace tcpx {

struct SoftRunOptions {
  std::vector<uint64_t> sizes = {8, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  std::vector<uint32_t> sockets;   ///< empty: 1, 4, 8, 16, as far as the software plugin can
  std::vector<MemoryType> memory;  ///< empty: host, and that of a GPU where there is one
  uint64_t request_bytes = 4 << 20;
  bool without_pipeline = false;    ///< measure the bare plugin only
  std::vector<uint32_t> channels;   ///< of the pipeline, 1 ... kMaxChannels; empty: 1, and 4 on a machine of kManyCores
  std::vector<std::string> unpack;  ///< as UCCL_TCPX_UNPACK_IMPL names them; empty: all, where there is a GPU
  bool long_transfers = false;      ///< transfers of up to 32768 chunks, too
  std::string plugin;               ///< library; "": the software plugin of this build
};

inline constexpr const char* kEndpointSections[] = {"bulk", "vector", "latency", "small", "one", "local", "peers", "memory"};

struct EndpointRunOptions {
  std::vector<std::string> only;  ///< of kEndpointSections; empty: all
  uint32_t peers = 64;            ///< of the sections "peers" and "memory"
  bool same_host = false;         ///< EndpointConfig::same_host, of all sections but "local", which has both
};

/// Everything, into the report. After an error, the results from before it are there.
Status run_soft(const SoftRunOptions& options, Comparison& comparison);
/// @return also kBadConfig for a malformed variable of the pipeline
Status run_endpoint(EndpointRunOptions options, Comparison& comparison);

}  // namespace tcpx
