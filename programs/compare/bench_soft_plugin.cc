// bench_soft_plugin: how fast the software plugin moves messages between two processes of this machine, beside raw TCP and NCCL.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <string_view>

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
  bool without_pipeline = false;
  bool long_transfers = false;
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
  app.add_option("--request-bytes", options.run.request_bytes, "most bytes of one request (default 4M)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, uint64_t{kMaxRequestBytes}));
  app.add_flag("--no-pipeline", options.without_pipeline, "the plugin alone");
  app.add_option("--unpack", options.run.unpack,
                 "kernel, d2d, host: how the pipeline unpacks, side by side (default: all, where there is a GPU)")
      ->delimiter(',')
      ->check(CLI::IsMember({"kernel", "d2d", "host"}));
  app.add_flag("--long", options.long_transfers, "transfers of 1 to 32768 chunks of 512K, too, as far as there is memory");
  app.add_option("--plugin", options.run.plugin, "library to measure instead of the plugin of this build")->type_name("FILE");
  add_chart_answer(app, "--chart");
}

/// Completes the options that depend on others, or on the machine.
SoftRunOptions completed(const Options& options, bool quick) {
  SoftRunOptions run = options.run;
  run.pipeline = !options.without_pipeline;
  if (options.long_transfers) run.long_chunks = {1, 8, 64, 512, 2048, 8192, 32768};
  if (quick) {
    run.sizes = {8, 4097, 64 << 10, 4 << 20};
    run.sockets = {1, 4};
    run.channels = {1, 2};
    run.request_bytes = 512 << 10;
    if (options.long_transfers) run.long_chunks = {1, 8, 64};
  }
  for (const std::string& memory : options.memory) run.memory.push_back(memory == "gpu" ? Memory::kGpu : Memory::kHost);
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  Options options;
  ComparisonArguments arguments(200);
  CLI::App app(
      "Measures how fast the software plugin moves messages between two processes of this machine, from host to host memory and\n"
      "from GPU to GPU, driven bare and by the transfer pipeline, beside raw TCP and NCCL's own socket transport. What arrives "
      "is\n"
      "compared.\n"
      "Variables that tune the plugin are obeyed, but for the two that --sockets sets.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  arguments.declare(app);
  app.footer("Example:\n  bench_soft_plugin --json soft.json");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());

  Comparison comparison(arguments.options(), stop_on_interrupt());
  SoftRuns runs(completed(options, comparison.options().quick), comparison);
  const Status measured = runs.run();
  return comparison.finish(measured, runs.report());
}
