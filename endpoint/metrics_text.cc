#include "endpoint/metrics_text.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "endpoint/connection_sums.h"

namespace tcpx {
namespace {

struct MetricOfConnections {
  std::string_view name, help;
  uint64_t ConnectionStats::*field;
};

/// Metrics that only grow. Each is written for the endpoint and for every listed connection.
constexpr MetricOfConnections kCounters[] = {
    {"sent_bytes_total", "Payload bytes sent, inline messages included", &ConnectionStats::bytes_sent},
    {"received_bytes_total", "Payload bytes received, inline messages included", &ConnectionStats::bytes_received},
    {"sent_inline_messages_total", "Messages sent inline", &ConnectionStats::inline_sent},
    {"received_inline_messages_total", "Messages received inline", &ConnectionStats::inline_received},
    {"operations_done_total", "Operations that ended well", &ConnectionStats::operations_done},
    {"operations_failed_total", "Operations that failed or were cancelled", &ConnectionStats::operations_failed},
    {"operations_repeated_total", "Writes and reads started once more", &ConnectionStats::operations_repeated},
};

constexpr MetricOfConnections kGauges[] = {
    {"operations_pending", "Operations that have not ended", &ConnectionStats::operations_pending},
    {"chunks_in_flight", "Requests that the plugin holds", &ConnectionStats::chunks_in_flight},
    {"window_chunks", "Requests that the plugin may hold at most", &ConnectionStats::window_chunks},
};

struct MetricOfNic {
  std::string_view name, help;
  uint64_t NicStats::*field;
};

constexpr MetricOfNic kNicCounters[] = {
    {"sent_bytes_total", "Bytes of chunks sent", &NicStats::bytes_sent},
    {"received_bytes_total", "Bytes of chunks received", &NicStats::bytes_received},
    {"sent_chunks_total", "Chunks sent", &NicStats::chunks_sent},
    {"received_chunks_total", "Chunks received", &NicStats::chunks_received},
};

std::string seconds(std::chrono::microseconds span) {
  const std::string parts = std::to_string(span.count() % 1'000'000);
  return concat(span.count() / 1'000'000, '.', std::string(6 - parts.size(), '0'), parts);
}

/// A label that follows another one.
std::string label(std::string_view name, std::string_view value) {
  std::string text = concat(',', name, "=\"");
  for (const char c : value) {
    if (c == '\\' || c == '"') text.push_back('\\');
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text + '"';
}

std::string label_of(const ConnectionStats& connection) {
  return label("connection", std::to_string(static_cast<uint64_t>(connection.conn)));
}

class MetricsText {
 public:
  explicit MetricsText(int gpu_idx) : gpu_(concat("gpu=\"", gpu_idx, '"')) {}

  /// Begins a metric. All its samples must follow.
  void begin(std::string name, std::string_view type, std::string_view help, std::string_view of = "") {
    name_ = std::move(name);
    text_ += concat("# HELP ", name_, ' ', help, of, ".\n# TYPE ", name_, ' ', type, '\n');
  }
  template <class Value>
  void sample(const std::string& labels, const Value& value, std::string_view suffix = "") {
    text_ += concat(name_, suffix, '{', gpu_, labels, "} ", value, '\n');
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string gpu_;
  std::string name_, text_;
};

void write_latency(MetricsText& text, const LatencyHistogram& latency) {
  text.begin("tcpx_operation_latency_seconds", "histogram", "Time from submission to the end of operations that ended well");
  uint64_t within = 0;
  for (size_t i = 0; i < latency.buckets.size(); ++i) {
    within += latency.buckets[i];
    const bool last = i + 1 == latency.buckets.size();  // has no upper bound
    text.sample(label("le", last ? "+Inf" : seconds(std::chrono::microseconds(int64_t{2} << i))), within, "_bucket");
  }
  text.sample("", seconds(latency.sum), "_sum");
  text.sample("", within, "_count");
}

void write_totals(MetricsText& text, const EndpointStats& stats) {
  ConnectionStats total = stats.ended;
  for (const ConnectionStats& connection : stats.connections) total = sum_of(std::move(total), connection);
  for (const auto& [name, help, field] : kCounters) {
    text.begin(concat("tcpx_", name), "counter", help, ", on all connections that the endpoint has had");
    text.sample("", total.*field);
  }
  for (const auto& [name, help, field] : kNicCounters) {
    text.begin(concat("tcpx_nic_", name), "counter", help, " over a NIC");
    for (const NicStats& nic : total.nics) text.sample(label("nic", nic.name), nic.*field);
  }
  write_latency(text, total.latency);
}

void write_state(MetricsText& text, const EndpointStats& stats) {
  const auto alive = std::count_if(stats.connections.begin(), stats.connections.end(), [](const auto& c) { return c.alive; });
  text.begin("tcpx_connections", "gauge", "Connections, by whether they are of use");
  text.sample(label("state", "alive"), alive);
  text.sample(label("state", "failed"), static_cast<int64_t>(stats.connections.size()) - alive);
  const auto gauge = [&text](const char* name, const char* help, uint64_t value) {
    text.begin(name, "gauge", help);
    text.sample("", value);
  };
  gauge("tcpx_registered_regions", "Registrations of memory", stats.registered_regions);
  gauge("tcpx_advertised_ranges", "Ranges that peers may write to and read from", stats.advertised_ranges);
  gauge("tcpx_operations_outstanding", "Operations that are pending, or have ended and were not polled yet",
        stats.operations_outstanding);
  gauge("tcpx_notifications_waiting", "Notifications received and not taken yet", stats.notifications_waiting);
  gauge("tcpx_peer_bytes", "Bytes that peers may make the endpoint hold now", stats.peer_bytes);
  gauge("tcpx_max_peer_bytes", "Bytes that peers may make the endpoint hold at most", stats.max_peer_bytes);
}

void write_connections(MetricsText& text, std::span<const ConnectionStats> listed) {
  text.begin("tcpx_connection_info", "gauge", "Peer of a connection, and the route of its bytes; always 1");
  for (const ConnectionStats& one : listed) {
    text.sample(concat(label_of(one), label("peer", one.peer), label("peer_gpu", std::to_string(one.remote_gpu_idx)),
                       label("path", one.path)),
                1);
  }
  text.begin("tcpx_connection_alive", "gauge", "0 once a connection has failed, else 1");
  for (const ConnectionStats& one : listed) text.sample(label_of(one), one.alive ? 1 : 0);
  const auto write = [&](std::span<const MetricOfConnections> metrics, std::string_view type) {
    for (const auto& [name, help, field] : metrics) {
      text.begin(concat("tcpx_connection_", name), type, help, ", on one connection");
      for (const ConnectionStats& one : listed) text.sample(label_of(one), one.*field);
    }
  };
  write(kCounters, "counter");
  write(kGauges, "gauge");
}

}  // namespace

std::string metrics_text(const EndpointStats& stats, int gpu_idx) {
  MetricsText text(gpu_idx);
  write_totals(text, stats);
  write_state(text, stats);
  write_connections(text, std::span(stats.connections).first(std::min(stats.connections.size(), kMaxListedConnections)));
  return text.take();
}

}  // namespace tcpx
