#include "programs/compare/soft_report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

// Titles of the tables of which scripts/plot.py makes a chart.
constexpr char kBestOneWay[] = "One way, the best of each";
constexpr char kBestPingPong[] = "Half a round trip, the best of each";
constexpr char kBySockets[] = "One way by data sockets";
constexpr char kByUnpacker[] = "Pipeline by unpacker, one way";

constexpr char kRaw[] = "raw TCP";
constexpr char kPipelineSuffix[] = " pipeline";

std::vector<MeasuredRun> runs_with(const std::vector<MeasuredRun>& all, const std::string& memory) {
  std::vector<MeasuredRun> runs;
  std::copy_if(all.begin(), all.end(), std::back_inserter(runs), [&](const MeasuredRun& run) { return run.name == memory; });
  return runs;
}

/// "host pipeline", "gpu pipeline, 4 channels".
std::string pipeline_name(const std::string& memory, uint32_t channels) {
  return channels == 1 ? memory + kPipelineSuffix : concat(memory, kPipelineSuffix, ", ", channels, " channels");
}

/// The runs of each number of channels.
std::map<uint32_t, std::vector<MeasuredRun>> by_channels(const std::vector<MeasuredRun>& all) {
  std::map<uint32_t, std::vector<MeasuredRun>> runs;
  for (const MeasuredRun& run : all) runs[run.channels].push_back(run);
  return runs;
}

std::vector<Line> lines_of(const std::vector<MeasuredRun>& runs, MeasuredBy MeasuredRun::*what) {
  std::vector<Line> lines;
  for (const MeasuredRun& run : runs) {
    lines.push_back({run.sockets > 0 ? sockets_text(run.sockets, run.channels) : run.name, run.*what});
  }
  return lines;
}

/// `over` divided by `under`, where both have the same number of sockets, however many channels those of `over` belong to, and
/// the same key.
Table ratio_by_sockets(const std::string& title, const std::vector<MeasuredRun>& over, const std::vector<MeasuredRun>& under,
                       MeasuredBy MeasuredRun::*what) {
  std::vector<Line> lines;
  for (const MeasuredRun& run : over) {
    const auto found =
        std::find_if(under.begin(), under.end(), [&](const MeasuredRun& other) { return other.sockets == run.sockets; });
    if (found == under.end()) continue;
    Line& line = lines.emplace_back(Line{sockets_text(run.sockets, run.channels), {}});
    for (const auto& [key, above] : run.*what) {
      const auto below = (*found.*what).find(key);
      if (below == (*found.*what).end() || below->second.summary.median <= 0) continue;
      const double ratio = above.summary.median / below->second.summary.median;
      line.values[key] = {.summary = {above.summary.count, ratio, ratio, ratio},
                          .mismatch = above.verified() ? below->second.mismatch : above.mismatch};
    }
  }
  return make_table(By::kSize, title, "", lines, Show::kMedian);
}

/// Kinds of memory of all runs in the order in which they were measured, and the largest message.
struct Extent {
  std::vector<std::string> memories;
  uint64_t largest_bytes = 0;
};
Extent extent_of(const SoftResults& results) {
  Extent extent;
  for (const std::vector<MeasuredRun>* runs : {&results.plugin, &results.pipeline}) {
    for (const MeasuredRun& run : *runs) {
      auto& names = extent.memories;
      if (std::find(names.begin(), names.end(), run.name) == names.end()) names.push_back(run.name);
      if (!run.one_way.empty()) extent.largest_bytes = std::max(extent.largest_bytes, run.one_way.rbegin()->first);
    }
  }
  return extent;
}

/// One value per number of sockets: that of the largest message of all.
std::vector<Line> lines_by_sockets(const SoftResults& results) {
  const Extent extent = extent_of(results);
  std::vector<Line> lines;
  const auto add = [&](const std::string& name, const std::vector<MeasuredRun>& runs) {
    Line& line = lines.emplace_back(Line{name, {}});
    for (const MeasuredRun& run : runs) {
      const auto found = run.one_way.find(extent.largest_bytes);
      if (found != run.one_way.end()) line.values.emplace(run.sockets, found->second);
    }
  };
  for (const std::string& memory : extent.memories) {
    add(memory, runs_with(results.plugin, memory));
    for (const auto& [channels, runs] : by_channels(runs_with(results.pipeline, memory)))
      add(pipeline_name(memory, channels), runs);
  }
  lines.push_back({"raw TCP, in cache", results.raw_in_cache});
  lines.push_back({concat("raw TCP, ", size_text(results.raw_message_bytes)), results.raw_working_set});
  return lines;
}

