// docs/metrics.md and the dashboard against the metrics that there are.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "endpoint/metrics_text.h"
#include "tests/support/documents.h"
#include "tests/support/exposition.h"

namespace tcpx::testing {
namespace {

using Names = std::set<std::string>;

struct Description {
  std::string type;
  Names labels;
  friend bool operator==(const Description&, const Description&) = default;
};

std::ostream& operator<<(std::ostream& out, const Description& metric) {
  out << metric.type;
  for (const std::string& label : metric.labels) out << ' ' << label;
  return out;
}

/// Metrics of an endpoint that has everything.
std::map<std::string, Description> real_metrics() {
  EndpointStats stats;
  stats.connections.resize(1);
  stats.connections[0].nics.resize(1);
  std::map<std::string, Description> metrics;
  const Exposition read(metrics_text(stats, 0));
  for (const auto& [name, metric] : read.metrics()) {
    metrics[name].type = metric.type;
    for (const auto& [key, value] : metric.samples) {
      for (const auto& [label, text] : key.second) metrics[name].labels.insert(label);
    }
  }
  return metrics;
}

/// Names that a query may use: of the metrics, and of a histogram's samples.
Names names_of_series() {
  Names names;
  for (const auto& [name, metric] : real_metrics()) {
    if (metric.type != "histogram") names.insert(name);
    if (metric.type == "histogram") names.merge(Names{name, name + "_bucket", name + "_sum", name + "_count"});
  }
  return names;
}

Names metrics_in(const std::string& text) {
  static const std::regex kName(R"(\b(tcpx_\w+))");
  const std::vector<std::string> found = all_matches(text, kName);
  return {found.begin(), found.end()};
}

TEST(MetricsDocuments, TheTableHasWhatThereIs) {
  std::map<std::string, Description> table;
  for (const std::string& line : prose_lines(read_file(kRoot / "docs/metrics.md"))) {
    if (!line.starts_with("| `tcpx_")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 5u) << line;
    const std::vector<std::string> labels = code_spans(cells[3]);
    const std::string name = code_spans(cells[0]).front(), type = cells[1].substr(1, cells[1].size() - 2);
    EXPECT_TRUE(table.emplace(name, Description{type, {labels.begin(), labels.end()}}).second) << "two rows for " << name;
    for (const std::string unit : {"bytes", "seconds"})
      EXPECT_EQ(cells[2] == " " + unit + " ", name.find("_" + unit) != std::string::npos) << "unit of " << name;
    EXPECT_NE(cells[4].find_first_not_of(' '), std::string::npos) << name << " has no meaning";
  }
  EXPECT_EQ(table, real_metrics());
}

TEST(MetricsDocuments, QueriesOfThePageNameMetricsThatExist) {
  const Names names = names_of_series(), used = metrics_in(read_file(kRoot / "docs/metrics.md"));
  EXPECT_GT(used.size(), 10u);
  for (const std::string& name : used) EXPECT_TRUE(names.contains(name)) << name;
}

TEST(MetricsDocuments, TheDashboardAsksForMetricsAndLabelsThatExist) {
  static const std::regex kBy(R"(\b(?:by|on|group_left) \(([^)]*)\))"), kWord(R"((\w+))"), kShown(R"(\{\{(\w+)\}\})");
  Names labels = {"instance"};  // of the scrape
  for (auto& [name, metric] : real_metrics()) labels.insert(metric.labels.begin(), metric.labels.end());
  const Names names = names_of_series();
  const auto dashboard = nlohmann::json::parse(read_file(kRoot / "docs/metrics/grafana.json"));
  EXPECT_TRUE(dashboard.at("schemaVersion").is_number_integer());
  Names variables, used;
  for (const auto& variable : dashboard.at("templating").at("list")) {
    variables.insert(variable.at("type").get<std::string>());
    used.merge(metrics_in(variable.at("query")));
  }
  EXPECT_TRUE(variables.contains("datasource"));
  std::set<int> ids;
  for (const auto& panel : dashboard.at("panels")) {
    const std::string title = panel.at("title");
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << title;
    ASSERT_FALSE(panel.at("targets").empty()) << title;
    for (const auto& target : panel.at("targets")) {
      EXPECT_EQ(target.at("datasource").at("uid"), "${datasource}") << title;
      const std::string query = target.at("expr");
      EXPECT_FALSE(metrics_in(query).empty()) << title << ": " << query;
      used.merge(metrics_in(query));
      for (const std::string& list : all_matches(query, kBy)) {
        for (const std::string& label : all_matches(list, kWord)) EXPECT_TRUE(labels.contains(label)) << title << ": " << label;
      }
      for (const std::string& label : all_matches(target.at("legendFormat"), kShown))
        EXPECT_TRUE(labels.contains(label)) << title << ": " << label;
    }
  }
  for (const std::string& name : used) EXPECT_TRUE(names.contains(name)) << name;
  for (const char* needed : {"tcpx_connection_sent_bytes_total", "tcpx_nic_sent_bytes_total",
                             "tcpx_operation_latency_seconds_bucket", "tcpx_operations_failed_total",
                             "tcpx_connection_operations_pending", "tcpx_connection_window_chunks", "tcpx_notifications_waiting"})
    EXPECT_TRUE(used.contains(needed)) << needed;
}

}  // namespace
}  // namespace tcpx::testing
