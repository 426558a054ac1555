#include "measure/row_meter.h"

#include <algorithm>
#include <cmath>

#include "base/environment.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr Duration kSetUpLimit = std::chrono::seconds(60);  // CUDA takes its time
constexpr Duration kStepLimit = std::chrono::seconds(30);
constexpr uint64_t kMostMessages = 10'000'000;
// No machine is slower, with any treatment of the bytes.
constexpr uint64_t kLeastBytesPerSecond = 50'000'000;
// From here on one message at a time says enough.
constexpr uint64_t kLongMessageBytes = 128 << 20;

Duration step_limit(uint64_t bytes) {
  return kStepLimit + std::chrono::seconds(bytes / kLeastBytesPerSecond);
}

EndCommand command(EndCommand::Call call) {
  EndCommand command;
  command.call = call;
  return command;
}

}  // namespace

std::optional<SocketFactors> factors_of(uint32_t sockets) {
  const int64_t most_per_thread = environment_info(Variable::kNsocksPerThread).max;
  const int64_t most_threads = environment_info(Variable::kSocketNthreads).max;
  for (int64_t per_thread = std::min<int64_t>(most_per_thread, sockets); per_thread >= 1; --per_thread) {
    if (sockets % per_thread == 0 && sockets / per_thread <= most_threads) return SocketFactors{sockets / per_thread, per_thread};
  }
  return std::nullopt;
}

uint64_t next_count(uint64_t count, Duration taken, Duration wanted) {
  const double each = std::max<double>(1, static_cast<double>(taken.count())) / static_cast<double>(count);
  const double fitting = std::ceil(static_cast<double>(wanted.count()) / each);
  return static_cast<uint64_t>(std::clamp(fitting, 1.0, static_cast<double>(kMostMessages)));
}

Result<std::unique_ptr<RowMeter>> RowMeter::connect(const EndSetup& setup, std::pair<int, int> gpus,
                                                    const EnvironmentOverrides& overrides, const std::atomic<bool>& stop,
                                                    Deadline by) {
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<EndPair> ends, EndPair::start(overrides, stop, by));
  std::unique_ptr<RowMeter> bench(new RowMeter(std::move(ends)));
  TCPX_RETURN_IF_ERROR(bench->set_up(setup, gpus));
  return bench;
}

Status RowMeter::set_up(const EndSetup& setup, std::pair<int, int> gpus) {
  EndCommand leader = command(EndCommand::Call::kSetUp), follower = command(EndCommand::Call::kSetUp);
  leader.setup = follower.setup = setup;
  leader.setup.leads = true;
  follower.setup.leads = false;
  leader.setup.gpu = follower.setup.peer_gpu = gpus.first;
  follower.setup.gpu = leader.setup.peer_gpu = gpus.second;
  TCPX_ASSIGN_OR_RETURN(const EndPair::Answers listening, ends_->ask(leader, follower, kSetUpLimit));
  // One direction after the other, because a connect may block until the other end accepts.
  EndCommand connects = command(EndCommand::Call::kConnect);
  const EndCommand accepts = command(EndCommand::Call::kAccept);
  connects.handle = listening.follower.handle;
  TCPX_RETURN_IF_ERROR(ends_->ask(connects, accepts, kSetUpLimit).status());
  connects.handle = listening.leader.handle;
  return ends_->ask(accepts, connects, kSetUpLimit).status();
}

Status RowMeter::allocate(const RowSetup& row) {
  row_ = row;
  row_.seed = next_seed_++;
  resident_begin_bytes_ = resident_growth_bytes_ = 0;
  EndCommand allocate = command(EndCommand::Call::kAllocate);
  allocate.row = row_;
  return ends_->ask(allocate, step_limit(row_.message_bytes)).status();
}

Result<EndPair::Answers> RowMeter::move(uint64_t count) {
  EndCommand prepare = command(EndCommand::Call::kPrepare);
  prepare.count = count;
  TCPX_RETURN_IF_ERROR(ends_->ask(prepare, step_limit(row_.message_bytes)).status());
  const double before = ends_->cpu_seconds();
  auto run = ends_->ask(command(EndCommand::Call::kRun), step_limit(row_.message_bytes * count));
  run_cpu_seconds_ = ends_->cpu_seconds() - before;
  return run;
}

