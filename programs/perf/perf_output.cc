#include "programs/perf/perf_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/result_file.h"

namespace tcpx::perf {
namespace {

double gb_per_second(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(ns);
}

}  // namespace

ProgressLine::ProgressLine() : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const std::string& text) {
  if (!on_terminal_) return;
  const std::string blanks(shown_ > text.size() ? shown_ - text.size() : 0, ' ');
  std::fprintf(stderr, "\r%s%s", text.c_str(), blanks.c_str());
  shown_ = std::max(shown_, text.size());
}

void ProgressLine::clear() {
  if (shown_ == 0) return;
  std::fprintf(stderr, "\r%s\r", std::string(shown_, ' ').c_str());
  shown_ = 0;
}

Status PerfOutput::load() {
  if (quiet_) return Status::ok();
  for (const std::string& path : options_.compare) {
    TCPX_ASSIGN_OR_RETURN(Report report, load_report(path));
    compared_.push_back({std::filesystem::path(path).stem().string(), std::move(report)});
  }
  return Status::ok();
}

void PerfOutput::print(const std::string& text) {
  if (quiet_) return;
  progress_.clear();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void PerfOutput::line(const std::string& text) {
  print(text + '\n');
}

void PerfOutput::begin(const TableHead& head) {
  head_ = head;
  report_ = make_perf_report(head);
  print(head_lines(head) + row_headings(report_.tables.front(), report_row(head, {})));
}

void PerfOutput::progress(uint64_t bytes, bool timed, uint64_t done, uint64_t busy_ns) {
  if (quiet_) return;
  const std::string of = options_.duration > Duration::zero() ? "" : concat("/", options_.iterations);
  progress_.show(concat("  ", format_bytes(bytes), "  ", timed ? concat(done, of) : concat("warming up, ", done), "  ",
                        format_fixed(gb_per_second(bytes * done, busy_ns), 2), " GB/s"));
}

void PerfOutput::row(const PerfRow& row) {
  rows_.push_back(row);
  Table& table = report_.tables.front();
  print(row_line(table, table.rows.emplace_back(report_row(head_, row))));
}

void PerfOutput::unfinished(uint64_t bytes, const EndRow& row) {
  if (row.count == 0) return line(concat("# ", bytes, " bytes: ended before a timed transfer was complete"));
  const double average = static_cast<double>(row.total_ns) / static_cast<double>(row.count);
  line(concat("# ", bytes, " bytes: ended after ", row.count, " timed transfers, on average ", format_measured(average / 1e3),
              " us, ", format_measured(gb_per_second(bytes * row.count, row.total_ns)),
              " GB/s, as this end saw them; not all of them compared"));
}

Status PerfOutput::finish(std::string abi, std::vector<std::string> devices) {
  if (quiet_) return Status::ok();
  progress_.clear();
  if (rows_.empty()) return Status::ok();
  report_.abi = std::move(abi);
  report_.devices = std::move(devices);
  for (const std::string& note : unpack_notes(report_, compared_)) line(concat("# note: ", note));
  line(last_line(rows_.back()));
  return write_files();
}

Status PerfOutput::write_files() {
  if (!options_.csv.empty()) TCPX_RETURN_IF_ERROR(write_file(options_.csv, table_csv(report_.tables.front())));
  return options_.json.empty() ? Status::ok() : save_report(report_, options_.json);
}

std::string PerfOutput::promise() const {
  if (!head_.verified) return "unverified, nothing was unpacked";
  return head_.asked.layer == Layer::kRawTcp ? "what was compared is where it belongs" : "every byte is where it belongs";
}

Status PerfOutput::verdict() const {
  for (const PerfRow& row : rows_) {
    if (row.wrong != 0) {
      return {Code::kMismatch, "compare received bytes",
              concat(row.wrong, " wrong bytes of size ", row.bytes, "; ", row.first_wrong)};
    }
  }
  return Status::ok();
}

}  // namespace tcpx::perf
