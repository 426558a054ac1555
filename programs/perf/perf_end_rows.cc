// PerfEnd: the rounds of one row.
//
// The client says how many transfers come next; both fill what they will send, meet at a barrier, move the data, and compare what
// they received. Only the moving is timed.
#include <algorithm>
#include <charconv>

#include "measure/size_sweep.h"
#include "programs/perf/perf_end.h"
#include "transfer/run.h"

namespace tcpx::perf {

Result<EndRow> PerfEnd::measure(BootstrapChannel& channel, uint64_t bytes) {
  EndRow row;
  row.verified = verified();
  RoundTimes times;
  const Status status = run_rounds(channel, bytes, row, times);
  set_times(row, std::move(times.samples_ns));
  row.busy_ns = times.busy_ns;
  row.cpu_ns = times.cpu_ns;
  row.nics = std::move(times.nics);
  if (status.is_ok()) return row;
  unfinished_ = std::move(row);
  unfinished_bytes_ = bytes;
  return status;
}

Status PerfEnd::run_rounds(BootstrapChannel& channel, uint64_t bytes, EndRow& row, RoundTimes& times) {
  uint64_t warmed_up = 0, timed = 0;
  TimePoint timed_since = Clock::steady().now();
  for (;;) {
    const Result<NextRound> next = agree_on_round(channel, next_round(bytes, warmed_up, timed, timed_since), bytes);
    if (!next.is_ok()) return next.status();
    if (next->transfers == 0) return Status::ok();
    const RoundPlan plan{.ping_pong = options_.mode == PerfMode::kLatency,
                         .begins = !is_server(),
                         .bytes = bytes,
                         .stride = slot_stride(bytes),
                         .transfers = next->transfers};
    TCPX_RETURN_IF_ERROR(mover_->fill(plan, ++round_));
    // The peer may still be filling.
    TCPX_RETURN_IF_ERROR(channel.barrier(data_deadline(bytes * next->transfers)));
    RoundTimes ignored;
    TCPX_RETURN_IF_ERROR(run_one(channel, plan, next->timed, next->timed ? times : ignored));
    TCPX_RETURN_IF_ERROR(mover_->verify(plan, round_, row));
    if (next->timed && timed == 0) timed_since = Clock::steady().now();
    (next->timed ? timed : warmed_up) += next->transfers;
  }
}

PerfEnd::NextRound PerfEnd::next_round(uint64_t bytes, uint64_t warmed_up, uint64_t timed, TimePoint timed_since) const {
  const uint32_t slots = slots_in(slot_room_, bytes);
  const auto up_to = [&](uint64_t left) { return static_cast<uint32_t>(std::min<uint64_t>(slots, left)); };
  if (warmed_up < options_.warm_up) return {up_to(options_.warm_up - warmed_up), false};
  if (options_.duration <= Duration::zero()) return {up_to(options_.iterations - timed), true};
  const bool over = timed > 0 && Clock::steady().now() - timed_since >= options_.duration;
  return {over ? 0 : slots, true};
}

Result<PerfEnd::NextRound> PerfEnd::agree_on_round(BootstrapChannel& channel, const NextRound& mine, uint64_t bytes) {
  const uint32_t slots = slots_in(slot_room_, bytes);
  const Parameters parameters = {{"transfers", std::to_string(mine.transfers)}, {"timed", mine.timed ? "1" : "0"}};
  // The peer may still be receiving and comparing the round before.
  const auto theirs = channel.exchange_parameters(parameters, {}, data_deadline(bytes * slots * 2));
  if (!theirs.is_ok()) return theirs.status();
  if (!is_server()) return mine;
  const auto transfers = theirs->find("transfers"), timed = theirs->find("timed");
  NextRound next;
  if (transfers != theirs->end() && timed != theirs->end()) {
    const std::string& text = transfers->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), next.transfers);
    next.timed = timed->second == "1";
    if (error == std::errc() && end == text.data() + text.size() && next.transfers <= slots) return next;
  }
  return Status(Code::kProtocol, "agree on a round", "the client's plan is missing or malformed");
}

Status PerfEnd::run_one(BootstrapChannel& channel, const RoundPlan& plan, bool timed, RoundTimes& times) {
  const uint64_t done_before = times.samples_ns.size(), busy_before = times.busy_ns;
  const TimePoint begin = Clock::steady().now();
  const auto on_tick = [&](uint32_t done) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::steady().now() - begin).count();
    listener_.on_progress({plan.bytes, timed, done_before + done, busy_before + static_cast<uint64_t>(elapsed)});
    return channel.peer_status();
  };
  const RoundWait wait{.deadline = data_deadline(plan.bytes * plan.transfers), .stop = &place_.stop, .on_tick = on_tick};
  const Status status = mover_->run(plan, wait, times);
  if (status.is_ok()) listener_.on_progress({plan.bytes, timed, times.samples_ns.size(), times.busy_ns});
  return status.is_ok() ? status : peers_reason(channel, status);
}

}  // namespace tcpx::perf
