#include "programs/perf/perf_report.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/text.h"
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

std::string right(std::string_view text, size_t width) {
  return concat(std::string(width > text.size() ? width - text.size() : 1, ' '), text);
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? std::string_view() : separator).append(word);
  return text;
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
      return concat(
          head.channels, head.channels == 1 ? " channel" : " channels", " over ", join(head.nics, ", "), "; chunks", chunks,
          head.longest_chunk_bytes > head.asked.pipeline.chunk_bytes ? concat(", of long transfers ", head.longest_chunk_bytes)
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

/// A value of a row, as the table and the CSV file have it.
struct Printed {
  std::string heading, unit;
  size_t width;  // with the blank in front; 0: not in the table
  std::string text;
  std::string csv_heading;  // "": not in the file
  std::string csv;
};

/// "-", or nothing, where it is not known: too few transfers.
Printed time_of(std::string heading, std::string csv_heading, std::optional<double> us, bool in_table = true) {
  return {std::move(heading),        "(us)",
          in_table ? size_t{11} : 0, us ? format_measured(*us) : "-",
          std::move(csv_heading),    us ? format_fixed(*us, 3) : ""};
}

Printed cpu_of(const std::string& end, double percent) {
  return {end, "(CPU %)", 8, format_fixed(percent, 0), concat(end, "_cpu_percent"), format_fixed(percent, 1)};
}

std::vector<Printed> printed(const PerfRow& row) {
  const bool latency = row.mode == Pattern::kPingPong;  // has its tail in the table, too
  const std::string size = std::to_string(row.bytes), count = std::to_string(row.time.count);
  const std::string wrong = row.verified ? std::to_string(row.wrong) : "unverified";
  std::vector<std::string> rates;
  for (const NicRate& nic : row.nics) rates.push_back(format_measured(nic.gb_per_second));
  std::vector<Printed> values = {
      {"size", "(B)", 13, size, "bytes", size},
      {"count", "", 8, count, "count", count},
      time_of("min", "min_us", row.time.min),
      time_of(latency ? "p50" : "median", "p50_us", row.time.median),
      time_of("p99", "p99_us", row.p99, latency),
      time_of("p99.9", "p99.9_us", row.p999, latency),
      time_of("max", "max_us", row.time.max),
      time_of("average", "average_us", row.average_us),
      {"rate", "(GB/s)", 9, format_measured(row.gb_per_second), "gb_per_second", format_fixed(row.gb_per_second, 6)},
      // The rates of all NICs in one column, "5.21+5.18".
      {"by NIC", "(GB/s)", std::max<size_t>(14, row.nics.size() * 7 + 1), join(rates, "+"), "", ""}};
  for (const NicRate& nic : row.nics) {
    values.push_back({"", "", 0, "", concat("gb_per_second_", nic.nic), format_fixed(nic.gb_per_second, 6)});
  }
  values.push_back(cpu_of("server", row.server_cpu));
  values.push_back(cpu_of("client", row.client_cpu));
  values.push_back({"wrong", "(B)", 12, wrong, "wrong_bytes", wrong});
  return values;
}

std::string table_text(const std::vector<Printed>& values, std::string Printed::*part) {
  std::string text;
  for (const Printed& value : values) {
    if (value.width > 0) text += right(value.*part, value.width);
  }
  return text + '\n';
}

std::string csv_text(const std::vector<Printed>& values, std::string Printed::*part) {
  std::string text;
  for (const Printed& value : values) {
    if (!value.csv_heading.empty()) text += concat(text.empty() ? "" : ",", value.*part);
  }
  return text + '\n';
}

/// For headings.
PerfRow row_with(const std::vector<std::string>& nics) {
  PerfRow row;
  for (const std::string& nic : nics) row.nics.push_back({nic});
  return row;
}

}  // namespace

std::string table_head(const TableHead& head) {
  std::string text = concat("# test_tcpx_perf ", head.version, ": ", what_is_sent(head.asked.mode), "\n# server: ", head.server,
                            "\n# client: ", head.client, "\n# ", over_what(head), "; ", how_often(head),
                            "\n# GB/s: bytes / average time, 1 GB = 1e9 bytes; by NIC: of the server; CPU: 100 % is one core\n# ",
                            what_is_compared(head),
                            head.asked.mode != Pattern::kPingPong
                                ? ""
                                : concat("\n# p50 is the median; p99 needs ", kSamplesOfP99, " transfers of a size, p99.9 ",
                                         kSamplesOfP999, " (-n): \"-\" where there were fewer"),
                            "\n#\n");
  PerfRow row = row_with(head.nics);
  row.mode = head.asked.mode;
  for (std::string Printed::*part : {&Printed::heading, &Printed::unit}) {
    std::string line = table_text(printed(row), part);
    line.front() = '#';
    text += line;
  }
  return text;
}

std::string table_line(const PerfRow& row) {
  return table_text(printed(row), &Printed::text);
}

std::string last_line(const PerfRow& row) {
  return concat("[PERF] Avg: ", format_fixed(row.average_us / 1e3, 3), " ms, BW: ", format_fixed(row.gb_per_second, 2), " GB/s (",
                format_bytes(static_cast<double>(row.bytes)), ", the last size", row.verified ? "" : ", unverified", ")");
}

std::string csv_head(const std::vector<std::string>& nics) {
  return csv_text(printed(row_with(nics)), &Printed::csv_heading);
}

std::string csv_line(const PerfRow& row) {
  return csv_text(printed(row), &Printed::csv);
}

Report make_perf_report(const TableHead& head, const std::vector<PerfRow>& rows, std::string abi,
                        std::vector<std::string> devices) {
  Report report;
  report.key = "test_tcpx_perf";
  report.about = kAbout;
  report.abi = std::move(abi);
  report.devices = std::move(devices);
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
  for (const PerfRow& row : rows) {
    std::vector<Cell> cells = {
        static_cast<double>(row.bytes), row.time, tail(row.p99), tail(row.p999), row.average_us, row.gb_per_second};
    for (const std::string& nic : head.nics) {
      Cell& cell = cells.emplace_back();
      for (const NicRate& rate : row.nics) {
        if (rate.nic == nic) cell = rate.gb_per_second;
      }
    }
    cells.insert(cells.end(), {row.server_cpu, row.client_cpu, static_cast<double>(row.wrong)});
    table.rows.push_back({concat(row.bytes, " B"), std::move(cells), row.verified && row.wrong == 0});
  }
  report.tables.push_back(std::move(table));
  return report;
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
