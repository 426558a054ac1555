// test_tcpx_transfer {server|client IP|loopback}: one message, or a pattern of any size, from one memory to another.
#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "base/environment.h"
#include "device/unpacker_factory.h"
#include "programs/program.h"
#include "programs/transfer/transfer_program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

/// Defaults of the command line, from the environment.
Result<TransferProgramOptions> options_from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, program_settings());
  TCPX_ASSIGN_OR_RETURN(const auto pipeline, PipelineSettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(const auto unpack, environment_choice(Variable::kUnpackImpl));
  TransferProgramOptions options;
  options.port = settings.port;
  options.timeout = settings.timeout;
  options.unpack = static_cast<UnpackKind>(unpack);
  options.debug = settings.debug;
  options.pipeline = pipeline;
  return options;
}

void declare_options(CLI::App& app, TransferProgramOptions& options) {
  static const std::map<std::string, MemoryType> memories{{"cuda", MemoryType::kCuda}, {"host", MemoryType::kHost}};
  static const std::map<std::string, UnpackKind> unpackers{
      {"auto", UnpackKind::kAuto}, {"kernel", UnpackKind::kKernel}, {"d2d", UnpackKind::kD2d}, {"host", UnpackKind::kHost}};
  app.add_option("--bytes", options.bytes, "send a pattern of this many bytes (64K, 4MiB, ...) instead of the text")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{0}, kMaxProgramBytes));
  app.add_option("--gpu", options.gpu, "GPU of the memory; loopback: of the server, the client takes the next one")
      ->check(CLI::Range(0, 1023));
  app.add_option("--memory", options.memory, "cuda (default; host memory stands in without a GPU) or host")
      ->transform(one_of(memories));
  app.add_option("--unpack", options.unpack, "auto, kernel, d2d or host (default UCCL_TCPX_UNPACK_IMPL, else auto)")
      ->transform(one_of(unpackers));
  app.add_option("--iterations", options.iterations, "transfers, one after another (default 1)")->check(CLI::Range(1u, 1000000u));
  app.add_option("--port", options.port, "bootstrap port (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345; loopback: any free one)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--dev", options.dev,
                 "network device, as test_device_discovery numbers them (default: the one nearest to the GPU)")
      ->check(CLI::Range(0, 1023));
  app.add_option(
         "--chunk", options.pipeline.chunk_bytes,
         "bytes of one request, the same at both ends (default UCCL_TCPX_CHUNK_BYTES, else 512K, up to 2M in long transfers)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(1u, kMaxRequestBytes));
}

}  // namespace

int main(int argc, char** argv) {
  const auto environment = options_from_environment();
  TransferProgramOptions options = environment.is_ok() ? *environment : TransferProgramOptions{};
  CLI::App app(
      "Moves a message from one memory to another through the net plugin and checks every byte.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  declare_options(app, options);
  app.add_subcommand("server", "receive from a client")->fallthrough();
  CLI::App* client = app.add_subcommand("client", "send to the server at HOST")->fallthrough();
  client->add_option("HOST", options.host, "name, IPv4 or IPv6 address of the server")->required();
  CLI::App* loopback = app.add_subcommand("loopback", "both ends in this process")->fallthrough();
  app.require_subcommand(1);
  app.footer(
      "BYTES is a number or a size in powers of 1024: 8, 64K, 4MiB.\nExamples:\n  test_tcpx_transfer loopback --bytes 64MiB\n  "
      "test_tcpx_transfer server\n  test_tcpx_transfer client "
      "10.0.0.2");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (!environment.is_ok()) return failed(environment.status());

  if (app.count("--chunk") > 0) options.pipeline.longest_chunk_bytes = 0;
  options.role = client->parsed() ? TransferRole::kClient : loopback->parsed() ? TransferRole::kLoopback : TransferRole::kServer;
  if (loopback->parsed()) {
    environment_preset(Variable::kSocketIfname, "=lo");
    if (app.count("--port") == 0) options.port = 0;
  }
  return run_transfer_program(options, stop_on_interrupt());
}
