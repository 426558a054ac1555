// p2p_fullmesh: every rank that a launcher started sends to every other one. ./run_p2p_fullmesh.sh starts it.
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "base/environment.h"
#include "device/unpacker_factory.h"
#include "programs/mesh/mesh_program.h"
#include "programs/program.h"

namespace {

using namespace tcpx;            // NOLINT: a program, not a header
using namespace tcpx::programs;  // NOLINT

/// Defaults of the command line, from the environment.
Result<MeshProgramOptions> options_from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, program_settings());
  TCPX_ASSIGN_OR_RETURN(const auto unpack, environment_choice(Variable::kUnpackImpl));
  MeshProgramOptions options;
  options.port = settings.port;
  options.timeout = settings.timeout;
  options.meter.unpack = static_cast<UnpackKind>(unpack);
  return options;
}

void declare_options(CLI::App& app, MeshProgramOptions& options) {
  static const std::map<std::string, MemoryType> memories{{"cuda", MemoryType::kCuda}, {"host", MemoryType::kHost}};
  static const std::map<std::string, mesh::MeshMode> modes{{"pairs", mesh::MeshMode::kPairs},
                                                           {"permutation", mesh::MeshMode::kPermutation}};
  app.add_option("--size", options.meter.transfer_bytes, "bytes of one transfer (64K, 16MiB, ...; default 16MiB)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(size_t{1}, mesh::kMostMeterBytes));
  app.add_option("--iters", options.meter.transfers, "transfers per pair, moved back to back (default 8)")
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--memory", options.meter.memory, "cuda (default; host memory stands in without a GPU) or host")
      ->transform(one_of(memories));
  app.add_option("--mode", options.mode, "pairs (default): every ordered pair; permutation: rank i sends to rank i + shift only")
      ->transform(one_of(modes));
  app.add_option("--shift", options.shift, "of the permutation (default 1)")->check(CLI::Range(1, mesh::kMostRanks - 1));
  app.add_flag("--together", options.together, "pairs: everybody sends and receives at once, instead of one pair after another");
  app.add_option("--dev", options.dev, "network device of every channel (default: all devices, the nearest to the GPU first)")
      ->check(CLI::Range(0, 1023));
  app.add_option("--rendezvous", options.host,
                 "name or address of rank 0's host as the others reach it (default: all ranks are on this host)")
      ->type_name("HOST");
  app.add_option("--port", options.port, "rank 0's port there (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--json", options.json, "rank 0: write the results to this file; scripts/plot.py draws the heat map")
      ->type_name("FILE");
  add_chart_answer(app, "--plot");
}

}  // namespace

int main(int argc, char** argv) {
  const auto environment = options_from_environment();
  MeshProgramOptions options = environment.is_ok() ? *environment : MeshProgramOptions{};
  CLI::App app(
      "Measures how fast each rank of a mesh sends to each other one, every byte compared. Started once per rank by a launcher:\n"
      "./run_p2p_fullmesh.sh, mpirun or srun. Rank 0 prints the table.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  declare_options(app, options);
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  if (options.meter.transfer_bytes > mesh::kMostMeterBytes / options.meter.transfers) {
    std::fprintf(stderr, "--size times --iters: at most %zu bytes\n", mesh::kMostMeterBytes);
    return kExitUsage;
  }
  if (!environment.is_ok()) return failed(environment.status());
  const std::atomic<bool>& stop = stop_on_interrupt();
  // A launcher that is killed leaves its ranks behind; they end as on Ctrl-C.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return run_mesh_program(options, stop);
}
