// p2p_fullmesh: every rank that a launcher started sends to every other one. ./run_p2p_fullmesh.sh starts it.
//
// A rank joins the mesh and serves its rounds; rank 0 also leads and reports.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "base/environment.h"
#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/report.h"
#include "programs/mesh/mesh_report.h"
#include "programs/mesh/mesh_rounds.h"
#include "programs/mesh/rendezvous.h"
#include "programs/perf/parts.h"
#include "programs/perf/perf_end.h"
#include "programs/program.h"

namespace tcpx {
namespace {

using namespace mesh;      // NOLINT: a program, not a header
using namespace programs;  // NOLINT

struct MeshProgramOptions {
  perf::PerfOptions pair;  ///< of one size
  MeshMode mode = MeshMode::kPairs;
  int shift = 1;
  bool together = false;
  std::optional<int> dev;  ///< of every channel; nullopt: all devices, the nearest to the GPU first
  std::string host;        ///< of rank 0; empty: all ranks are on this host
  std::string json;        ///< file; empty: none
};

constexpr Duration kProgressEvery = std::chrono::seconds(5);
/// In each direction.
constexpr uint64_t kMostPairBytes = 0x7ffff000;

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// One rank, with what its parts share.
class MeshRank {
 public:
  MeshRank(const MeshProgramOptions& options, const RankEnvironment& self, const std::atomic<bool>& stop)
      : options_(options), self_(self), stop_(stop) {}

  int run() {
    auto rounds = make_schedule(self_.size, options_.mode, options_.shift, options_.together);
    if (!rounds.is_ok()) return failed(rounds.status());
    rounds_ = std::move(*rounds);
    if (const Status status = prepare(); !status.is_ok()) return failed(status);
    return self_.rank == 0 ? lead() : follow(options_.pair.port);
  }

 private:
  std::string host() const { return options_.host.empty() ? "127.0.0.1" : options_.host; }

  Status prepare() {
    if (options_.host.empty()) environment_preset(Variable::kSocketIfname, "=lo");
    TCPX_ASSIGN_OR_RETURN(auto endpoint, LocalMachine::create());
    endpoint_.emplace(std::move(endpoint));
    pair_ = options_.pair;
    TCPX_ASSIGN_OR_RETURN(pair_.pipeline, PipelineSettings::from_environment());
    gpu_ = self_.local_rank % endpoint_->memory->device_count();
    TCPX_ASSIGN_OR_RETURN(devices_, endpoint_->channel_devices(gpu_, pair_.pipeline.channels));
    if (options_.dev) std::fill(devices_.begin(), devices_.end(), *options_.dev);
    TCPX_RETURN_IF_ERROR(endpoint_->make_unpacker(pair_.unpack, gpu_).status());  // which a pair could tell later only
    // One host's ranks need no door to the outside.
    TCPX_ASSIGN_OR_RETURN(server_, BootstrapServer::create({.host = options_.host.empty() ? "127.0.0.1" : "", .stop = &stop_}));

    const bool cuda = pair_.memory == MemoryType::kCuda;
    description_ = {.rank = self_.rank,
                    .size = self_.size,
                    .host = machine_name(),
                    .memory = !cuda                          ? "host memory"
                              : endpoint_->memory->has_gpu() ? concat("GPU ", gpu_)
                                                             : "stand-in memory",
                    .version = TCPX_VERSION,
                    .port = server_->port(),
                    .options = {{"size", format_bytes(pair_.sizes.max_bytes)},
                                {"iters", concat(pair_.iterations)},
                                {"memory", cuda ? "cuda" : "host"}}};
    return Status::ok();
  }

