#include "programs/perf/perf_report.h"

#include <map>
#include <utility>

#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/report.h"

namespace tcpx::perf {
namespace {

constexpr char kAbout[] =
    "Transfers between two processes through the net plugin, as an application makes them: cut into chunks, over all channels. "
    "One "
    "way: back to back from the client to the server, times from the completion before (or the begin of a round of up to 64) to "
    "a "
    "transfer's own, at the server. Both ways: the same in both directions at once, times of the slower one, rate of both "
    "together. "
    "Half a round trip: one transfer at a time, there and back, timed at the client. Rates count payload bytes once, over the "
    "average time. Every transfer has a place and content of its own; its bytes are compared outside the timed part. Processor "
    "time "
    "is that of all threads of the process; 100 % is one core.";

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

}  // namespace

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
                       {"chunk bytes", std::to_string(head.chunk_bytes)},
                       {"warm-up", std::to_string(head.warm_up)}};
  if (head.duration > Duration::zero()) {
    report.parameters["seconds of each size"] = format_measured(std::chrono::duration<double>(head.duration).count());
  } else {
    report.parameters["iterations"] = std::to_string(head.iterations);
  }
  if (head.layer != Layer::kPipeline) report.parameters["layer"] = name_of(head.layer);
  if (!head.unpack.empty()) report.parameters[kUnpack] = head.unpack;
  Table table{
      .title = title_of(head.mode),
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