Result<RowMeter::Round> RowMeter::round(uint64_t count) {
  TCPX_ASSIGN_OR_RETURN(const EndPair::Answers run, move(count));
  const Timing &leader = run.leader.timing, &follower = run.follower.timing;
  const auto begin_bytes = static_cast<int64_t>(leader.resident_begin_bytes + follower.resident_begin_bytes);
  const auto end_bytes = static_cast<int64_t>(leader.resident_end_bytes + follower.resident_end_bytes);
  if (resident_begin_bytes_ == 0) resident_begin_bytes_ = begin_bytes;
  resident_growth_bytes_ = std::max(resident_growth_bytes_, end_bytes - resident_begin_bytes_);
  const bool leader_ends = row_.pattern == Pattern::kPingPong || follower.end_ns == 0;
  const int64_t begin_ns = leader.begin_ns == 0 ? follower.begin_ns : leader.begin_ns;
  return Round{.taken = Duration((leader_ends ? leader : follower).end_ns - begin_ns), .cpu_seconds = run_cpu_seconds_};
}

// Also the warm-up: the first messages of a connection, and of memory, are slow.
Result<uint64_t> RowMeter::calibrate(Duration wanted) {
  uint64_t count = row_.message_bytes < kLongMessageBytes ? 2 : 1;
  // The time of the very first ones (memory is made at first use) would make `count` too small for all the others.
  if (const Result<Round> first = round(count); !first.is_ok()) return first.status();
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const Round tried, round(count));
    const uint64_t next = next_count(count, tried.taken, wanted);
    // The longer a try, the more it says; a short one is not extrapolated far.
    if (tried.taken * 4 >= wanted || next <= count) return next;
    count = std::min(next, count * 16);
  }
}

Status RowMeter::verify() {
  return ends_->ask(command(EndCommand::Call::kVerify), step_limit(row_.message_bytes)).status();
}

Status RowMeter::begin_row(const RowSetup& row, const RowPlan& plan) {
  samples_.clear();
  cpu_seconds_ = gigabytes_ = 0;
  mismatch_.clear();
  TCPX_RETURN_IF_ERROR(allocate(row));
  const Result<uint64_t> count = calibrate(plan.duration / static_cast<int64_t>(plan.samples));
  if (count.is_ok()) count_ = *count;
  return count.status();
}

Status RowMeter::sample() {
  TCPX_ASSIGN_OR_RETURN(const Round done, round(count_));
  const Status verified = verify();
  if (!verified.is_ok() && verified.code() != Code::kMismatch) return verified;
  if (!verified.is_ok() && mismatch_.empty()) mismatch_ = verified.to_string();
  const double bytes = static_cast<double>(row_.message_bytes) * static_cast<double>(count_);
  const bool one_way = row_.pattern == Pattern::kOneWay;
  cpu_seconds_ += done.cpu_seconds;
  gigabytes_ += bytes / 1e9 * (one_way ? 1 : 2);
  const double ns = static_cast<double>(std::max<int64_t>(1, done.taken.count()));
  samples_.push_back(one_way ? bytes / ns : ns / 1e3 / 2 / static_cast<double>(count_));
  return Status::ok();
}

Result<Measured> RowMeter::end_row() {
  TCPX_ASSIGN_OR_RETURN(const Samples samples, Samples::create(samples_));
  Measured measured{.summary = samples.summary(), .mismatch = mismatch_, .resident_growth_bytes = resident_growth_bytes_};
  if (cpu_seconds_ > 0) measured.gigabytes_per_core_second = gigabytes_ / cpu_seconds_;
  return measured;
}

Result<EndPair::Answers> RowMeter::once(const RowSetup& row, uint64_t count) {
  TCPX_RETURN_IF_ERROR(allocate(row));
  TCPX_ASSIGN_OR_RETURN(const EndPair::Answers answers, move(count));
  TCPX_RETURN_IF_ERROR(verify());
  return answers;
}

Status RowMeter::close() {
  return ends_->ask(command(EndCommand::Call::kClose), kStepLimit).status();
}

}  // namespace tcpx
