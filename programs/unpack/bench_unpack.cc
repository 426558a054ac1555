// bench_unpack: how fast received fragments are gathered on this machine's GPU, beside the ceiling and the other ways there are.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/text.h"
#include "device/gpu_presence.h"
#include "programs/program.h"
#include "programs/unpack/gpu_description.h"
#include "programs/unpack/unpack_bench.h"
#include "programs/unpack/unpack_report.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::bench;     // NOLINT
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

Status write_out(const Options& options, const Report& report) {
  TCPX_ASSIGN_OR_RETURN(const std::string text, report_text(report));
  std::printf("%s\n", text.c_str());
  for (const std::string& note : unpack_notes(report)) std::printf("note: %s\n", note.c_str());
  return options.json.empty() ? Status::ok() : save_report(report, options.json);
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
    if (const Status written = write_out(options, report); !written.is_ok()) return failed(written);
  }
  return measured.is_ok() ? passed("every gathered byte is where it belongs") : failed(measured);
}
