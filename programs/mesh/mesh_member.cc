#include "programs/mesh/mesh_member.h"

#include <future>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "base/text.h"

namespace tcpx::mesh {
namespace {

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

/// One of the two parts that a rank can have in a round, in a thread of its own.
class Part {
 public:
  using Connect = std::function<Result<BootstrapChannel>(Deadline)>;

  Part(bool sends, Connect connect, const MeasurePair& measure, const MeshLimits& limits, std::shared_future<Status> go)
      : sends_(sends), measure_(measure), limits_(limits), go_(std::move(go)), set_up_(promise_.get_future()) {
    thread_ = std::thread([this, connect = std::move(connect)] {
      result_ = run(connect);
      arrive();  // a part that failed early holds up nobody
    });
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (thread_.joinable()) thread_.join();
  }

  /// Returns when this part is ready to be timed or has failed. Each of its steps up to there has a deadline.
  void wait_set_up() { set_up_.wait(); }
  Result<PairResult> result() {
    thread_.join();
    return std::move(*result_);
  }

 private:
  void arrive() {
    if (!arrived_) promise_.set_value();
    arrived_ = true;
  }

  Result<PairResult> run(const Connect& connect) {
    TCPX_ASSIGN_OR_RETURN(auto channel, connect(Deadline::after(limits_.step)));
    const auto start = [this] {
      arrive();
      return go_.get();  // the thread that serves the rounds answers, within the limit of a round
    };
    auto result = measure_(channel, sends_, start);
    arrive();  // after an early failure: the other end hears of it only once its own start has returned
    // The other end may have failed where this one saw nothing.
    const Status both = channel.finish(result.status(), Deadline::after(limits_.step));
    if (!both.is_ok()) return both;
    return result;
  }

  const bool sends_;
  const MeasurePair& measure_;
  const MeshLimits limits_;
  std::shared_future<Status> go_;
  std::promise<void> promise_;
  std::future<void> set_up_;
  bool arrived_ = false;  // of the thread
  std::optional<Result<PairResult>> result_;
  std::thread thread_;
};

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
  std::optional<Part> sending, receiving;
  if (task.receive_from) {
    const Parameters expected = ticket(task.round, *task.receive_from, rank);
    const auto accept = [&server, expected](Deadline deadline) { return accept_sender(server, expected, deadline); };
    receiving.emplace(false, accept, measure, limits, go);
  }
  if (task.send_to) {
    const Parameters mine = ticket(task.round, rank, task.send_to->rank);
    const auto connect = [to = *task.send_to, mine, stop](Deadline deadline) {
      return connect_receiver(to, mine, deadline, stop);
    };
    sending.emplace(true, connect, measure, limits, go);
  }
  if (receiving) receiving->wait_set_up();
  if (sending) sending->wait_set_up();

  const auto command = next_command(leader, {}, limits);
  Status start = command.status();
  if (command.is_ok() && command->kind != Command::Kind::kGo) {
    start = Status(Code::kProtocol, "mesh round", "the leader said something other than go");
  }
  gate.set_value(start);
  RoundReport report;
  if (receiving) report.received = receiving->result();
  if (sending) report.sent = sending->result();
  TCPX_RETURN_IF_ERROR(start);
  return report;
}

}  // namespace

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