  /// Each transfer of a pair has a copy to make, to move and to compare, at 50 MB/s at least.
  MeshLimits limits() const {
    const uint64_t bytes = pair_.sizes.max_bytes * pair_.iterations;
    return {.step = pair_.timeout, .round = 12 * pair_.timeout + 5 * std::chrono::milliseconds(bytes / 50'000)};
  }

  /// A MeasurePair (programs/mesh/mesh_rounds.h): one size of test_tcpx_perf, over a connection made for that pair.
  Result<PairResult> measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
    perf::PerfOptions options = pair_;  // the receiver's become the sender's
    perf::PerfOutput output(options, true);
    perf::PerfEnd end({options, !sends, gpu_, *endpoint_, stop_, &devices_, start}, output);
    TCPX_RETURN_IF_ERROR(end.prepare());
    TCPX_RETURN_IF_ERROR(end.run(peer));
    TCPX_RETURN_IF_ERROR(output.verdict());
    const perf::PerfRow& row = output.rows().front();
    return PairResult{row.gb_per_second, row.verified};
  }

  /// Joins the mesh and serves it to its end.
  Status serve(uint16_t port) {
    TCPX_ASSIGN_OR_RETURN(auto leader, join_mesh(host(), port, description_, Deadline::after(options_.pair.timeout), &stop_));
    const auto pair = [this](BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
      return measure(peer, sends, start);
    };
    const Status served = serve_rounds(leader, *server_, self_.rank, limits(), pair, &stop_);
    return leader.finish(served, Deadline::after(options_.pair.timeout));
  }

  /// A rank that is not rank 0 says nothing when all went well between it and rank 0, who knows the rest.
  int follow(uint16_t port) {
    const Status status = serve(port);
    if (status.is_ok()) return kExitPassed;
    return failed({status.code(), concat("rank ", self_.rank), concat(status.operation(), ": ", status.detail())});
  }

  int lead() {
    // Behind the ranks that connect at the same moment there is room for strangers.
    auto server = BootstrapServer::create({.port = options_.pair.port,
                                           .host = options_.host.empty() ? "127.0.0.1" : "",
                                           .max_waiting = static_cast<size_t>(2 * self_.size),
                                           .stop = &stop_});
    if (!server.is_ok()) return failed(server.status());
    say("rank 0", concat("waiting for ", self_.size, " ranks on port ", (*server)->port()));
    Status own;
    std::thread own_rounds([&] { own = serve((*server)->port()); });
    const int code = lead_members(**server);
    own_rounds.join();
    return code;
  }

  int lead_members(BootstrapServer& server) {
    auto members = gather_members(server, description_, Deadline::after(options_.pair.timeout));
    if (!members.is_ok()) return failed(members.status());
    size_t planned = 0;
    for (const Round& round : rounds_) planned += round.size();
    const bool permutation = options_.mode == MeshMode::kPermutation;
    const std::string mode = permutation         ? concat("permutation, shift ", options_.shift)
                             : options_.together ? "pairs, together"
                                                 : "pairs, one at a time";
    say("rank 0",
        concat("all ", self_.size, " ranks are there; ", planned, " pairs in ", rounds_.size(), " rounds (", mode, ")"));

    MeshResults results{.parameters = description_.options};
    results.parameters["mode"] = mode;
    results.parameters["plugin"] = endpoint_->plugin->name();
    for (const Member& member : *members) {
      results.ranks.push_back(concat(member.description.host, " ", member.description.memory));
    }
    results.outcome = lead_mesh(*members, rounds_, {limits().round, &stop_, progress(planned)});
    return show(results, planned);
  }

  /// Failures at once, the rest now and then.
  std::function<void(const PairOutcome&)> progress(size_t planned) const {
    return [planned, done = size_t{0}, next = Clock::steady().now() + kProgressEvery](const PairOutcome& outcome) mutable {
      ++done;
      if (!outcome.result.is_ok()) {
        say("rank 0", concat("pair ", outcome.pair.sender, " -> ", outcome.pair.receiver,
                             " failed: ", outcome.result.status().to_string()));
      }
      if (const TimePoint now = Clock::steady().now(); now >= next) {
        say("rank 0", concat(done, " of ", planned, " pairs"));
        next = now + kProgressEvery;
      }
    };
  }

  int show(const MeshResults& results, size_t planned) const {
    std::fputs("\n", stdout);
    const Status published = publish_report(mesh_report(results), options_.json);
    if (!published.is_ok()) return failed(published);
    const Status verdict = mesh_verdict(results.outcome, planned);
    if (!verdict.is_ok()) return failed(verdict);
    return passed(concat("all ", planned, " pairs measured, every byte compared"));
  }

  const MeshProgramOptions& options_;
  const RankEnvironment self_;
  const std::atomic<bool>& stop_;
  std::vector<Round> rounds_;
  std::optional<LocalMachine> endpoint_;
  perf::PerfOptions pair_;
  int gpu_ = 0;
  ChannelDevices devices_;
  std::unique_ptr<BootstrapServer> server_;
  RankDescription description_;
};

/// Defaults of the command line, from the environment.
Result<MeshProgramOptions> mesh_options_from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, program_settings());
  TCPX_ASSIGN_OR_RETURN(const auto unpack, environment_choice(Variable::kUnpackImpl));
  MeshProgramOptions options;
  options.pair.role = perf::PerfRole::kClient;  // each end has its own memory
  options.pair.sizes.max_bytes = 16u << 20;
  options.pair.iterations = 8;
  options.pair.warm_up = 1;
  options.pair.port = settings.port;
  options.pair.timeout = settings.timeout;
  options.pair.unpack = static_cast<UnpackKind>(unpack);
  return options;
}

void declare_options(CLI::App& app, MeshProgramOptions& options) {
  static const std::map<std::string, MemoryType> memories{{"cuda", MemoryType::kCuda}, {"host", MemoryType::kHost}};
  static const std::map<std::string, MeshMode> modes{{"pairs", MeshMode::kPairs}, {"permutation", MeshMode::kPermutation}};
  app.add_option("--size", options.pair.sizes.max_bytes, "bytes of one transfer (64K, 16MiB, ...; default 16MiB)")
      ->type_name("BYTES")
      ->transform(size_in_bytes())
      ->check(CLI::Range(uint64_t{1}, kMostPairBytes));
  app.add_option("--iters", options.pair.iterations, "transfers per pair, moved back to back (default 8)")
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--memory", options.pair.memory, "cuda (default; host memory stands in without a GPU) or host")
      ->transform(one_of(memories));
  app.add_option("--mode", options.mode, "pairs (default): every ordered pair; permutation: rank i sends to rank i + shift only")
      ->transform(one_of(modes));
  app.add_option("--shift", options.shift, "of the permutation (default 1)")->check(CLI::Range(1, kMostRanks - 1));
  app.add_flag("--together", options.together, "pairs: everybody sends and receives at once, instead of one pair after another");
  app.add_option("--dev", options.dev, "network device of every channel (default: all devices, the nearest to the GPU first)")
      ->check(CLI::Range(0, 1023));
  app.add_option("--rendezvous", options.host,
                 "name or address of rank 0's host as the others reach it (default: all ranks are on this host)")
      ->type_name("HOST");
  app.add_option("--port", options.pair.port, "rank 0's port there (default UCCL_TCPX_BOOTSTRAP_PORT, else 12345)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--json", options.json, "rank 0: write the results to this file; scripts/plot.py draws the heat map")
      ->type_name("FILE");
  add_chart_answer(app, "--plot");
}

}  // namespace

