// test_tcpx_perf {server|client IP|loopback} [GPU]: how fast transfers are, by size, with every byte compared.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "net/soft/soft_table.h"
#include "programs/perf/parts.h"
#include "programs/perf/perf_request.h"
#include "programs/program.h"

namespace tcpx {
namespace {

using namespace perf;      // NOLINT: a program, not a header
using namespace programs;  // NOLINT

/// Defaults of the command line, from the environment.
Result<PerfOptions> options_from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, program_settings());
  TCPX_ASSIGN_OR_RETURN(const auto pipeline, PipelineSettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(const auto unpack, environment_choice(Variable::kUnpackImpl));
  TCPX_ASSIGN_OR_RETURN(const auto bytes, environment_integer(Variable::kPerfSize));
  TCPX_ASSIGN_OR_RETURN(const auto iterations, environment_integer(Variable::kPerfIters));
  PerfOptions options;
  options.port = settings.port;
  options.timeout = settings.timeout;
  options.pipeline = pipeline;
  options.unpack = static_cast<UnpackKind>(unpack);
  options.sizes.min_bytes = options.sizes.max_bytes = static_cast<uint64_t>(bytes);
  options.iterations = static_cast<uint32_t>(iterations);
  return options;
}

/// Arguments without a place of their own among the options.
struct Arguments {
  int gpu = 0;
  uint32_t window = 0;
  uint32_t timeout_ms = 0;
  double seconds = 0;
  int loopback_descriptor = 0;
};

void declare_measurement(CLI::App& app, PerfOptions& options, Arguments& arguments) {
  const CLI::Range sizes(uint64_t{1}, SizeSweep::kMaxBytes);
  app.add_option("-b,--min-bytes", options.sizes.min_bytes,
                 "first size: 8, 64K, 4MiB, 1G (default UCCL_TCPX_PERF_SIZE, else 64M)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(sizes);
  app.add_option("-e,--max-bytes", options.sizes.max_bytes, "last size (default: the first)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(sizes);
  app.add_option("-f,--factor", options.sizes.factor, "from one size to the next (default 2)")
      ->check(CLI::Range(2u, kMostFactor));
  app.add_option("-n,--iters", options.iterations, "timed transfers of each size (default UCCL_TCPX_PERF_ITERS, else 20)")
      ->check(CLI::Range(1u, kMostTransfers));
  app.add_option("-w,--warmup", options.warm_up, "transfers of each size before them (default 5)")
      ->check(CLI::Range(0u, kMostTransfers));
  app.add_option("--duration", arguments.seconds, "measure each size for this long, comparing included, instead of -n")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, kMostSeconds));
  CLI::Option* latency = app.add_flag_callback(
      "--latency", [&options] { options.mode = Pattern::kPingPong; },
      "one transfer at a time, there and back; half a round trip");
  app.add_flag_callback(
         "--bidirectional", [&options] { options.mode = Pattern::kBothWays; }, "both ends send at once")
      ->excludes(latency);
}

void declare_pipeline(CLI::App& app, PerfOptions& options, Arguments& arguments) {
  static const std::map<std::string, MemoryType> memories{{"cuda", MemoryType::kCuda}, {"host", MemoryType::kHost}};
  static const std::map<std::string, UnpackKind> unpackers{{"auto", UnpackKind::kAuto},
                                                           {"kernel", UnpackKind::kKernel},
                                                           {"d2d", UnpackKind::kD2d},
                                                           {"host", UnpackKind::kHost},
                                                           {"none", UnpackKind::kNone}};
  static const std::map<std::string, Layer> layers{
      {"tcp", Layer::kRawTcp}, {"plugin", Layer::kPlugin}, {"pipeline", Layer::kPipeline}, {"endpoint", Layer::kEndpoint}};
  app.add_option("--layer", options.layer,
                 "what moves the bytes: tcp (sockets alone), plugin (its table, driven bare), pipeline (default), or endpoint")
      ->transform(one_of(layers));
  app.add_option("--channels", options.pipeline.channels, "default UCCL_TCPX_NUM_CHANNELS, else one per network device")
      ->check(CLI::Range(1u, kMaxChannels));
  app.add_option("--chunk", options.pipeline.chunk_bytes,
                 "bytes of one request (default UCCL_TCPX_CHUNK_BYTES, else 512K, up to 2M in long transfers)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(1u, kMaxRequestBytes));
  app.add_option(
         "--window", arguments.window,
         "requests that a channel holds, of either direction (default: 128; of several channels, and over GPUDirect-TCPX, 16 receives, 12 sends)")
      ->check(CLI::Range(1u, soft::kRequests));
  app.add_option("--memory", options.memory, "cuda (default; host memory stands in without a GPU) or host")
      ->transform(one_of(memories));
  app.add_option("--unpack", options.unpack,
                 "auto, kernel, d2d, host, or none: unpack nothing, unverified (default UCCL_TCPX_UNPACK_IMPL, else auto)")
      ->transform(one_of(unpackers));
  static const std::map<std::string, bool> ways{{"auto", true}, {"off", false}};
  app.add_option("--local", options.same_host, "endpoints of one host: auto (default) as the library does, off: over TCP")
      ->transform(one_of(ways));
  app.add_option("--port", options.port, "bootstrap port (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--timeout", arguments.timeout_ms, "of each step (default UCCL_TCPX_TIMEOUT_MS, else 30000)")
      ->type_name("MS")
      ->check(CLI::Range(1u, 3600000u));
}

void declare_output(CLI::App& app, PerfOptions& options) {
  app.add_option("--csv", options.csv, "write the rows to this file")->type_name("FILE");
  app.add_option("--json", options.json, "write a report to this file; scripts/plot.py draws it, beside others if you like")
      ->type_name("FILE");
  add_chart_answer(app, "--plot");
  app.add_option("--compare", options.compare, "reports (--json of earlier runs): tells when another unpacker was faster in them")
      ->type_name("FILE");
}

/// Options that a layer has no use for. @return "" or the first that was given
std::string useless_option(const CLI::App& app, Layer layer) {
  std::vector<std::string> useless;
  if (layer != Layer::kPipeline) useless = {"--window", "--unpack"};
  if (layer == Layer::kRawTcp) useless.push_back("--memory");
  if (layer == Layer::kPlugin || layer == Layer::kEndpoint) useless.push_back("--channels");
  useless.push_back(layer == Layer::kEndpoint ? "--chunk" : "--local");
  const auto given = std::find_if(useless.begin(), useless.end(), [&](const auto& option) { return app.count(option) > 0; });
  return given == useless.end() ? "" : *given;
}

/// Completes options that depend on several arguments. @return "" or what is wrong with them
std::string complete(const CLI::App& app, const Arguments& arguments, PerfOptions& options) {
  const bool first = app.count("--min-bytes") > 0, last = app.count("--max-bytes") > 0;
  if (first && !last) options.sizes.max_bytes = options.sizes.min_bytes;
  if (last && !first) options.sizes.min_bytes = options.sizes.max_bytes;
  if (const std::string useless = useless_option(app, options.layer); !useless.empty()) {
    return concat(useless, ": not for --layer ", name_of(options.layer));
  }
  if (options.layer == Layer::kRawTcp) options.memory = MemoryType::kHost;
  if (app.count("--chunk") > 0) options.pipeline.longest_chunk_bytes = 0;
  if (arguments.window != 0) options.pipeline.recv_window = options.pipeline.send_window = arguments.window;
  if (arguments.timeout_ms != 0) options.timeout = std::chrono::milliseconds(arguments.timeout_ms);
  if (arguments.seconds > 0) {
    options.duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.seconds));
  }
  for (const auto& [name, value] : encode_request(options)) {
    const CLI::Option* option = app.get_option_no_throw(concat("--", name));
    if (option != nullptr && option->count() > 0) options.given.insert(name);
  }
  return contradiction(options);
}

}  // namespace

