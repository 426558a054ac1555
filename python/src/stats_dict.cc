#include "python/src/stats_dict.h"

#include <nanobind/stl/string.h>

namespace tcpx::python {

namespace nb = nanobind;

nb::dict dict_of(const EndpointStats& stats) {
  nb::list connections;
  for (const ConnectionStats& one : stats.connections) {
    nb::list nics;
    for (const NicStats& nic : one.nics) {
      nb::dict entry;
      entry["name"] = nic.name;
      entry["bytes_sent"] = nic.bytes_sent;
      entry["bytes_received"] = nic.bytes_received;
      entry["chunks_sent"] = nic.chunks_sent;
      entry["chunks_received"] = nic.chunks_received;
      nics.append(entry);
    }
    nb::dict entry;
    entry["id"] = static_cast<uint64_t>(one.conn);
    entry["peer"] = one.peer;
    entry["remote_gpu"] = one.remote_gpu_idx;
    entry["name"] = one.name;
    entry["path"] = one.path;
    entry["alive"] = one.alive;
    entry["bytes_sent"] = one.bytes_sent;
    entry["bytes_received"] = one.bytes_received;
    entry["inline_sent"] = one.inline_sent;
    entry["inline_received"] = one.inline_received;
    entry["operations_done"] = one.operations_done;
    entry["operations_failed"] = one.operations_failed;
    entry["operations_repeated"] = one.operations_repeated;
    entry["operations_pending"] = one.operations_pending;
    entry["chunks_in_flight"] = one.chunks_in_flight;
    entry["window_chunks"] = one.window_chunks;
    entry["latency_p50_us"] = one.latency.quantile(0.5).count();
    entry["latency_p99_us"] = one.latency.quantile(0.99).count();
    entry["nics"] = nics;
    connections.append(entry);
  }
  nb::dict all;
  all["connections"] = connections;
  all["registered_regions"] = stats.registered_regions;
  all["advertised_ranges"] = stats.advertised_ranges;
  all["operations_outstanding"] = stats.operations_outstanding;
  all["notifications_waiting"] = stats.notifications_waiting;
  all["peer_bytes"] = stats.peer_bytes;
  all["max_peer_bytes"] = stats.max_peer_bytes;
  return all;
}

}  // namespace tcpx::python
