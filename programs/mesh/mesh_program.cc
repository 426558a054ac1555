#include "programs/mesh/mesh_program.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

#include "base/environment.h"
#include "base/text.h"
#include "measure/plain_text.h"
#include "measure/report.h"
#include "programs/mesh/mesh_leader.h"
#include "programs/mesh/mesh_member.h"
#include "programs/mesh/mesh_report.h"
#include "programs/mesh/rank_environment.h"
#include "programs/mesh/rendezvous.h"
#include "programs/program.h"

namespace tcpx::programs {
namespace {

constexpr Duration kProgressEvery = std::chrono::seconds(5);

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string bytes_text(size_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// One rank, with what its parts share.
class MeshRank {
 public:
  MeshRank(const MeshProgramOptions& options, const mesh::RankEnvironment& self, const std::atomic<bool>& stop)
      : options_(options), self_(self), stop_(stop) {}

  int run() {
    auto rounds = mesh::make_schedule(self_.size, options_.mode, options_.shift, options_.together);
    if (!rounds.is_ok()) return failed(rounds.status());
    rounds_ = std::move(*rounds);
    if (const Status status = prepare(); !status.is_ok()) return failed(status);
    return self_.rank == 0 ? lead() : follow(options_.port);
  }

 private:
  std::string host() const { return options_.host.empty() ? "127.0.0.1" : options_.host; }

  Status prepare() {
    if (options_.host.empty()) environment_preset(Variable::kSocketIfname, "=lo");
    TCPX_ASSIGN_OR_RETURN(auto endpoint, LocalMachine::create());
    endpoint_.emplace(std::move(endpoint));
    TCPX_ASSIGN_OR_RETURN(const auto pipeline, PipelineSettings::from_environment());
    mesh::MeterOptions meter = options_.meter;
    meter.gpu = self_.local_rank % endpoint_->memory->device_count();
    meter.pipeline = pipeline;
    TCPX_ASSIGN_OR_RETURN(auto devices, endpoint_->channel_devices(meter.gpu, pipeline.channels));
    meter.devices = std::move(devices);
    if (options_.dev) std::fill(meter.devices.begin(), meter.devices.end(), *options_.dev);
    meter.timeout = options_.timeout;
    meter.stop = &stop_;
    TCPX_ASSIGN_OR_RETURN(meter_, mesh::PairMeter::create(*endpoint_, meter));
    // One host's ranks need no door to the outside.
    TCPX_ASSIGN_OR_RETURN(server_, BootstrapServer::create({.host = options_.host.empty() ? "127.0.0.1" : "", .stop = &stop_}));

    const bool cuda = meter.memory == MemoryType::kCuda;
    description_ = {
        .rank = self_.rank,
        .size = self_.size,
        .host = machine_name(),
        .memory = !cuda                          ? "host memory"
                  : endpoint_->memory->has_gpu() ? concat("GPU ", meter.gpu)
                                                 : "stand-in memory",
        .version = TCPX_VERSION,
        .port = server_->port(),
        .options = {
            {"size", bytes_text(meter.transfer_bytes)}, {"iters", concat(meter.transfers)}, {"memory", cuda ? "cuda" : "host"}}};
    return Status::ok();
  }

  mesh::MeshLimits limits() const { return {.step = options_.timeout, .round = meter_->limit() + 2 * options_.timeout}; }

  /// Joins the mesh and serves it to its end.
  Status serve(uint16_t port) {
    TCPX_ASSIGN_OR_RETURN(auto leader, mesh::join_mesh(host(), port, description_, Deadline::after(options_.timeout), &stop_));
    const auto measure = [this](BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
      return meter_->measure(peer, sends, start);
    };
    const Status served = mesh::serve_rounds(leader, *server_, self_.rank, limits(), measure, &stop_);
    return leader.finish(served, Deadline::after(options_.timeout));
  }

  /// A rank that is not rank 0 says nothing when all went well between it and rank 0, who knows the rest.
  int follow(uint16_t port) {
    const Status status = serve(port);
    if (status.is_ok()) return kExitPassed;
    return failed({status.code(), concat("rank ", self_.rank), concat(status.operation(), ": ", status.detail())});
  }

  int lead() {
    // Behind the ranks that connect at the same moment there is room for strangers.
    auto server = BootstrapServer::create({.port = options_.port,
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
    auto members = mesh::gather_members(server, description_, Deadline::after(options_.timeout));
    if (!members.is_ok()) return failed(members.status());
    size_t planned = 0;
    for (const mesh::Round& round : rounds_) planned += round.size();
    const bool permutation = options_.mode == mesh::MeshMode::kPermutation;
    const std::string mode = permutation         ? concat("permutation, shift ", options_.shift)
                             : options_.together ? "pairs, together"
                                                 : "pairs, one at a time";
    say("rank 0",
        concat("all ", self_.size, " ranks are there; ", planned, " pairs in ", rounds_.size(), " rounds (", mode, ")"));

    mesh::MeshResults results{.parameters = description_.options};
    results.parameters["mode"] = mode;
    results.parameters["plugin"] = endpoint_->plugin->name();
    for (const mesh::Member& member : *members) {
      results.ranks.push_back(concat(member.description.host, " ", member.description.memory));
    }
    results.outcome = mesh::lead_mesh(*members, rounds_, {limits().round, &stop_, progress(planned)});
    return show(results, planned);
  }

  /// Failures at once, the rest now and then.
  std::function<void(const mesh::PairOutcome&)> progress(size_t planned) const {
    return [planned, done = size_t{0}, next = Clock::steady().now() + kProgressEvery](const mesh::PairOutcome& outcome) mutable {
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

  int show(const mesh::MeshResults& results, size_t planned) const {
    const Report report = mesh::mesh_report(results);
    const auto text = report_text(report);
    if (!text.is_ok()) return failed(text.status());
    std::fputs(concat("\n", *text, "\n").c_str(), stdout);
    std::fflush(stdout);
    if (!options_.json.empty()) {
      if (const Status status = save_report(report, options_.json); !status.is_ok()) return failed(status);
    }
    const Status verdict = mesh::mesh_verdict(results.outcome, planned);
    if (!verdict.is_ok()) return failed(verdict);
    return passed(concat("all ", planned, " pairs measured, every byte compared"));
  }

  const MeshProgramOptions& options_;
  const mesh::RankEnvironment self_;
  const std::atomic<bool>& stop_;
  std::vector<mesh::Round> rounds_;
  std::optional<LocalMachine> endpoint_;
  std::unique_ptr<mesh::PairMeter> meter_;
  std::unique_ptr<BootstrapServer> server_;
  mesh::RankDescription description_;
};

}  // namespace

int run_mesh_program(const MeshProgramOptions& options, const std::atomic<bool>& stop) {
  const auto self = mesh::read_rank_environment();
  if (!self.is_ok()) return failed(self.status());
  return MeshRank(options, *self, stop).run();
}

}  // namespace tcpx::programs
