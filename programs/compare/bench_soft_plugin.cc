// bench_soft_plugin: how fast the software plugin moves messages between two processes of this machine, beside raw TCP and NCCL.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text.h"
#include "device/gpu_presence.h"
#include "measure/message_plan.h"
#include "programs/compare/soft_report.h"
#include "programs/compare/soft_runs.h"
#include "programs/program.h"
#include "transfer/peer_messages.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::bench;     // NOLINT
using namespace tcpx::programs;  // NOLINT

constexpr int kMostChannelCounts = 4;  // more lines are no chart

struct Options {
  SoftRunOptions run;
  std::vector<std::string> memory;
  std::vector<int> gpus;
  int milliseconds = 200;
  std::string nccl = "auto";
  bool without_pipeline = false;
  bool long_transfers = false;
  bool quick = false;
  std::string json;
};

void declare_options(CLI::App& app, Options& options) {
  app.add_option("--sizes", options.run.sizes, "bytes of the messages (default 8,4K,64K,512K,1M,4M,16M,64M)")
      ->delimiter(',')
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, MessagePlan::kMaxMessageBytes));
  app.add_option("--sockets", options.run.sockets, "data sockets (default 1,4,8,16, as far as the plugin can)")
      ->delimiter(',')
      ->check(CLI::Range(1u, 64u));
  app.add_option("--channels", options.run.channels,
                 "of the pipeline, which share the data sockets (default 1; 1,4 on a machine of 16 cores or more)")
      ->delimiter(',')
      ->expected(1, kMostChannelCounts)
      ->check(CLI::Range(1u, kMaxChannels));
  app.add_option("--memory", options.memory, "host, gpu (default: host, and gpu where there is one)")
      ->delimiter(',')
      ->check(CLI::IsMember({"host", "gpu"}));
  app.add_option("--gpus", options.gpus, "of the sending and the receiving end (default 0,1; 0,0 where there is one)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(0, 1023));
  app.add_option("--request-bytes", options.run.request_bytes, "most bytes of one request (default 4M)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, uint64_t{kMaxRequestBytes}));
  app.add_option("--samples", options.run.row.samples, "per row (default 5)")->check(CLI::Range(size_t{5}, size_t{1000}));
  app.add_option("--milliseconds", options.milliseconds, "per row (default 200)")->check(CLI::Range(1, 10000));
  app.add_flag("--no-pipeline", options.without_pipeline, "the plugin alone");
  app.add_option("--unpack", options.run.unpack,
                 "kernel, d2d, host: how the pipeline unpacks, side by side (default: all, where there is a GPU)")
      ->delimiter(',')
      ->check(CLI::IsMember({"kernel", "d2d", "host"}));
  app.add_flag("--long", options.long_transfers, "transfers of 1 to 32768 chunks of 512K, too, as far as there is memory");
  app.add_option("--plugin", options.run.plugin, "library to measure instead of the plugin of this build")->type_name("FILE");
  app.add_option("--nccl", options.nccl, "auto, off (default auto: where PyTorch with NCCL and two GPUs are)")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_option("--nccl-script", options.run.nccl_script, "where bandwidth.py is (default: in the source tree of this build)")
      ->type_name("FILE");
  app.add_flag("--quick", options.quick, "a few sizes for a few milliseconds, without NCCL: does it work?");
  app.add_option("--json", options.json, "write all numbers to this file; scripts/plot.py draws it")->type_name("FILE");
  add_chart_answer(app, "--chart");
}

/// What depends on other options, or on the machine.
SoftRunOptions completed(const Options& options) {
  SoftRunOptions run = options.run;
  run.row.duration = std::chrono::milliseconds(options.milliseconds);
  run.nccl = options.nccl == "auto";
  run.pipeline = !options.without_pipeline;
  if (options.long_transfers) run.long_chunks = {1, 8, 64, 512, 2048, 8192, 32768};
  if (options.quick) {
    run.sizes = {8, 4097, 64 << 10, 4 << 20};
    run.sockets = {1, 4};
    run.channels = {1, 2};
    run.request_bytes = 512 << 10;
    run.row.duration = std::chrono::milliseconds(20);
    run.nccl = false;
    if (options.long_transfers) run.long_chunks = {1, 8, 64};
  }
  for (const std::string& memory : options.memory) run.memory.push_back(memory == "gpu" ? Memory::kGpu : Memory::kHost);
  if (!options.gpus.empty()) {
    run.gpus = {options.gpus[0], options.gpus[1]};
  } else if (gpu_count().is_ok() && *gpu_count() > 1) {
    run.gpus = {0, 1};
  }
  return run;
}

Status write_out(const Options& options, const Report& report) {
  const Result<std::string> text = report_text(report);
  if (!text.is_ok()) return text.status();
  std::printf("%s\n", text->c_str());
  std::fflush(stdout);  // before what is said on stderr
  return options.json.empty() ? Status::ok() : save_report(report, options.json);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  Options options;
  options.run.nccl_script = TCPX_NCCL_SCRIPT;
  CLI::App app(
      "Measures how fast the software plugin moves messages between two processes of this machine, from host to host memory and\n"
      "from GPU to GPU, driven bare and by the transfer pipeline, beside raw TCP and NCCL's own socket transport. What arrives "
      "is\n"
      "compared.\n"
      "Variables that tune the plugin are obeyed, but for the two that --sockets sets.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  app.footer("Example:\n  bench_soft_plugin --json soft.json");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());

  SoftRuns runs(completed(options), stop_on_interrupt(),
                [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  const Status measured = runs.run();
  const Report report = runs.report();
  if (!report.tables.empty()) {
    if (const Status written = write_out(options, report); !written.is_ok()) return failed(written);
  }
  if (!measured.is_ok()) return failed(measured);
  if (const std::string wrong = first_mismatch(runs.results()); !wrong.empty()) {
    return failed(Status(Code::kMismatch, "compare received bytes", wrong));
  }
  return passed("all bytes that were compared are right");
}
