#include "programs/mesh/mesh_rounds.h"

#include <future>
#include <string_view>

#include "base/log.h"
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

// A sender says at once which round it is for.
constexpr Duration kTicketTime = std::chrono::seconds(5);

/// Compared by sender and receiver, so that a sender of an earlier round, which failed, is not taken for that of this one.
Parameters ticket(int round, int sender, int receiver) {
  return {{"round", concat(round)}, {"sender", concat(sender)}, {"receiver", concat(receiver)}};
}
constexpr std::string_view kTicketFields[] = {"round", "sender", "receiver"};

Result<BootstrapChannel> accept_sender(BootstrapServer& server, const Parameters& expected, Deadline deadline) {
  for (;;) {
    auto channel = server.accept(deadline);
    if (!channel.is_ok()) return channel.status();
    const Deadline soon = deadline.earlier(Deadline::after(kTicketTime));
    const auto ticket = channel->exchange_parameters(expected, kTicketFields, soon);
    if (ticket.is_ok()) return channel;
    log(LogLevel::kInfo, "mesh: turned away ", channel->peer().to_string(), ": ", ticket.status().to_string());
  }
}

Result<BootstrapChannel> connect_receiver(const Task::Receiver& receiver, const Parameters& mine, Deadline deadline,
                                          const std::atomic<bool>* stop) {
  auto channel = bootstrap_connect(receiver.host, receiver.port, deadline, stop);
  if (!channel.is_ok()) return channel.status();
  const auto theirs = channel->exchange_parameters(mine, kTicketFields, deadline);
  if (!theirs.is_ok()) return theirs.status();
  return channel;
}

/// One of the two parts that a rank can have in a round, in a thread of its own, which its destruction waits for.
struct Part {
  std::future<void> set_up;  ///< ready to be timed, or failed; each step up to there has a deadline
  std::future<Result<PairResult>> result;
};

/// @param go answers within the limit of a round
Part begin_part(bool sends, std::function<Result<BootstrapChannel>(Deadline)> connect, const MeasurePair& measure,
                const MeshLimits& limits, std::shared_future<Status> go) {
  std::promise<void> promise;
  Part part{.set_up = promise.get_future(), .result = {}};
  auto work = [=, promise = std::move(promise), &measure]() mutable -> Result<PairResult> {
    bool arrived = false;
    const auto arrive = [&] {
      if (!arrived) promise.set_value();
      arrived = true;
    };
    auto channel = connect(Deadline::after(limits.step));
    auto result = !channel.is_ok() ? channel.status() : measure(*channel, sends, [&] {
      arrive();
      return go.get();
    });
    // After an early failure, too: it holds up nobody, and the other end hears of it only once its own start has returned.
    arrive();
    if (!channel.is_ok()) return result;
    // The other end may have failed where this one saw nothing.
    const Status both = channel->finish(result.status(), Deadline::after(limits.step));
    return both.is_ok() ? result : both;
  };
  part.result = std::async(std::launch::async, std::move(work));
  return part;
}

/// Reports, then hears what is next. The leader answers when all members have reported.
Result<Command> next_command(BootstrapChannel& leader, const Parameters& report, const MeshLimits& limits) {
  // Another pair of the round may take as long as the limit allows before the leader goes on.
  const Deadline deadline = Deadline::after(2 * limits.round);
  const auto noted = leader.exchange_parameters(report, {}, deadline);
  if (!noted.is_ok()) return noted.status();
  TCPX_ASSIGN_OR_RETURN(const auto command, leader.exchange_parameters({}, {}, deadline));
  return decode_command(command);
}

/// Does `task`. @return its report; an error when the leader is gone
Result<RoundReport> run_task(const Task& task, BootstrapChannel& leader, BootstrapServer& server, int rank,
                             const MeshLimits& limits, const MeasurePair& measure, const std::atomic<bool>* stop) {
  std::promise<Status> gate;
  const std::shared_future<Status> go = gate.get_future().share();
  Part sending, receiving;
  if (task.receive_from) {
    const Parameters expected = ticket(task.round, *task.receive_from, rank);
    const auto accept = [&server, expected](Deadline deadline) { return accept_sender(server, expected, deadline); };
    receiving = begin_part(false, accept, measure, limits, go);
  }
  if (task.send_to) {
    const Parameters mine = ticket(task.round, rank, task.send_to->rank);
    const auto connect = [to = *task.send_to, mine, stop](Deadline deadline) {
      return connect_receiver(to, mine, deadline, stop);
    };
    sending = begin_part(true, connect, measure, limits, go);
  }
  for (const Part* part : {&receiving, &sending}) {
    if (part->set_up.valid()) part->set_up.wait();
  }

  const auto command = next_command(leader, {}, limits);
  Status start = command.status();
  if (command.is_ok() && command->kind != Command::Kind::kGo) {
    start = Status(Code::kProtocol, "mesh round", "the leader said something other than go");
  }
  gate.set_value(start);
  RoundReport report;
  if (receiving.result.valid()) report.received = receiving.result.get();
  if (sending.result.valid()) report.sent = sending.result.get();
  TCPX_RETURN_IF_ERROR(start);
  return report;
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

Status serve_rounds(BootstrapChannel& leader, BootstrapServer& server, int rank, const MeshLimits& limits,
                    const MeasurePair& measure, const std::atomic<bool>* stop) {
  Parameters report;
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const auto command, next_command(leader, report, limits));
    switch (command.kind) {
      case Command::Kind::kEnd:
        return Status::ok();
      case Command::Kind::kGo:
        return {Code::kProtocol, "mesh round", "the leader said go without a task"};
      case Command::Kind::kTask:
        break;
    }
    TCPX_ASSIGN_OR_RETURN(const auto done, run_task(command.task, leader, server, rank, limits, measure, stop));
    report = encode_report(done);
  }
}

}  // namespace tcpx::mesh