int transfers_main(int argc, char** argv) {
  const auto environment = options_from_environment();
  PerfOptions options = environment.is_ok() ? *environment : PerfOptions();
  options.arguments.assign(argv + 1, argv + argc);
  Arguments arguments;
  CLI::App app(
      "Measures transfers between two processes through the net plugin, by size, and compares every byte.\n"
      "Exit code: 0 passed, 1 failed or wrong bytes, 2 usage, 77 skipped.");
  declare_measurement(app, options, arguments);
  declare_pipeline(app, options, arguments);
  declare_output(app, options);
  CLI::Option* descriptor = app.add_option(kLoopbackOption, arguments.loopback_descriptor)->group("");
  CLI::App* server = app.add_subcommand("server", "receive from a client, and measure what the client asks for")->fallthrough();
  CLI::App* client = app.add_subcommand("client", "send to the server at HOST")->fallthrough();
  client->add_option("HOST", options.host, "name, IPv4 or IPv6 address of the server")->required();
  CLI::App* loopback = app.add_subcommand("loopback", "both ends on this machine, in two processes")->fallthrough();
  for (CLI::App* role : {server, client, loopback}) {
    role->add_option("GPU", arguments.gpu, "whose memory is used (default 0); loopback: the server's, the client takes the next")
        ->check(CLI::Range(0, 1023));
  }
  app.require_subcommand(1);
  app.footer(
      "BYTES is a number or a size in powers of 1024: 8, 64K, 4MiB, 1G.\nExamples:\n  test_tcpx_perf loopback -b 64K -e 1G -f "
      "4\n  test_tcpx_perf server 0\n  test_tcpx_perf client 10.0.0.2 0 -b 64M -e 1G\n"
      "tcpx_perf also measures a full mesh (tcpx_perf mesh, p2p_fullmesh), the software plugin beside raw TCP and NCCL (tcpx_perf\n"
      "plugin, bench_soft_plugin) and endpoints beside both (tcpx_perf endpoint, bench_endpoint); each says more with --help.");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (!environment.is_ok()) return failed(environment.status());
  if (const std::string wrong = complete(app, arguments, options); !wrong.empty()) {
    std::fprintf(stderr, "%s\nRun with --help for more information.\n", wrong.c_str());
    return kExitUsage;
  }

  options.role = client->parsed() ? PerfRole::kClient : loopback->parsed() ? PerfRole::kLoopback : PerfRole::kServer;
  for (const CLI::App* role : {server, client, loopback}) {
    if (role->parsed() && role->count("GPU") > 0) options.gpu = arguments.gpu;
  }
  if (descriptor->count() > 0) options.loopback_descriptor = arguments.loopback_descriptor;
  if (loopback->parsed()) environment_preset(Variable::kSocketIfname, "=lo");
  return run_perf(options, stop_on_interrupt());
}

}  // namespace tcpx
