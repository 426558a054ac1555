// test_tcpx_transfer {server|client IP|loopback}: one message, or a pattern of any size, from one memory to another.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "programs/program.h"
#include "programs/roles.h"
#include "programs/transfer/transfer_end.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

/// Defaults of the command line, from the environment.
Result<TransferOptions> options_from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, program_settings());
  TCPX_ASSIGN_OR_RETURN(const auto pipeline, PipelineSettings::from_environment());
  TCPX_ASSIGN_OR_RETURN(const auto unpack, environment_choice(Variable::kUnpackImpl));
  TransferOptions options;
  options.port = settings.port;
  options.timeout = settings.timeout;
  options.unpack = static_cast<UnpackKind>(unpack);
  options.debug = settings.debug;
  options.pipeline = pipeline;
  return options;
}

void declare_options(CLI::App& app, TransferOptions& options) {
  static const std::map<std::string, MemoryType> memories{{"cuda", MemoryType::kCuda}, {"host", MemoryType::kHost}};
  static const std::map<std::string, UnpackKind> unpackers{
      {"auto", UnpackKind::kAuto}, {"kernel", UnpackKind::kKernel}, {"d2d", UnpackKind::kD2d}, {"host", UnpackKind::kHost}};
  app.add_option("--bytes", options.bytes, "send a pattern of this many bytes (64K, 4MiB, ...) instead of the text")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{0}, kMaxTransferBytes));
  app.add_option("--gpu", options.gpu, "GPU of the memory; loopback: of the server, the client takes the next one")
      ->check(CLI::Range(0, 1023));
  app.add_option("--memory", options.memory, "cuda (default; host memory stands in without a GPU) or host")
      ->transform(one_of(memories));
  app.add_option("--unpack", options.unpack, "auto, kernel, d2d or host (default UCCL_TCPX_UNPACK_IMPL, else auto)")
      ->transform(one_of(unpackers));
  app.add_option("--iterations", options.iterations, "transfers, one after another (default 1)")->check(CLI::Range(1u, 1000000u));
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
  TransferOptions options = environment.is_ok() ? *environment : TransferOptions{};
  CLI::App app(
      "Moves a message from one memory to another through the net plugin and checks every byte.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  declare_options(app, options);
  Roles roles(app);
  app.footer(
      "BYTES is a number or a size in powers of 1024: 8, 64K, 4MiB.\nExamples:\n  test_tcpx_transfer loopback --bytes 64MiB\n  "
      "test_tcpx_transfer server\n  test_tcpx_transfer client "
      "10.0.0.2");
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (!environment.is_ok()) return failed(environment.status());

  if (app.count("--chunk") > 0) options.pipeline.longest_chunk_bytes = 0;
  if (roles.is_loopback()) environment_preset(Variable::kSocketIfname, "=lo");
  auto machine = LocalMachine::create();
  if (!machine.is_ok()) return failed(machine.status());
  const int gpus = machine->memory->has_gpu() ? machine->memory->device_count() : 0;
  // GPU 0 is the default, so naming it changes nothing: without any GPU host memory stands in, which each end says.
  const int gpu = options.gpu.value_or(0);
  if (gpu >= std::max(gpus, 1)) return skipped(concat("--gpu ", gpu, " asked for, this machine has ", gpus));
  const std::atomic<bool>& stop = stop_on_interrupt();
  const int client_gpu = roles.is_loopback() && gpus > 1 ? (gpu + 1) % gpus : gpu;
  const auto make = [&](bool is_server) {
    return std::make_unique<TransferEnd>(is_server, *machine, options, is_server ? gpu : client_gpu, stop);
  };
  const Status status = roles.run(make, options.port, options.timeout, stop);
  return status.is_ok() ? passed("every byte is where it belongs") : failed(status);
}
