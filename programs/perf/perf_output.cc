#include "programs/perf/perf_output.h"

#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/result_file.h"
#include "tcpx/help.h"

namespace tcpx::perf {
namespace {

double gb_per_second(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(ns);
}

}  // namespace

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

PerfListener PerfOutput::listener() {
  return {.on_begin =
              [this](const TableHead& head) {
                head_ = head;
                print(table_head(head));
              },
          .on_progress =
              [this](const RowProgress& now) {
                if (quiet_) return;
                const double moved = static_cast<double>(now.bytes) * static_cast<double>(now.done);
                const double rate = now.busy_ns == 0 ? 0 : moved / static_cast<double>(now.busy_ns);
                const std::string of = options_.duration > Duration::zero() ? "" : concat("/", options_.iterations);
                const std::string done = now.timed ? concat(now.done, of) : concat("warming up, ", now.done);
                progress_.show(
                    concat("  ", format_bytes(static_cast<double>(now.bytes)), "  ", done, "  ", format_fixed(rate, 2), " GB/s"));
              },
          .on_row =
              [this](const PerfRow& row) {
                rows_.push_back(row);
                print(table_line(row));
              }};
}

void PerfOutput::show_unfinished(const PerfEnd& end) {
  const EndRow& row = end.unfinished();
  if (end.unfinished_bytes() == 0) return;
  if (row.count == 0) return line(concat("# ", end.unfinished_bytes(), " bytes: ended before a timed transfer was complete"));
  const double average = static_cast<double>(row.total_ns) / static_cast<double>(row.count);
  line(concat("# ", end.unfinished_bytes(), " bytes: ended after ", row.count, " timed transfers, on average ",
              format_measured(average / 1e3), " us, ",
              format_measured(gb_per_second(end.unfinished_bytes() * row.count, row.total_ns)),
              " GB/s, as this end saw them; not all of them compared"));
}

Status PerfOutput::finish(std::string abi, std::vector<std::string> devices) {
  if (quiet_) return Status::ok();
  progress_.clear();
  if (rows_.empty()) return Status::ok();
  const Report report = make_perf_report(head_, rows_, std::move(abi), std::move(devices));
  for (const std::string& note : unpack_notes(report, compared_)) line(concat("# note: ", note));
  line(last_line(rows_.back()));
  return write_files(report);
}

Status PerfOutput::write_files(const Report& report) {
  if (!options_.csv.empty()) {
    std::string csv = csv_head(head_.nics);
    for (const PerfRow& row : rows_) csv += csv_line(row);
    TCPX_RETURN_IF_ERROR(write_file(options_.csv, csv));
  }
  return options_.json.empty() ? Status::ok() : save_report(report, options_.json);
}

std::string PerfOutput::promise() const {
  if (!head_.verified) return "unverified, nothing was unpacked";
  return head_.layer == Layer::kTcp ? "what was compared is where it belongs" : "every byte is where it belongs";
}

Status PerfOutput::verdict() const {
  for (const PerfRow& row : rows_) {
    if (row.wrong != 0) {
      return {Code::kMismatch, "compare received bytes",
              concat(row.wrong, " wrong bytes of size ", row.bytes, "; ", row.first_wrong,
                     "; received pages that were overwritten look like this", name_in_detail(Hint::kConsumedEarly))};
    }
  }
  return Status::ok();
}

}  // namespace tcpx::perf
