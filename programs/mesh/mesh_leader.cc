#include "programs/mesh/mesh_leader.h"

#include "base/text.h"

namespace tcpx::mesh {
namespace {

constexpr Duration kFarewellTime = std::chrono::seconds(5);

class Leader {
 public:
  Leader(std::vector<Member>& members, const LeadOptions& options)
      : members_(members), options_(options), lost_(members.size()) {}

  std::vector<PairOutcome> run_round(int number, const Round& round) {
    tell(tasks_of(number, round));
    // Nobody is told to go before everybody is set up.
    (void)collect();
    tell(std::vector<Command>(members_.size(), Command{.kind = Command::Kind::kGo}));
    const std::vector<RoundReport> reports = collect();
    std::vector<PairOutcome> outcomes;
    for (const Pair& pair : round) {
      outcomes.push_back({pair, outcome_of(pair, reports[static_cast<size_t>(pair.sender)].sent,
                                           reports[static_cast<size_t>(pair.receiver)].received)});
    }
    return outcomes;
  }

  /// Hears every member, up to the deadline of a round. @return reports by rank, empty ones of the lost
  std::vector<RoundReport> collect() {
    const Deadline deadline = Deadline::after(options_.round);
    std::vector<RoundReport> reports(members_.size());
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      if (!lost_[rank].is_ok()) continue;
      const auto parameters = members_[rank].channel.exchange_parameters({}, {}, deadline);
      auto report = parameters.is_ok() ? decode_report(*parameters) : parameters.status();
      if (report.is_ok()) {
        reports[rank] = std::move(*report);
      } else {
        lose(rank, report.status());
      }
    }
    return reports;
  }

  void end(bool interrupted) {
    if (!interrupted) tell(std::vector<Command>(members_.size(), Command{.kind = Command::Kind::kEnd}));
    const Status verdict = interrupted ? Status(Code::kCancelled, "mesh", "interrupted") : Status::ok();
    for (Member& member : members_) (void)member.channel.finish(verdict, Deadline::after(kFarewellTime));
  }

 private:
  bool is_lost(int rank) const { return !lost_[static_cast<size_t>(rank)].is_ok(); }

  void lose(size_t rank, const Status& why) {
    lost_[rank] = Status(why.code(), "lead mesh",
                         concat(name_of(members_[rank].description), " is lost: ", why.operation(), ": ", why.detail()));
  }

  std::vector<Command> tasks_of(int number, const Round& round) const {
    std::vector<Command> commands(members_.size(), Command{.kind = Command::Kind::kTask, .task = {.round = number}});
    for (const Pair& pair : round) {
      if (is_lost(pair.sender) || is_lost(pair.receiver)) continue;
      const auto sender = static_cast<size_t>(pair.sender), receiver = static_cast<size_t>(pair.receiver);
      commands[sender].task.send_to =
          Task::Receiver{pair.receiver, members_[receiver].address, members_[receiver].description.port};
      commands[receiver].task.receive_from = pair.sender;
    }
    return commands;
  }

  void tell(const std::vector<Command>& commands) {
    const Deadline deadline = Deadline::after(options_.round);
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      if (!lost_[rank].is_ok()) continue;
      const auto heard = members_[rank].channel.exchange_parameters(encode_command(commands[rank]), {}, deadline);
      if (!heard.is_ok()) lose(rank, heard.status());
    }
  }

  Result<PairResult> outcome_of(const Pair& pair, const std::optional<Result<PairResult>>& sent,
                                const std::optional<Result<PairResult>>& received) const {
    for (const int rank : {pair.sender, pair.receiver}) {
      if (is_lost(rank)) return lost_[static_cast<size_t>(rank)];
    }
    if (!sent || !received) {
      return Status(Code::kProtocol, "lead mesh",
                    concat("rank ", sent ? pair.receiver : pair.sender, " did not report on its pair"));
    }
    if (sent->is_ok() && received->is_ok()) return *received;
    return telling_error(received->status(), sent->status());
  }

  std::vector<Member>& members_;
  const LeadOptions& options_;
  std::vector<Status> lost_;  // by rank: why the leader no longer hears it; ok for all others
};

bool is_second_hand(const Status& status) {
  return status.is_ok() || status.code() == Code::kPeerGone || status.detail().starts_with("peer reported");
}

}  // namespace

Status telling_error(const Status& receiver, const Status& sender) {
  const bool receivers = !is_second_hand(receiver) || (is_second_hand(sender) && !receiver.is_ok());
  const Status& status = receivers ? receiver : sender;
  return {status.code(), receivers ? "receive" : "send", status.detail()};
}

MeshOutcome lead_mesh(std::vector<Member>& members, const std::vector<Round>& rounds, const LeadOptions& options) {
  Leader leader(members, options);
  MeshOutcome outcome;
  (void)leader.collect();  // the members have nothing to report yet
  for (size_t i = 0; i < rounds.size(); ++i) {
    std::vector<PairOutcome> pairs = leader.run_round(static_cast<int>(i), rounds[i]);
    outcome.interrupted = options.stop != nullptr && options.stop->load();
    for (PairOutcome& pair : pairs) {
      // A pair that an interrupt broke off has not failed.
      if (outcome.interrupted && !pair.result.is_ok()) continue;
      if (options.on_pair) options.on_pair(pair);
      outcome.pairs.push_back(std::move(pair));
    }
    if (outcome.interrupted) break;
  }
  leader.end(outcome.interrupted);
  return outcome;
}

}  // namespace tcpx::mesh
