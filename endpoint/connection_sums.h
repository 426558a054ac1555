// Adds up the counters of connections, so that an endpoint's totals outlive its connections.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tcpx/endpoint.h"

namespace tcpx {

/// @return `a` with the counters of `b` added. Gauges and descriptions stay those of `a`.
inline ConnectionStats sum_of(ConnectionStats a, const ConnectionStats& b) {
  a.bytes_sent += b.bytes_sent;
  a.bytes_received += b.bytes_received;
  a.inline_sent += b.inline_sent;
  a.inline_received += b.inline_received;
  a.operations_done += b.operations_done;
  a.operations_failed += b.operations_failed;
  a.operations_repeated += b.operations_repeated;
  for (size_t i = 0; i < a.latency.buckets.size(); ++i) a.latency.buckets[i] += b.latency.buckets[i];
  a.latency.count += b.latency.count;
  a.latency.sum += b.latency.sum;
  for (const NicStats& more : b.nics) {
    auto nic = std::find_if(a.nics.begin(), a.nics.end(), [&](const NicStats& known) { return known.name == more.name; });
    if (nic == a.nics.end()) nic = a.nics.insert(nic, NicStats{.name = more.name});
    nic->bytes_sent += more.bytes_sent;
    nic->bytes_received += more.bytes_received;
    nic->chunks_sent += more.chunks_sent;
    nic->chunks_received += more.chunks_received;
  }
  return a;
}

}  // namespace tcpx
