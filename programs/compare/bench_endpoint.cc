// bench_endpoint: how fast endpoints of two processes of this machine move memory, beside the bare transfer pipeline and NCCL.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "measure/end_process.h"
#include "programs/compare/endpoint_runs.h"
#include "programs/program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::bench;     // NOLINT
using namespace tcpx::programs;  // NOLINT

void declare_options(CLI::App& app, EndpointRunOptions& options) {
  app.add_option("--only", options.only, "bulk, vector, latency, small, peers, memory (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember(endpoint_sections()));
  app.add_option("--peers", options.peers, "of the sections peers and memory (default 64)")->check(CLI::Range(1u, 1024u));
}

/// Many peers take many sockets. The ends inherit it.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  EndpointRunOptions options;
  ComparisonArguments arguments(500);
  CLI::App app(
      "Measures how fast endpoints of two processes of this machine move memory, GPU to GPU where there are any: long messages\n"
      "beside the bare transfer pipeline, vectors beside contiguous memory, latency beside NCCL, small messages, many peers, "
      "and\n"
      "what a connection costs. What arrives is compared.\n"
      "Variables that tune endpoints and plugin are obeyed (docs/env.md), UCCL_TCPX_NUM_CHANNELS first of all.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  arguments.declare(app);
  app.footer("Example:\n  UCCL_TCPX_NUM_CHANNELS=4 bench_endpoint --gpus 0,1 --json endpoint.json");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());
  const Result<PipelineSettings> pipeline = PipelineSettings::from_environment();
  if (!pipeline.is_ok()) return failed(pipeline.status());
  options.settings = *pipeline;
  allow_many_descriptors();

  Comparison comparison(arguments.options(), stop_on_interrupt());
  if (comparison.options().quick) options.peers = std::min(options.peers, 4u);
  EndpointRuns runs(options, comparison);
  const Status measured = runs.run();
  return comparison.finish(measured, runs.report());
}
