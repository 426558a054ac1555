// bench_endpoint: how fast endpoints of two processes of this machine move memory, beside the bare transfer pipeline and NCCL.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "device/gpu_presence.h"
#include "measure/end_process.h"
#include "programs/compare/endpoint_runs.h"
#include "programs/program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::bench;     // NOLINT
using namespace tcpx::programs;  // NOLINT

struct Options {
  EndpointRunOptions run;
  std::vector<int> gpus;
  int milliseconds = 500;
  std::string nccl = "auto";
  std::string json;
};

void declare_options(CLI::App& app, Options& options) {
  app.add_option("--only", options.run.only, "bulk, vector, latency, small, peers, memory (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember(endpoint_sections()));
  app.add_option("--gpus", options.gpus, "of the sending and the receiving end (default 0,1; 0,0 where there is one)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(0, 1023));
  app.add_option("--peers", options.run.peers, "of the sections peers and memory (default 64)")->check(CLI::Range(1u, 1024u));
  app.add_option("--samples", options.run.row.samples, "per row (default 5)")->check(CLI::Range(size_t{5}, size_t{1000}));
  app.add_option("--milliseconds", options.milliseconds, "per row and column (default 500)")->check(CLI::Range(1, 10000));
  app.add_option("--nccl", options.nccl, "auto, off (default auto: where PyTorch with NCCL and two GPUs are)")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_option("--nccl-script", options.run.nccl_script, "where bandwidth.py is (default: in the source tree of this build)")
      ->type_name("FILE");
  app.add_flag("--quick", options.run.quick, "a little of every section, without NCCL: does it work?");
  app.add_option("--json", options.json, "write all numbers to this file")->type_name("FILE");
}

/// What depends on other options, or on the machine.
Result<EndpointRunOptions> completed(const Options& options) {
  EndpointRunOptions run = options.run;
  const Result<PipelineSettings> settings = PipelineSettings::from_environment();
  if (!settings.is_ok()) return settings.status();
  run.settings = *settings;
  run.row.duration = std::chrono::milliseconds(options.milliseconds);
  if (options.nccl == "off") run.nccl_script.clear();
  if (run.quick) {
    run.row.duration = std::chrono::milliseconds(20);
    run.peers = std::min(run.peers, 4u);
  }
  if (!options.gpus.empty()) {
    run.gpus = {options.gpus[0], options.gpus[1]};
  } else if (gpu_count().is_ok() && *gpu_count() > 1) {
    run.gpus = {0, 1};
  }
  return run;
}

/// Many peers take many sockets. The ends inherit it.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Status write_out(const std::string& json, const Report& report) {
  const Result<std::string> text = report_text(report);
  if (!text.is_ok()) return text.status();
  std::printf("%s\n", text->c_str());
  std::fflush(stdout);  // before what is said on stderr
  return json.empty() ? Status::ok() : save_report(report, json);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  Options options;
  options.run.nccl_script = TCPX_NCCL_SCRIPT;
  CLI::App app(
      "Measures how fast endpoints of two processes of this machine move memory, GPU to GPU where there are any: long messages\n"
      "beside the bare transfer pipeline, vectors beside contiguous memory, latency beside NCCL, small messages, many peers, "
      "and\n"
      "what a connection costs. What arrives is compared.\n"
      "Variables that tune endpoints and plugin are obeyed (docs/env.md), UCCL_TCPX_NUM_CHANNELS first of all.\n"
      "Exit code: 0 done, 1 failed or wrong bytes, 2 usage.");
  declare_options(app, options);
  app.footer("Example:\n  UCCL_TCPX_NUM_CHANNELS=4 bench_endpoint --gpus 0,1 --json endpoint.json");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (const auto settings = program_settings(); !settings.is_ok()) return failed(settings.status());
  Result<EndpointRunOptions> run_options = completed(options);
  if (!run_options.is_ok()) return failed(run_options.status());
  allow_many_descriptors();

  EndpointRuns runs(std::move(run_options).value(), stop_on_interrupt(),
                    [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  const Status measured = runs.run();
  const Report report = runs.report();
  if (!report.tables.empty()) {
    if (const Status written = write_out(options.json, report); !written.is_ok()) return failed(written);
  }
  if (!measured.is_ok()) return failed(measured);
  if (!runs.mismatch().empty()) return failed(Status(Code::kMismatch, "compare received bytes", runs.mismatch()));
  return passed("all bytes that were compared are right");
}
