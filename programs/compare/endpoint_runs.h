// All measurements of bench_endpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "programs/compare/comparison.h"

namespace tcpx {

inline constexpr const char* kEndpointSections[] = {"bulk", "vector", "latency", "small", "one", "local", "peers", "memory"};

struct EndpointRunOptions {
  std::vector<std::string> only;  ///< of kEndpointSections; empty: all
  uint32_t peers = 64;            ///< of the sections "peers" and "memory"
  bool same_host = false;         ///< EndpointConfig::same_host, of all sections but "local", which has both
};

/// Everything, into the report. After an error, the results from before it are there.
/// @return kBadConfig for a malformed variable of the pipeline
Status run_endpoint(EndpointRunOptions options, Comparison& comparison);

}  // namespace tcpx
