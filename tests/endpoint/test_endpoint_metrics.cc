// Metrics of endpoints that have moved bytes.
#include <gtest/gtest.h>

#include "tests/support/endpoint_pair.h"
#include "tests/support/exposition.h"

namespace tcpx::testing {
namespace {

const Labels kGpu = {{"gpu", "0"}};

Exposition metrics_of(const Endpoint& endpoint) {
  Exposition read(endpoint.metrics_text());
  for (const std::string& fault : read.faults()) ADD_FAILURE() << fault;
  return read;
}

/// Sum over the samples of a metric.
double sum_over(const Exposition& read, const std::string& metric) {
  double sum = 0;
  for (const Labels& labels : read.labels_of(metric)) sum += read.value(metric, labels).value();
  return sum;
}

TEST(EndpointMetrics, TotalsAreWhatHasMovedAndNeverFall) {
  constexpr size_t kLong = 600'000, kShort = 8;
  EndpointConfig config = loopback_config();
  config.same_host = false;  // what moves within a host is no NIC's
  const auto a = make_endpoint(config), b = make_endpoint(config);
  EXPECT_EQ(metrics_of(*a).value("tcpx_sent_bytes_total", kGpu), 0);
  const auto [from, to] = connect_pair(*a, *b);
  ASSERT_TRUE(moves(*a, from, *b, to, kLong));
  ASSERT_TRUE(moves(*a, from, *b, to, kShort));

  const Labels sender = {{"gpu", "0"}, {"connection", std::to_string(static_cast<uint64_t>(from))}};
  const Exposition before = metrics_of(*a), other = metrics_of(*b);
  EXPECT_EQ(before.value("tcpx_connection_sent_bytes_total", sender), kLong + kShort);
  EXPECT_EQ(before.value("tcpx_connection_alive", sender), 1);
  EXPECT_EQ(other.value("tcpx_received_bytes_total", kGpu), kLong + kShort);
  EXPECT_EQ(other.value("tcpx_sent_bytes_total", kGpu), 0);
  EXPECT_EQ(other.value("tcpx_received_inline_messages_total", kGpu), 1);
  EXPECT_EQ(sum_over(before, "tcpx_nic_sent_bytes_total"), kLong);
  EXPECT_EQ(sum_over(other, "tcpx_nic_received_bytes_total"), kLong);

  // The connection goes, what it has counted stays. A new one adds to that.
  const auto expect_totals = [&](const Exposition& read, double times) {
    EXPECT_EQ(read.value("tcpx_sent_bytes_total", kGpu), times * (kLong + kShort));
    EXPECT_EQ(read.value("tcpx_sent_inline_messages_total", kGpu), times);
    EXPECT_EQ(read.value("tcpx_operations_done_total", kGpu), times * 2);
    EXPECT_EQ(read.value("tcpx_operation_latency_seconds", kGpu, "_count"), times * 2);
    EXPECT_GT(read.value("tcpx_operation_latency_seconds", kGpu, "_sum"), 0);
    EXPECT_EQ(sum_over(read, "tcpx_nic_sent_bytes_total"), times * kLong);
  };
  expect_totals(before, 1);
  ASSERT_TRUE(a->remove_connection(from).is_ok());
  ASSERT_TRUE(wait_until([&] { return a->stats().connections.empty(); }));
  const Exposition without = metrics_of(*a);
  expect_totals(without, 1);
  EXPECT_TRUE(without.labels_of("tcpx_connection_sent_bytes_total").empty());
  const auto [again, there] = connect_pair(*a, *b);
  ASSERT_TRUE(moves(*a, again, *b, there, kLong));
  ASSERT_TRUE(moves(*a, again, *b, there, kShort));
  expect_totals(metrics_of(*a), 2);
}

TEST(EndpointMetrics, FailuresAreCounted) {
  const auto a = make_endpoint(), b = make_endpoint();
  const auto [from, to] = connect_pair(*a, *b);
  Memory memory(*a, 100'000);
  const LocalRange range = memory.whole();
  const auto never_sent = a->recv_async(from, {&range, 1});
  ASSERT_TRUE(never_sent.is_ok()) << never_sent.status().to_string();
  EXPECT_EQ(metrics_of(*a).value("tcpx_operations_outstanding", kGpu), 1);
  ASSERT_TRUE(a->cancel(*never_sent).is_ok());
  EXPECT_EQ(a->wait(*never_sent).code(), Code::kCancelled);
  const Exposition read = metrics_of(*a);
  EXPECT_EQ(read.value("tcpx_operations_failed_total", kGpu), 1);
  EXPECT_EQ(read.value("tcpx_operations_done_total", kGpu), 0);
  EXPECT_EQ(read.value("tcpx_operations_outstanding", kGpu), 0);
}

}  // namespace
}  // namespace tcpx::testing
