// bench_unpack: how fast received fragments are gathered on this machine's GPU, beside the ceiling and the other ways there are.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/text.h"
#include "device/gpu_presence.h"
#include "measure/report.h"
#include "programs/program.h"
#include "programs/unpack/gpu_description.h"
#include "programs/unpack/unpack_bench.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

struct Options {
  UnpackBenchOptions bench;
  std::string json;
};

void declare_options(CLI::App& app, Options& options) {
  app.add_option("--gpu", options.bench.gpu, "which GPU (default 0)")->check(CLI::Range(0, 1023));
  app.add_option("--bytes", options.bench.bytes, "gathered by one operation (default 64MiB)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{128} << 20));
  app.add_option("--pool", options.bench.pool_bytes, "pool in which the fragments lie permuted (default 1GiB)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{128} << 20, uint64_t{4} << 30));
  app.add_option("--samples", options.bench.samples, "per number (default 21)")->check(CLI::Range(size_t{5}, size_t{1000}));
  app.add_option("--json", options.json, "write all numbers to this file; scripts/plot.py draws it")->type_name("FILE");
  add_chart_answer(app, "--chart");
}

/// Without tables. @param device "NVIDIA H200, driver 580.159.04"
Report make_unpack_report(const std::string& device, const UnpackBenchOptions& options) {
  Report report;
  report.key = "bench_unpack";
  report.about =
      "Gathers fragments that lie permuted in a pool into one destination, and compares every gathered byte. GB/s counts the "
      "gathered bytes once (memory reads and writes each as many). Times are GPU times between two events on an idle GPU "
      "around the copy call or the kernel launch, unless a table says otherwise; d2d and host are timed by the host's clock, "
      "from submit to done. The tcpx kernel reads its list of fragments from mapped pinned host memory, the other kernels "
      "from device memory.";
  report.devices = {device};
  report.parameters = {
      {"bytes", concat(options.bytes)}, {"pool bytes", concat(options.pool_bytes)}, {"samples", concat(options.samples)}};
  return report;
}

/// Appends `table`, and behind it the ratios to its first row where that is the ceiling of the others.
Status add_with_ratios(Report& report, Table table) {
  const bool has_ceiling = table.row_heading == "method" && table.rows.size() > 1;
  report.tables.push_back(std::move(table));
  if (!has_ceiling) return Status::ok();
  const Table& measured = report.tables.back();
  TCPX_ASSIGN_OR_RETURN(Table ratios,
                        ratio_table(measured, measured.rows.front().name, measured.title + ": ratio to the contiguous copy"));
  report.tables.push_back(std::move(ratios));
  return Status::ok();
}

/// Notes for unpackers that gathered faster than the kernel; for each kind of fragments at most one note.
std::vector<std::string> unpack_notes(const Report& report) {
  std::vector<std::string> notes;
  const auto is_by_method = [](const Table& table) { return table.title == "By method"; };
  const auto table = std::find_if(report.tables.begin(), report.tables.end(), is_by_method);
  if (table == report.tables.end()) return notes;
  const auto rate = [&](std::string_view method, size_t column) {
    for (const Row& row : table->rows) {
      if (row.name == method) return number_in(row.cells[column]).value_or(0);
    }
    return 0.0;
  };
  for (size_t i = 0; i < table->columns.size(); ++i) {
    std::string note = unpack_note(table->columns[i].name, {"kernel", rate("tcpx kernel", i)}, {"d2d", rate("tcpx d2d", i)});
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

Status run(const Options& options, MemoryOps& memory, Report& report) {
  const std::atomic<bool>& stop = stop_on_interrupt();
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackBench> bench, UnpackBench::create(options.bench, memory, stop));
  TCPX_ASSIGN_OR_RETURN(std::string device, gpu_description(options.bench.gpu));
  report = make_unpack_report(device, options.bench);
  using Measurement = Result<Table> (UnpackBench::*)();
  for (const Measurement measurement :
       {&UnpackBench::by_method, &UnpackBench::by_method_queued, &UnpackBench::from_mapped_host, &UnpackBench::by_fragment_bytes,
        &UnpackBench::by_blocks, &UnpackBench::sustained, &UnpackBench::costs}) {
    if (stop) break;
    TCPX_ASSIGN_OR_RETURN(Table table, (bench.get()->*measurement)());
    TCPX_RETURN_IF_ERROR(add_with_ratios(report, std::move(table)));
  }
  return stop ? Status(Code::kCancelled, "bench_unpack", "what was measured before is above") : Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures how fast the fragments of received messages are gathered by the GPU, beside a contiguous copy (the ceiling) and\n"
      "other ways to do it. Every number is of bytes that were compared.\n"
      "Exit code: 0 done, 1 failed, 2 usage, 77 no GPU here.");
  declare_options(app, options);
  app.footer("Example:\n  bench_unpack --json unpack.json");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());

  if (const Result<int>& gpus = gpu_count(); !gpus.is_ok()) return skipped(gpus.status().detail());
  const std::unique_ptr<MemoryOps> memory = make_machine_memory_ops();
  Report report;
  const Status measured = run(options, *memory, report);
  if (!report.tables.empty()) {
    if (const Status published = publish_report(report, options.json); !published.is_ok()) return failed(published);
    for (const std::string& note : unpack_notes(report)) std::printf("note: %s\n", note.c_str());
  }
  return measured.is_ok() ? passed("every gathered byte is where it belongs") : failed(measured);
}
