// bench_soft_plugin: how fast the software plugin moves messages between two processes of this machine, beside raw TCP.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "bench/message_plan.h"
#include "bench/soft_bench.h"
#include "perf/report.h"
#include "tests/support/program.h"

namespace {

using namespace tcpx;           // NOLINT: a program, not a header
using namespace tcpx::bench;    // NOLINT
using namespace tcpx::testing;  // NOLINT

struct Options {
  std::vector<uint64_t> sizes = {8, 4096, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  std::vector<uint32_t> sockets = {1, 4, 8};
  uint64_t request_bytes = 4 << 20;
  int milliseconds = 200;
  std::string plugin;
  std::vector<std::string> memory = {"host"};
  std::vector<int> gpus = {0, 0};
};

Status run(const Options& options, const std::string& memory, Report& report) {
  const std::atomic<bool>& stop = stop_on_interrupt();
  environment_preset(Variable::kSocketIfname, "=lo");
  Table table{.title = concat("One way, ", memory), .row_heading = "message", .columns = {}, .rows = {}};
  for (const uint64_t size : options.sizes) table.rows.push_back({.name = concat(size, " B"), .cells = {}, .verified = true});
  for (const uint32_t sockets : options.sockets) {
    const std::optional<SocketFactors> factors = factors_of(sockets);
    if (!factors) return Status(Code::kInvalidArgument, "set number of sockets", concat(sockets, " cannot be had"));
    const EnvironmentOverrides overrides = {
        {environment_info(Variable::kNsocksPerThread).name, concat(factors->sockets_per_thread)},
        {environment_info(Variable::kSocketNthreads).name, concat(factors->threads)}};
    EndSetup setup;
    setup.memory = memory == "gpu" ? MemoryType::kCuda : MemoryType::kHost;
    setup.request_bytes = options.request_bytes;
    options.plugin.copy(setup.plugin, sizeof setup.plugin - 1);
    Result<std::unique_ptr<SoftBench>> bench = SoftBench::connect(setup, {options.gpus[0], options.gpus[1]}, overrides, stop);
    if (!bench.is_ok()) return bench.status();
    table.columns.push_back({concat(sockets, " sockets"), "GB/s"});
    for (size_t i = 0; i < options.sizes.size(); ++i) {
      std::fprintf(stderr, "%s, %u sockets, %s\n", memory.c_str(), sockets, table.rows[i].name.c_str());
      const Result<Measured> measured = (*bench)->measure(
          Pattern::kOneWay, options.sizes[i], {.samples = 5, .duration = std::chrono::milliseconds(options.milliseconds)});
      if (!measured.is_ok()) return measured.status();
      table.rows[i].cells.emplace_back(measured->summary);
      table.rows[i].verified &= measured->verified();
      if (!measured->verified()) std::fprintf(stderr, "%s\n", measured->mismatch.c_str());
    }
    TCPX_RETURN_IF_ERROR((*bench)->close());
  }
  report.key = "bench_soft_plugin";
  report.about = "Messages back to back between two processes over loopback TCP.";
  report.tables.push_back(std::move(table));
  return Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  Options options;
  CLI::App app("Measures the software plugin between two processes of this machine.\nExit code: 0 done, 1 failed, 2 usage.");
  app.add_option("--sizes", options.sizes, "bytes of the messages")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Range(uint64_t{1}, MessagePlan::kMaxMessageBytes));
  app.add_option("--sockets", options.sockets, "data sockets")->delimiter(',')->check(CLI::Range(1u, 64u));
  app.add_option("--milliseconds", options.milliseconds, "per row (default 200)")->check(CLI::Range(1, 60000));
  app.add_option("--plugin", options.plugin, "library to measure instead of the plugin linked in");
  app.add_option("--memory", options.memory, "host, gpu")->delimiter(',')->check(CLI::IsMember({"host", "gpu"}));
  app.add_option("--gpus", options.gpus, "of the sending and the receiving end")->delimiter(',')->expected(2);
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  Report report;
  for (const std::string& memory : options.memory) {
    if (const Status measured = run(options, memory, report); !measured.is_ok()) return failed(measured);
  }
  const Result<std::string> text = report_text(report);
  if (!text.is_ok()) return failed(text.status());
  std::printf("%s\n", text->c_str());
  return passed("done");
}
