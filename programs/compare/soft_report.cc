#include "programs/compare/soft_report.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/text.h"
#include "measure/plain_text.h"

namespace tcpx::bench {
namespace {

// Titles of the tables of which scripts/plot.py makes a chart.
constexpr char kBestOneWay[] = "One way, the best of each";
constexpr char kBestPingPong[] = "Half a round trip, the best of each";
constexpr char kBySockets[] = "One way by data sockets";
constexpr char kByUnpacker[] = "Pipeline by unpacker, one way";

constexpr char kRaw[] = "raw TCP";
constexpr char kPipelineSuffix[] = " pipeline";

/// The part of a measurement that a cell shows.
enum class Show { kSummary, kMedian, kPerCoreSecond };

/// A column of a table, with what is in it.
struct Line {
  std::string name;
  MeasuredBy values;
};

struct TableKind {
  std::string title;
  std::string row_heading;
  Column key;  ///< first column: the sort key of the rows
  std::function<std::string(uint64_t)> row_name;
  std::string unit;
  Show show = Show::kSummary;
};

TableKind by_size(std::string title, std::string unit, Show show = Show::kSummary) {
  return {.title = std::move(title),
          .row_heading = "message",
          .key = {"bytes", "B"},
          .row_name = [](uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); },
          .unit = std::move(unit),
          .show = show};
}

TableKind by_sockets(std::string title, std::string unit, Show show = Show::kSummary) {
  return {.title = std::move(title),
          .row_heading = "data sockets",
          .key = {"sockets", ""},
          .row_name = [](uint64_t sockets) { return sockets_text(static_cast<uint32_t>(sockets)); },
          .unit = std::move(unit),
          .show = show};
}

Cell cell_of(const Measured& measured, Show show) {
  if (show == Show::kSummary) return measured.summary;
  if (show == Show::kMedian) return measured.summary.median;
  if (measured.gigabytes_per_core_second > 0) return measured.gigabytes_per_core_second;
  return {};
}

/// A row for every key that any line has; empty cells where a line has not. Lines without values are left out.
Table make_table(const TableKind& kind, std::vector<Line> lines) {
  std::erase_if(lines, [](const Line& line) { return line.values.empty(); });
  Table table{.title = kind.title, .row_heading = kind.row_heading, .columns = {kind.key}, .rows = {}};
  std::set<uint64_t> keys;
  for (const Line& line : lines) {
    table.columns.push_back({line.name, kind.unit});
    for (const auto& [key, value] : line.values) keys.insert(key);
  }
  for (const uint64_t key : keys) {
    Row row{.name = kind.row_name(key), .cells = {static_cast<double>(key)}, .verified = true};
    for (const Line& line : lines) {
      const auto found = line.values.find(key);
      Cell& cell = row.cells.emplace_back();
      if (found == line.values.end()) continue;
      cell = cell_of(found->second, kind.show);
      row.verified &= found->second.verified();
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<PluginRun> runs_with(const std::vector<PluginRun>& all, const std::string& memory) {
  std::vector<PluginRun> runs;
  std::copy_if(all.begin(), all.end(), std::back_inserter(runs), [&](const PluginRun& run) { return run.memory == memory; });
  return runs;
}

/// "host pipeline", "gpu pipeline, 4 channels".
std::string pipeline_name(const std::string& memory, uint32_t channels) {
  return channels == 1 ? memory + kPipelineSuffix : concat(memory, kPipelineSuffix, ", ", channels, " channels");
}

/// The runs of each number of channels.
std::map<uint32_t, std::vector<PluginRun>> by_channels(const std::vector<PluginRun>& all) {
  std::map<uint32_t, std::vector<PluginRun>> runs;
  for (const PluginRun& run : all) runs[run.channels].push_back(run);
  return runs;
}

/// `over` divided by `under`, where both have the same number of sockets, however many channels those of `over` belong to, and
/// the same key.
Table ratio_by_sockets(const std::string& title, const std::vector<PluginRun>& over, const std::vector<PluginRun>& under,
                       MeasuredBy PluginRun::*what) {
  std::vector<Line> lines;
  for (const PluginRun& run : over) {
    const auto found =
        std::find_if(under.begin(), under.end(), [&](const PluginRun& other) { return other.sockets == run.sockets; });
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
  return make_table(by_size(title, "", Show::kMedian), lines);
}

/// In the order in which they were measured.
std::vector<std::string> memories(const SoftResults& results) {
  std::vector<std::string> names;
  for (const std::vector<PluginRun>* runs : {&results.plugin, &results.pipeline}) {
    for (const PluginRun& run : *runs) {
      if (std::find(names.begin(), names.end(), run.memory) == names.end()) names.push_back(run.memory);
    }
  }
  return names;
}

std::vector<Line> lines_by_sockets(const std::vector<PluginRun>& runs, MeasuredBy PluginRun::*what) {
  std::vector<Line> lines;
  for (const PluginRun& run : runs) lines.push_back({sockets_text(run.sockets, run.channels), run.*what});
  return lines;
}

std::vector<Line> lines_by_label(const std::vector<NcclRun>& runs, MeasuredBy NcclRun::*what) {
  std::vector<Line> lines;
  for (const NcclRun& run : runs) lines.push_back({run.label, run.*what});
  return lines;
}

/// One value per number of sockets: that of the largest message of each run.
MeasuredBy largest_by_sockets(const std::vector<PluginRun>& runs, uint64_t bytes) {
  MeasuredBy values;
  for (const PluginRun& run : runs) {
    if (const auto found = run.one_way.find(bytes); found != run.one_way.end()) values.emplace(run.sockets, found->second);
  }
  return values;
}

uint64_t largest_message(const SoftResults& results) {
  uint64_t largest = 0;
  for (const std::vector<PluginRun>* runs : {&results.plugin, &results.pipeline}) {
    for (const PluginRun& run : *runs) {
      if (!run.one_way.empty()) largest = std::max(largest, run.one_way.rbegin()->first);
    }
  }
  return largest;
}

std::vector<Line> sockets_lines(const SoftResults& results) {
  std::vector<Line> lines;
  for (const std::string& memory : memories(results)) {
    lines.push_back({memory, largest_by_sockets(runs_with(results.plugin, memory), largest_message(results))});
    for (const auto& [channels, runs] : by_channels(runs_with(results.pipeline, memory)))
      lines.push_back({pipeline_name(memory, channels), largest_by_sockets(runs, largest_message(results))});
  }
  MeasuredBy in_cache, working_set;
  for (const RawRun& run : results.raw) {
    in_cache.emplace(run.streams, run.in_cache);
    working_set.emplace(run.streams, run.working_set);
  }
  lines.push_back({"raw TCP, in cache", std::move(in_cache)});
  lines.push_back({concat("raw TCP, ", format_bytes(static_cast<double>(results.raw_message_bytes))), std::move(working_set)});
  return lines;
}

Table unpack_table(const std::vector<UnpackRun>& runs) {
  std::vector<Line> lines;
  for (const UnpackRun& run : runs) lines.push_back({run.unpack, run.one_way});
  Table table = make_table(by_size(kByUnpacker, "GB/s"), lines);
  add_ratio_column(table, "kernel", "d2d");
  return table;
}

Table long_table(const LongRun& run, uint64_t chunk_bytes) {
  Table table{.title = concat("Long transfers, ", run.memory),
              .row_heading = concat("chunks of ", format_bytes(static_cast<double>(chunk_bytes))),
              .columns = {{"bytes", "B"}, {"one way", "GB/s"}, {"a chunk", "us"}, {"more memory in core", "KiB"}},
              .rows = {}};
  for (const auto& [chunks, measured] : run.by_chunks) {
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

Table sockets_table(const SoftResults& results) {
  const uint64_t bytes = largest_message(results);
  const std::vector<Line> lines = sockets_lines(results);
  Table table = make_table(by_sockets(kBySockets, "GB/s"), lines);
  for (const std::string& host : {std::string("host"), pipeline_name("host", 1)}) {
    for (const Line& raw : {lines[lines.size() - 2], lines.back()}) add_ratio_column(table, host, raw.name);
  }
  if (bytes > 0) table.row_heading = concat(format_bytes(static_cast<double>(bytes)), " over");
  return table;
}

constexpr char kAbout[] =
    "Two processes of this machine, connected over loopback TCP by one connection of the plugin each way. They drive its "
    "version 7 table as a consumer of the ABI does: messages cut into requests, up to 16 outstanding, receives posted ahead; "
    "with GPU memory every message is gathered into its place before its request is consumed. One way: messages back to back, "
    "from the first isend until the receiving end has everything in place, message bytes counted once. Half a round trip: one "
    "message at a time back and forth, both ends polling. Who waits for much on a machine of few cores sleeps 50 us at a "
    "time. Per core-second: bytes moved by the processor time of both processes, all threads, polling included. Raw TCP: "
    "blocking writes and reads of one thread per stream and end, each stream over the same bytes again and again (in cache), "
    "or over its share of a message larger than most caches; the first is the ceiling of small messages, the second of large "
    "ones. Its ping-pong polls. Pipeline: the same messages as transfers of the library, several submitted ahead, polled in "
    "the same way, in chunks as large as the requests of the bare plugin; they take turns row by row, and the ratio is that of "
    "the medians. With several channels a connection of the pipeline goes over as many connections of the plugin, which share "
    "the data sockets of the row evenly. Long transfers: one after the other; more memory in core is what both processes have "
    "grown by from before the first message of the row, whose memory is in use by then, to after the last. NCCL: send and recv "
    "of PyTorch over its own socket transport between the two GPUs, peer access and shared memory off, processor time of both "
    "ranks. The best of each: of the plugin over all numbers of data sockets, of NCCL over all its settings.";

}  // namespace

Report make_soft_report(const SoftResults& results, std::vector<std::string> devices,
                        std::map<std::string, std::string> parameters) {
  Report report;
  report.key = "bench_soft_plugin";
  report.about = kAbout;
  report.devices = std::move(devices);
  report.parameters = std::move(parameters);
  const auto add = [&](Table table) {
    if (!table.rows.empty()) report.tables.push_back(std::move(table));
  };

  std::vector<Line> best_one_way, best_ping_pong;
  for (const std::string& memory : memories(results)) {
    const std::vector<PluginRun> runs = runs_with(results.plugin, memory), pipeline = runs_with(results.pipeline, memory);
    add(make_table(by_size(concat("One way, ", memory), "GB/s"), lines_by_sockets(runs, &PluginRun::one_way)));
    add(make_table(by_size(concat("Half a round trip, ", memory), "us"), lines_by_sockets(runs, &PluginRun::ping_pong)));
    add(make_table(by_size(concat("Per core-second, one way, ", memory), "GB", Show::kPerCoreSecond),
                   lines_by_sockets(runs, &PluginRun::one_way)));
    add(make_table(by_size(concat("Pipeline, one way, ", memory), "GB/s"), lines_by_sockets(pipeline, &PluginRun::one_way)));
    add(ratio_by_sockets(concat("Pipeline / plugin, one way, ", memory), pipeline, runs, &PluginRun::one_way));
    add(make_table(by_size(concat("Pipeline, half a round trip, ", memory), "us"),
                   lines_by_sockets(pipeline, &PluginRun::ping_pong)));
    add(ratio_by_sockets(concat("Pipeline / plugin, half a round trip, ", memory), pipeline, runs, &PluginRun::ping_pong));
    add(make_table(by_size(concat("Pipeline, per core-second, one way, ", memory), "GB", Show::kPerCoreSecond),
                   lines_by_sockets(pipeline, &PluginRun::one_way)));
    const auto add_best = [&](const std::string& name, const std::vector<PluginRun>& from) {
      best_one_way.push_back({name, best_of(from, &PluginRun::one_way, true)});
      best_ping_pong.push_back({name, best_of(from, &PluginRun::ping_pong, false)});
    };
    add_best(memory, runs);
    for (const auto& [channels, from] : by_channels(pipeline)) add_best(pipeline_name(memory, channels), from);
  }
  add(unpack_table(results.unpack));
  for (const LongRun& run : results.long_transfers) add(long_table(run, results.long_chunk_bytes));
  add(make_table(by_size("One way, NCCL", "GB/s"), lines_by_label(results.nccl, &NcclRun::one_way)));
  add(make_table(by_size("Half a round trip, NCCL", "us"), lines_by_label(results.nccl, &NcclRun::ping_pong)));
  add(make_table(by_size("Per core-second, one way, NCCL", "GB", Show::kPerCoreSecond),
                 lines_by_label(results.nccl, &NcclRun::one_way)));

  best_one_way.push_back({"NCCL", best_of(results.nccl, &NcclRun::one_way, true)});
  best_ping_pong.push_back({kRaw, results.raw_ping_pong});
  best_ping_pong.push_back({"NCCL", best_of(results.nccl, &NcclRun::ping_pong, false)});
  Table one_way = make_table(by_size(kBestOneWay, "GB/s"), best_one_way);
  add_ratio_column(one_way, "gpu", "NCCL");
  add(std::move(one_way));
  Table ping_pong = make_table(by_size(kBestPingPong, "us"), best_ping_pong);
  add_ratio_column(ping_pong, "host", kRaw);
  add_ratio_column(ping_pong, "gpu", "NCCL");
  add(std::move(ping_pong));
  add(sockets_table(results));
  add(make_table(by_sockets("Per core-second by data sockets", "GB", Show::kPerCoreSecond), sockets_lines(results)));
  return report;
}

std::string sockets_text(uint32_t sockets, uint32_t channels) {
  const uint32_t each = sockets / channels;
  return concat(channels == 1 ? "" : concat(channels, " channels x "), each, each == 1 ? " socket" : " sockets");
}

}  // namespace tcpx::bench