Table sockets_table(const SoftResults& results) {
  const std::vector<Line> lines = lines_by_sockets(results);
  Table table = make_table(By::kSockets, kBySockets, "GB/s", lines);
  for (const std::string& host : {std::string("host"), pipeline_name("host", 1)}) {
    for (const Line& raw : {lines[lines.size() - 2], lines.back()}) add_ratio_column(table, host, raw.name);
  }
  if (const uint64_t bytes = extent_of(results).largest_bytes; bytes > 0) table.row_heading = concat(size_text(bytes), " over");
  return table;
}

Table long_table(const MeasuredRun& run, uint64_t chunk_bytes) {
  Table table{.title = concat("Long transfers, ", run.name),
              .row_heading = concat("chunks of ", size_text(chunk_bytes)),
              .columns = {{"bytes", "B"}, {"one way", "GB/s"}, {"a chunk", "us"}, {"more memory in core", "KiB"}},
              .rows = {}};
  for (const auto& [chunks, measured] : run.one_way) {
    const double rate = measured.summary.median;  // GB/s: 1000 bytes a microsecond
    Cell chunk_us;
    if (rate > 0) chunk_us = static_cast<double>(chunk_bytes) / 1e3 / rate;
    table.rows.push_back({.name = concat(chunks),
                          .cells = {static_cast<double>(chunks * chunk_bytes), measured.summary, chunk_us,
                                    static_cast<double>(measured.resident_growth_bytes) / 1024},
                          .verified = measured.verified()});
  }
  return table;
}

}  // namespace

void add_soft_tables(const SoftResults& results, Report& report) {
  const auto add = [&](Table table) {
    if (!table.rows.empty()) report.tables.push_back(std::move(table));
  };
  const auto add_rates = [&](const std::string& title, const std::vector<MeasuredRun>& runs) {
    add(make_table(By::kSize, title, "GB/s", lines_of(runs, &MeasuredRun::one_way)));
  };
  const auto add_times = [&](const std::string& title, const std::vector<MeasuredRun>& runs) {
    add(make_table(By::kSize, title, "us", lines_of(runs, &MeasuredRun::ping_pong)));
  };
  const auto add_costs = [&](const std::string& title, const std::vector<MeasuredRun>& runs) {
    add(make_table(By::kSize, title, "GB", lines_of(runs, &MeasuredRun::one_way), Show::kPerCoreSecond));
  };

  std::vector<Line> best_one_way, best_ping_pong;
  const auto add_best = [&](const std::string& name, const std::vector<MeasuredRun>& from) {
    best_one_way.push_back({name, best_of(from, &MeasuredRun::one_way, true)});
    best_ping_pong.push_back({name, best_of(from, &MeasuredRun::ping_pong, false)});
  };
  for (const std::string& memory : extent_of(results).memories) {
    const std::vector<MeasuredRun> bare = runs_with(results.plugin, memory), pipeline = runs_with(results.pipeline, memory);
    add_rates("One way, " + memory, bare);
    add_times("Half a round trip, " + memory, bare);
    add_costs("Per core-second, one way, " + memory, bare);
    add_rates("Pipeline, one way, " + memory, pipeline);
    add(ratio_by_sockets("Pipeline / plugin, one way, " + memory, pipeline, bare, &MeasuredRun::one_way));
    add_times("Pipeline, half a round trip, " + memory, pipeline);
    add(ratio_by_sockets("Pipeline / plugin, half a round trip, " + memory, pipeline, bare, &MeasuredRun::ping_pong));
    add_costs("Pipeline, per core-second, one way, " + memory, pipeline);
    add_best(memory, bare);
    for (const auto& [channels, from] : by_channels(pipeline)) add_best(pipeline_name(memory, channels), from);
  }
  Table unpackers = make_table(By::kSize, kByUnpacker, "GB/s", lines_of(results.unpack, &MeasuredRun::one_way));
  add_ratio_column(unpackers, "kernel", "d2d");
  add(std::move(unpackers));
  for (const MeasuredRun& run : results.long_transfers) add(long_table(run, results.long_chunk_bytes));
  add_rates("One way, NCCL", results.nccl);
  add_times("Half a round trip, NCCL", results.nccl);
  add_costs("Per core-second, one way, NCCL", results.nccl);

  best_ping_pong.push_back({kRaw, results.raw_ping_pong});
  add_best("NCCL", results.nccl);
  Table one_way = make_table(By::kSize, kBestOneWay, "GB/s", best_one_way);
  add_ratio_column(one_way, "gpu", "NCCL");
  add(std::move(one_way));
  Table ping_pong = make_table(By::kSize, kBestPingPong, "us", best_ping_pong);
  add_ratio_column(ping_pong, "host", kRaw);
  add_ratio_column(ping_pong, "gpu", "NCCL");
  add(std::move(ping_pong));
  add(sockets_table(results));
  add(make_table(By::kSockets, "Per core-second by data sockets", "GB", lines_by_sockets(results), Show::kPerCoreSecond));
}

}  // namespace tcpx
