// Writes the figures of an endpoint for a Prometheus server, in text exposition format 0.0.4. docs/metrics.md says what each means.
//
// The length of the text is bounded. Totals of the endpoint, its NICs and its latencies include connections that have ended, so they
// never fall. Series of single connections come and go with the connections, and exist only for the first kMaxListedConnections. No
// series sums up the others: it would fall whenever one of them ended, which a server takes for a restart from zero.
#pragma once

#include <cstddef>
#include <string>

#include "tcpx/endpoint.h"

namespace tcpx {

inline constexpr size_t kMaxListedConnections = 256;

/// @param gpu_idx of the endpoint; a label of every sample, which tells the endpoints of a process from each other
std::string metrics_text(const EndpointStats& stats, int gpu_idx);

}  // namespace tcpx
