#include "programs/perf/perf_report.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/words.h"
#include "measure/end.h"
#include "measure/plain_text.h"

namespace tcpx::perf {
namespace {

constexpr char kAbout[] =
    "Transfers between two processes through the net plugin, as an application makes them: cut into chunks, over all channels. "
    "One way: back to back from the client to the server, times from the completion before (or the begin of a round of up to "
    "64) to a transfer's own, at the server. Both ways: the same in both directions at once, times of the slower one, rate of "
    "both together. Half a round trip: one transfer at a time, there and back, timed at the client. Rates count payload bytes "
    "once, over the average time. Every transfer has a place and content of its own; its bytes are compared outside the timed "
    "part. Processor time is that of all threads of the process; 100 % is one core.";

constexpr char kUnpack[] = "unpack";

/// "" also for one that moves nothing.
std::string_view unpack_of(const Report& report) {
  const auto found = report.parameters.find(kUnpack);
  return found == report.parameters.end() || found->second == "none" ? std::string_view() : found->second;
}

/// Rates by size, of the table that this tool writes for a mode.
std::map<double, double> rates_of(const Report& report, const std::string& title) {
  std::map<double, double> rates;
  for (const Table& table : report.tables) {
    if (table.title != title) continue;
    for (const Row& row : table.rows) {
      std::optional<double> bytes, rate;
      for (size_t i = 0; i < table.columns.size(); ++i) {
        if (table.columns[i].name == "bytes") bytes = number_in(row.cells[i]);
        if (table.columns[i].name == "rate") rate = number_in(row.cells[i]);
      }
      if (bytes && rate) rates[*bytes] = *rate;
    }
  }
  return rates;
}

/// Empty when there were too few transfers to say.
Cell tail(const std::optional<double>& us) {
  return us ? Cell(*us) : Cell();
}

std::string what_is_sent(Pattern mode) {
  switch (mode) {
    case Pattern::kOneWay:
      return "one way, client to server, transfers back to back; times as the server sees them";
    case Pattern::kBothWays:
      return "both ways at once, transfers back to back; times of the slower direction, rates of both together";
    case Pattern::kPingPong:
      return "one transfer at a time, there and back; times are half of a round trip as the client sees it";
    case Pattern::kIdle:
      break;
  }
  return "";
}

std::string over_what(const TableHead& head) {
  const std::string chunks = concat(" of ", head.asked.pipeline.chunk_bytes, " bytes");
  switch (head.asked.layer) {
    case Layer::kRawTcp:
      return concat("layer tcp: ", head.channels, head.channels == 1 ? " stream" : " streams", ", calls", chunks,
                    "; times are averages of a round");
    case Layer::kPlugin:
      return concat("layer plugin: one comm, requests", chunks, "; times are averages of a round");
    case Layer::kPipeline:
      return concat(head.channels, head.channels == 1 ? " channel" : " channels", " over ", joined(head.nics), "; chunks", chunks,
                    head.longest_chunk_bytes > head.asked.pipeline.chunk_bytes
                        ? concat(", of long transfers ", head.longest_chunk_bytes)
                        : "",
                    ", tag=", kMeasuredTag, " and up");
    case Layer::kEndpoint:
      return "layer endpoint: sends and receives; times are averages of a round";
  }
  return "";
}

const char* what_is_compared(const TableHead& head) {
  if (!head.verified) return "UNVERIFIED: nothing is unpacked, nothing compared";
  return head.asked.layer == Layer::kRawTcp ? "the last transfer of each round is compared, outside the timed part"
                                            : "every byte of every transfer is compared, outside the timed part";
}

std::string how_often(const TableHead& head) {
  const std::string warm_up = concat(head.asked.warm_up, " transfers to warm up, then ");
  if (head.asked.duration <= Duration::zero()) return concat(warm_up, head.asked.iterations, " timed ones of each size");
  const double seconds = std::chrono::duration<double>(head.asked.duration).count();
  return concat(warm_up, "timed ones for ", format_measured(seconds), " s of each size");
}

}  // namespace

std::string head_lines(const TableHead& head) {
  return concat("# test_tcpx_perf ", head.version, ": ", what_is_sent(head.asked.mode), "\n# server: ", head.server,
                "\n# client: ", head.client, "\n# ", over_what(head), "; ", how_often(head),
                "\n# rate: bytes / average time, 1 GB = 1e9 bytes; of a NIC: at the server; CPU: 100 % is one core\n# ",
                what_is_compared(head), "\n# p99 needs ", kSamplesOfP99, " transfers of a size, p99.9 ", kSamplesOfP999,
                " (-n): \"-\" where there were fewer\n#\n");
}

std::string last_line(const PerfRow& row) {
  return concat("[PERF] Avg: ", format_fixed(row.average_us / 1e3, 3), " ms, BW: ", format_fixed(row.gb_per_second, 2), " GB/s (",
                format_bytes(row.bytes), ", the last size", row.verified ? "" : ", unverified", ")");
}

Report make_perf_report(const TableHead& head) {
  Report report;
  report.key = "test_tcpx_perf";
  report.about = kAbout;
  report.parameters = {{"server", head.server},
                       {"client", head.client},
                       {"channels", std::to_string(head.channels)},
                       {"chunk bytes", std::to_string(head.asked.pipeline.chunk_bytes)},
                       {"warm-up", std::to_string(head.asked.warm_up)}};
  if (head.asked.duration > Duration::zero()) {
    report.parameters["seconds of each size"] = format_measured(std::chrono::duration<double>(head.asked.duration).count());
  } else {
    report.parameters["iterations"] = std::to_string(head.asked.iterations);
  }
  if (head.longest_chunk_bytes > head.asked.pipeline.chunk_bytes)
    report.parameters["longest chunk bytes"] = std::to_string(head.longest_chunk_bytes);
  if (head.asked.layer != Layer::kPipeline) report.parameters["layer"] = name_of(head.asked.layer);
  if (!head.unpack.empty()) report.parameters[kUnpack] = head.unpack;
  Table table{
      .title = title_of(head.asked.mode),
      .row_heading = "size",
      .columns = {{"bytes", "B"}, {"time", "us"}, {"p99", "us"}, {"p99.9", "us"}, {"average time", "us"}, {"rate", "GB/s"}},
      .rows = {}};
  for (const std::string& nic : head.nics) table.columns.push_back({concat("rate of ", nic), "GB/s"});
  for (const char* cpu : {"server CPU", "client CPU"}) table.columns.push_back({cpu, "%"});
  table.columns.push_back({"wrong", "B"});
  report.tables.push_back(std::move(table));
  return report;
}

Row report_row(const TableHead& head, const PerfRow& row) {
  std::vector<Cell> cells = {
      static_cast<double>(row.bytes), row.time, tail(row.p99), tail(row.p999), row.average_us, row.gb_per_second};
  for (const std::string& nic : head.nics) {
    const auto rate = row.nics.find(nic);
    cells.push_back(rate == row.nics.end() ? Cell() : rate->second);
  }
  cells.insert(cells.end(), {row.server_cpu, row.client_cpu, static_cast<double>(row.wrong)});
  return {concat(row.bytes, " B"), std::move(cells), row.verified && row.wrong == 0};
}

std::vector<std::string> unpack_notes(const Report& mine, const std::vector<NamedReport>& others) {
  std::vector<std::string> notes;
  if (unpack_of(mine).empty()) return notes;
  const std::string& title = mine.tables.front().title;
  const std::map<double, double> rates = rates_of(mine, title);
  for (const NamedReport& other : others) {
    if (unpack_of(other.report).empty() || unpack_of(other.report) == unpack_of(mine)) continue;
    std::string note;
    for (const auto& [bytes, rate] : rates_of(other.report, title)) {
      const auto same = rates.find(bytes);
      if (same == rates.end()) continue;
      const std::string name = concat(unpack_of(other.report), " (", other.name, ")");
      const std::string text = unpack_note(format_bytes(bytes), {unpack_of(mine), same->second}, {name, rate});
      if (!text.empty()) note = text;
    }
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace tcpx::perf