int mesh_main(int argc, char** argv) {
  const auto environment = mesh_options_from_environment();
  MeshProgramOptions options = environment.is_ok() ? *environment : MeshProgramOptions{};
  CLI::App app(
      "Measures how fast each rank of a mesh sends to each other one, every byte compared. Started once per rank by a launcher:\n"
      "./run_p2p_fullmesh.sh, mpirun or srun. Rank 0 prints the table.\n"
      "Exit code: 0 passed, 1 failed, 2 usage, 77 skipped.");
  declare_options(app, options);
  int exit_code = kExitPassed;
  if (!parse_command_line(app, argc, argv, exit_code)) return exit_code;
  options.pair.sizes.min_bytes = options.pair.sizes.max_bytes;
  if (options.pair.sizes.max_bytes > kMostPairBytes / options.pair.iterations) {
    std::fprintf(stderr, "--size times --iters: at most %ju bytes\n", static_cast<uintmax_t>(kMostPairBytes));
    return kExitUsage;
  }
  if (!environment.is_ok()) return failed(environment.status());
  const std::atomic<bool>& stop = stop_on_interrupt();
  // A launcher that is killed leaves its ranks behind; they end as on Ctrl-C.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const auto self = read_rank_environment();
  return self.is_ok() ? MeshRank(options, *self, stop).run() : failed(self.status());
}

}  // namespace tcpx
