// test_tcpx_transfer {server|client IP|loopback}: one message, or a pattern of any size, from one memory to another.
#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/environment.h"
#include "device/unpacker_factory.h"
#include "tests/support/transfer_program.h"
#include "transfer/channel.h"

namespace {

using tcpx::Code;
using tcpx::Result;
using tcpx::Status;
using tcpx::Variable;
using tcpx::testing::TransferProgramOptions;
using tcpx::testing::TransferRole;

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

// The first Ctrl-C ends the run in order, the second the process.
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested.store(true); };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // GPUDirect-TCPX sends without MSG_NOSIGNAL: a peer that leaves would end this process (35).
  std::signal(SIGPIPE, SIG_IGN);
}

/// What the command line starts from: the environment.
Result<TransferProgramOptions> options_from_environment() {
  TransferProgramOptions options;
  const auto port = tcpx::environment_integer(Variable::kBootstrapPort);
  const auto timeout_ms = tcpx::environment_integer(Variable::kTimeoutMs);
  const auto unpack = tcpx::environment_choice(Variable::kUnpackImpl);
  const auto debug = tcpx::environment_integer(Variable::kDebug);
  for (const auto* value : {&port, &timeout_ms, &unpack, &debug}) {
    if (!value->is_ok()) return value->status();
  }
  options.port = static_cast<uint16_t>(*port);
  options.timeout = std::chrono::milliseconds(*timeout_ms);
  options.unpack = static_cast<tcpx::UnpackKind>(*unpack);
  options.debug = *debug == 1;
  options.chunk_bytes = tcpx::kDefaultChunkBytes;
  return options;
}

void declare_options(CLI::App& app, TransferProgramOptions& options) {
  static const std::map<std::string, TransferRole> roles{
      {"server", TransferRole::kServer}, {"client", TransferRole::kClient}, {"loopback", TransferRole::kLoopback}};
  static const std::map<std::string, tcpx::MemoryType> memories{{"cuda", tcpx::MemoryType::kCuda},
                                                                {"host", tcpx::MemoryType::kHost}};
  static const std::map<std::string, tcpx::UnpackKind> unpackers{{"auto", tcpx::UnpackKind::kAuto},
                                                                 {"kernel", tcpx::UnpackKind::kKernel},
                                                                 {"d2d", tcpx::UnpackKind::kD2d},
                                                                 {"host", tcpx::UnpackKind::kHost}};
  app.add_option("role", options.role, "server, client or loopback (both ends in this process)")
      ->required()
      ->transform(CLI::CheckedTransformer(roles).description(""));
  app.add_option("host", options.host, "client: name or address of the server");
  app.add_option("--bytes", options.bytes, "send a pattern of this many bytes (64K, 4MiB, ...) instead of the text")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Range(uint64_t{0}, tcpx::testing::kMaxProgramBytes));
  app.add_option("--gpu", options.gpu, "GPU of the memory; loopback: of the server, the client takes the next one")
      ->check(CLI::Range(0, 1023));
  app.add_option("--memory", options.memory, "cuda (host memory stands in without a GPU) or host")
      ->transform(CLI::CheckedTransformer(memories).description(""));
  app.add_option("--unpack", options.unpack, "auto, kernel, d2d or host (UCCL_TCPX_UNPACK_IMPL)")
      ->transform(CLI::CheckedTransformer(unpackers).description(""));
  app.add_option("--iterations", options.iterations, "transfers, one after another")->check(CLI::Range(1u, 1000000u));
  app.add_option("--port", options.port, "bootstrap port; 0: any free one (UCCL_TCPX_BOOTSTRAP_PORT)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--dev", options.dev, "network device of the plugin")->check(CLI::Range(0, 1023));
  app.add_option("--chunk", options.chunk_bytes, "bytes of one request; the same at both ends")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Range(1u, tcpx::kMaxRequestBytes));
}

}  // namespace

int main(int argc, char** argv) {
  auto options = options_from_environment();
  if (!options.is_ok()) {
    std::fprintf(stderr, "%s\n", options.status().to_string().c_str());
    return tcpx::testing::kExitUsage;
  }
  CLI::App app("Moves a message from one memory to another through the net plugin and checks every byte.");
  declare_options(app, *options);
  try {
    app.parse(argc, argv);
    const bool client = options->role == TransferRole::kClient;
    if (client == options->host.empty())
      throw CLI::ValidationError(client ? "client needs the server's name or address" : "only client takes a host");
    if (client && options->port == 0) throw CLI::ValidationError("--port", "client needs the server's port");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? tcpx::testing::kExitPassed : tcpx::testing::kExitUsage;
  }
  stop_on_signals();
  if (options->role == TransferRole::kLoopback) {
    tcpx::environment_preset(Variable::kSocketIfname, "=lo");
    if (app.count("--port") == 0) options->port = 0;
  }
  return tcpx::testing::run_transfer_program(*options, stop_requested);
}
