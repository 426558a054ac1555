// Figures of an endpoint as a Prometheus server reads them: text exposition format 0.0.4, docs/metrics.md says what each means.
//
// The text is bounded. Totals of the endpoint, its NICs and its latencies cover all connections, those that are gone included, so
// they never fall. Series of single connections come and go with these, and there are those of the first kMaxListedConnections
// only. No series sums up the rest: it would fall whenever one of them ended, which a server takes for a restart from zero.
#pragma once

#include <cstddef>
#include <string>

#include "tcpx/endpoint.h"

namespace tcpx {

inline constexpr size_t kMaxListedConnections = 256;

/// @param gpu_idx of the endpoint; every sample has it as a label, which tells the endpoints of a process from each other
std::string metrics_text(const EndpointStats& stats, int gpu_idx);

}  // namespace tcpx
