// Figures of an endpoint as a Prometheus server reads them.
#include "endpoint/metrics_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/support/exposition.h"

namespace tcpx::testing {
namespace {

const Labels kGpu = {{"gpu", "3"}};
Labels with(const std::string& name, const std::string& value) {
  return {{"gpu", "3"}, {name, value}};
}
Exposition exposed(const EndpointStats& stats) {
  Exposition read(metrics_text(stats, 3));
  for (const std::string& fault : read.faults()) ADD_FAILURE() << fault;
  return read;
}

/// Figures that differ from each other, and from those of other numbers.
ConnectionStats figures(uint64_t number) {
  ConnectionStats stats{
      .conn = ConnId{number}, .peer = "10.0.0.1:" + std::to_string(number), .remote_gpu_idx = 5, .path = "a path"};
  uint64_t next = number * 100;
  for (uint64_t* field : {&stats.bytes_sent, &stats.bytes_received, &stats.inline_sent, &stats.inline_received,
                          &stats.operations_done, &stats.operations_failed, &stats.operations_repeated, &stats.operations_pending,
                          &stats.chunks_in_flight, &stats.window_chunks})
    *field = ++next;
  return stats;
}

// The reader sees what it must
// ----------------------------------------------------------------------------------------------------------------

TEST(Exposition, AGoodTextIsRead) {
  const Exposition read(
      "# HELP a_total Some \\\\ \\n.\n# TYPE a_total counter\na_total{x=\"\\\\ \\\" \\n\",y=\"\"} 2\na_total 1\n"
      "# HELP empty None.\n# TYPE empty gauge\n"
      "# HELP h Times.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 3\nh_sum 1.5\nh_count 3\n");
  EXPECT_EQ(read.faults(), std::vector<std::string>{});
  EXPECT_EQ(read.value("a_total", {{"x", "\\ \" \n"}, {"y", ""}}), 2);
  EXPECT_EQ(read.value("a_total", {}), 1);
  EXPECT_EQ(read.value("h", {}, "_sum"), 1.5);
  EXPECT_EQ(read.value("h", {{"le", "0.5"}}, "_bucket"), 1);
  EXPECT_EQ(read.metrics().size(), 3u);
}

TEST(Exposition, FaultsAreFound) {
  const std::string a = "# HELP a Text.\n# TYPE a gauge\n", b = "# HELP b Text.\n# TYPE b gauge\n";
  const std::string h = "# HELP h Text.\n# TYPE h histogram\n", sums = "h_sum 1\nh_count 3\n";
  const std::vector<std::string> bad = {a + "a 1",
                                        "a 1\n",
                                        "# HELP a Text.\n",
                                        "# HELP a Text.\na 1\n",
                                        "# TYPE a gauge\na 1\n",
                                        a + b + "a 1\n",
                                        a + a,
                                        a + "a 1\na 1\n",
                                        a + "b 1\n",
                                        a + "a\n",
                                        a + "a one\n",
                                        a + "a 1 2\n",
                                        a + "a  1\n",
                                        a + "a_sum 1\n",
                                        a + "a{} 1\n",
                                        a + "a{x=\"1\",} 1\n",
                                        a + "a{x=\"1\",x=\"2\"} 1\n",
                                        a + "a{x=\"\\t\"} 1\n",
                                        a + "a{x=\"\"\"} 1\n",
                                        a + "a{x=1} 1\n",
                                        a + "a{1x=\"\"} 1\n",
                                        a + "\n",
                                        "# HELP a Text.\n# TYPE a counter\n",
                                        "# HELP a_total Text.\n# TYPE a_total gauge\n",
                                        "# HELP a_total Text.\n# TYPE a_total counter\na_total -1\n",
                                        "# HELP a Text.\n# TYPE a other\n",
                                        h + "h_bucket{le=\"1\"} 3\n" + sums,
                                        h + "h_bucket{le=\"1\"} 4\nh_bucket{le=\"+Inf\"} 3\n" + sums,
                                        h + "h_bucket{le=\"+Inf\"} 2\n" + sums,
                                        h + "h_bucket{le=\"+Inf\"} 3\nh_count 3\n",
                                        h + sums,
                                        h + "h_bucket 3\n" + sums};
  for (const std::string& text : bad) {
    EXPECT_FALSE(Exposition(text).faults().empty()) << text;
  }
}

// The text
// ----------------------------------------------------------------------------------------------------------------

TEST(MetricsText, AnEndpointWithoutConnectionsHasTotals) {
  const Exposition read = exposed({});
  for (const char* zero : {"tcpx_sent_bytes_total", "tcpx_received_bytes_total", "tcpx_operations_failed_total",
                           "tcpx_operations_outstanding", "tcpx_notifications_waiting"})
    EXPECT_EQ(read.value(zero, kGpu), 0) << zero;
  EXPECT_EQ(read.value("tcpx_connections", with("state", "alive")), 0);
  EXPECT_EQ(read.value("tcpx_operation_latency_seconds", kGpu, "_count"), 0);
  EXPECT_TRUE(read.metrics().contains("tcpx_connection_sent_bytes_total")) << "its type is known, though there is no sample";
}

TEST(MetricsText, EachFigureHasItsMetric) {
  EndpointStats stats{.registered_regions = 1, .advertised_ranges = 2, .operations_outstanding = 3, .notifications_waiting = 4, .peer_bytes = 5, .max_peer_bytes = 6};
  stats.connections = {figures(1), figures(2)};
  stats.connections[1].alive = false;
  const Exposition read = exposed(stats);
  EXPECT_EQ(read.value("tcpx_registered_regions", kGpu), 1);
  EXPECT_EQ(read.value("tcpx_advertised_ranges", kGpu), 2);
  EXPECT_EQ(read.value("tcpx_operations_outstanding", kGpu), 3);
  EXPECT_EQ(read.value("tcpx_notifications_waiting", kGpu), 4);
  EXPECT_EQ(read.value("tcpx_peer_bytes", kGpu), 5);
  EXPECT_EQ(read.value("tcpx_max_peer_bytes", kGpu), 6);
  EXPECT_EQ(read.value("tcpx_connections", with("state", "alive")), 1);
  EXPECT_EQ(read.value("tcpx_connections", with("state", "failed")), 1);
  double next = 0;
  for (const char* name : {"sent_bytes_total", "received_bytes_total", "sent_inline_messages_total",
                           "received_inline_messages_total", "operations_done_total", "operations_failed_total",
                           "operations_repeated_total", "operations_pending", "chunks_in_flight", "window_chunks"}) {
    ++next;
    for (const int connection : {1, 2}) {
      EXPECT_EQ(read.value(std::string("tcpx_connection_") + name, with("connection", std::to_string(connection))),
                connection * 100 + next)
          << name;
    }
    if (!std::string(name).ends_with("_total")) continue;
    EXPECT_EQ(read.value(std::string("tcpx_") + name, kGpu), 300 + 2 * next) << name;
  }
  EXPECT_EQ(read.value("tcpx_connection_alive", with("connection", "1")), 1);
  EXPECT_EQ(read.value("tcpx_connection_alive", with("connection", "2")), 0);
}

TEST(MetricsText, ConnectionsThatAreGoneStayInTheTotals) {
  EndpointStats stats;
  stats.connections = {figures(1)};
  stats.connections[0].nics = {{.name = "eth1", .bytes_sent = 1, .bytes_received = 2, .chunks_sent = 3, .chunks_received = 4}};
  stats.ended = figures(2);
  stats.ended.nics = {{.name = "eth2", .bytes_sent = 5},
                      {.name = "eth1", .bytes_sent = 10, .bytes_received = 20, .chunks_sent = 30, .chunks_received = 40}};
  stats.ended.latency.buckets[1] = stats.ended.latency.count = 1;
  const Exposition read = exposed(stats);
  EXPECT_EQ(read.value("tcpx_sent_bytes_total", kGpu), 101 + 201);
  EXPECT_EQ(read.value("tcpx_nic_sent_bytes_total", with("nic", "eth1")), 11);
  EXPECT_EQ(read.value("tcpx_nic_received_bytes_total", with("nic", "eth1")), 22);
  EXPECT_EQ(read.value("tcpx_nic_sent_chunks_total", with("nic", "eth1")), 33);
  EXPECT_EQ(read.value("tcpx_nic_received_chunks_total", with("nic", "eth1")), 44);
  EXPECT_EQ(read.value("tcpx_nic_sent_bytes_total", with("nic", "eth2")), 5);
  EXPECT_EQ(read.value("tcpx_operation_latency_seconds", kGpu, "_count"), 1);
  EXPECT_EQ(read.labels_of("tcpx_connection_sent_bytes_total").size(), 1u);
  EXPECT_EQ(read.value("tcpx_connections", with("state", "alive")), 1);
}

TEST(MetricsText, LatenciesAreInSeconds) {
  EndpointStats stats;
  stats.connections = {figures(1), figures(2)};
  LatencyHistogram& latency = stats.connections[0].latency;
  latency.buckets = {1, 0, 2};
  latency.buckets.back() = 4;
  latency.count = 7;
  latency.sum = std::chrono::microseconds(40'000'012);
  stats.connections[1].latency.buckets[2] = stats.connections[1].latency.count = 1;
  stats.connections[1].latency.sum = std::chrono::microseconds(5);
  const Exposition read = exposed(stats);
  const auto within = [&](const char* bound) {
    return read.value("tcpx_operation_latency_seconds", with("le", bound), "_bucket");
  };
  EXPECT_EQ(within("0.000002"), 1);
  EXPECT_EQ(within("0.000004"), 1);
  EXPECT_EQ(within("0.000008"), 4);
  EXPECT_EQ(within("1.048576"), 4);
  EXPECT_EQ(within("8.388608"), 4);
  EXPECT_EQ(within("+Inf"), 8);
  EXPECT_EQ(read.value("tcpx_operation_latency_seconds", kGpu, "_count"), 8);
  EXPECT_EQ(read.value("tcpx_operation_latency_seconds", kGpu, "_sum"), 40.000017);
  EXPECT_EQ(read.labels_of("tcpx_operation_latency_seconds").size(), 24u + 2) << "buckets, and sum and count";
}

TEST(MetricsText, LabelsKeepWhatTheyName) {
  const std::string path = "back\\slash, \"quote\",\nnew line {}=,";
  EndpointStats stats;
  stats.connections = {figures(1)};
  stats.connections[0].path = path;
  stats.connections[0].nics = {{.name = path}};
  const Exposition read = exposed(stats);
  EXPECT_EQ(read.value("tcpx_connection_info",
                       {{"gpu", "3"}, {"connection", "1"}, {"peer", "10.0.0.1:1"}, {"peer_gpu", "5"}, {"path", path}}),
            1);
  EXPECT_EQ(read.value("tcpx_nic_sent_bytes_total", with("nic", path)), 0);
}

TEST(MetricsText, ManyConnectionsAreBounded) {
  constexpr uint64_t kMany = 2000;
  EndpointStats stats;
  for (uint64_t i = 1; i <= kMany; ++i) {
    stats.connections.push_back(figures(i));
    stats.connections.back().path.assign(200, 'x');
  }
  const std::string text = metrics_text(stats, 3);
  EXPECT_LT(text.size(), 1'000'000u) << "as its comment promises";
  const Exposition read = exposed(stats);
  for (const auto& [name, metric] : read.metrics()) EXPECT_LE(metric.samples.size(), kMaxListedConnections) << name;
  std::set<std::string> listed;
  for (const Labels& labels : read.labels_of("tcpx_connection_operations_pending")) listed.insert(labels.at("connection"));
  EXPECT_EQ(listed.size(), kMaxListedConnections);
  EXPECT_TRUE(listed.contains("1") && listed.contains("256")) << "those that have been there the longest";
  EXPECT_EQ(read.value("tcpx_sent_bytes_total", kGpu), 100.0 * kMany * (kMany + 1) / 2 + kMany) << "of all";
  EXPECT_EQ(read.value("tcpx_connections", with("state", "alive")), kMany);
}

}  // namespace
}  // namespace tcpx::testing
