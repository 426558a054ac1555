#include "measure/round.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "measure/resources.h"
#include "transfer/backoff.h"

namespace tcpx {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(100);

uint64_t ns_between(TimePoint begin, TimePoint end) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

/// One direction of the round.
class Way {
 public:
  Way(Half* half, const RoundPlan& plan) : half_(half), plan_(plan) {
    if (half == nullptr) return;
    series_.emplace(*half->pipeline);
    series_->start({.memory = half->registered,
                    .bytes = plan.bytes,
                    .window = plan.transfers,
                    .offset_of = [stride = plan.stride](uint64_t transfer) { return transfer * stride; }});
  }

  bool exists() const { return half_ != nullptr; }
  uint32_t done() const { return exists() ? static_cast<uint32_t>(series_->finished()) : plan_.transfers; }
  bool complete() const { return done() == plan_.transfers; }
  uint64_t in_flight() const { return exists() ? half_->pipeline->in_flight() : 0; }
  /// While there are transfers left.
  void allow(uint32_t count) {
    count = std::min(count, plan_.transfers - allowed_);
    allowed_ += count;
    if (exists()) series_->allow(count);
  }
  Result<bool> progress() { return exists() ? series_->progress() : Result<bool>(false); }
  void count_bytes(NicBytes& nics) const {
    if (!exists()) return;
    for (const ChannelCounters& channel : half_->pipeline->counters()) nics[channel.nic] += channel.bytes;
  }
  std::string flight_record() const { return exists() ? half_->pipeline->flight_record() : ""; }

 private:
  Half* half_;
  const RoundPlan& plan_;
  std::optional<TransferSeries> series_;
  uint32_t allowed_ = 0;
};

class Round {
 public:
  Round(const RoundPlan& plan, Half* send, Half* receive, const RoundWait& wait, RoundTimes& times)
      : plan_(plan), wait_(wait), times_(times), send_(send, plan), receive_(receive, plan) {}

  Status run() {
    NicBytes before;
    send_.count_bytes(before);
    receive_.count_bytes(before);
    const uint64_t cpu_before = process_cpu_ns();
    now_ = last_ = Clock::steady().now();
    const TimePoint begin = now_;
    Status status = drive();
    times_.busy_ns += ns_between(begin, Clock::steady().now());
    times_.cpu_ns += process_cpu_ns() - cpu_before;
    send_.count_bytes(times_.nics);
    receive_.count_bytes(times_.nics);
    for (const auto& [nic, bytes] : before) times_.nics[nic] -= bytes;
    return status;
  }

 private:
  // To and fro, receives wait for what has not been sent yet, and every sleep would be seen.
  bool much_under_way() const { return !plan_.ping_pong && receive_.in_flight() + send_.in_flight() >= Backoff::kMuchUnderWay; }

  Status drive() {
    receive_.allow(plan_.transfers);
    if (!plan_.ping_pong) send_.allow(plan_.transfers);
    if (plan_.ping_pong && plan_.begins) send_.allow(1);
    Backoff backoff;
    TimePoint next_tick = now_ + kTickEvery;
    while (!send_.complete() || !receive_.complete()) {
      const uint32_t received_before = receive_.done(), sent_before = send_.done();
      TCPX_ASSIGN_OR_RETURN(const bool received, receive_.progress());
      TCPX_ASSIGN_OR_RETURN(const bool sent, send_.progress());
      now_ = Clock::steady().now();
      take(receive_.done() - received_before, send_.done() - sent_before);
      if (wait_.stop != nullptr && wait_.stop->load(std::memory_order_relaxed)) {
        return {Code::kCancelled, "transfer", "interrupted"};
      }
      if (now_ >= wait_.deadline.at()) return expired();
      if (now_ >= next_tick) {
        TCPX_RETURN_IF_ERROR(wait_.on_tick(receive_.exists() ? receive_.done() : send_.done()));
        next_tick = now_ + kTickEvery;
      }
      if (received || sent) {
        backoff.reset();
      } else {
        backoff.wait(much_under_way());
      }
    }
    return Status::ok();
  }

  /// @param received, sent transfers that have just been seen to be done
  void take(uint32_t received, uint32_t sent) {
    if (!plan_.ping_pong) return sample(receive_.exists() ? received : sent, 1);
    if (plan_.begins) sample(received, 2);
    send_.allow(received);
  }

  /// Transfers that are seen to be done at once share the time since the one before. @param parts of that time that one is
  void sample(uint32_t transfers, uint64_t parts) {
    if (transfers == 0) return;
    const uint64_t each = ns_between(last_, now_) / (transfers * parts);
    times_.samples_ns.insert(times_.samples_ns.end(), transfers, each);
    last_ = now_;
  }

  Status expired() const {
    Status status(Code::kTimeout, "transfer",
                  concat("deadline passed with ", send_.exists() ? send_.done() : receive_.done(), " of ", plan_.transfers,
                         " transfers of ", plan_.bytes, " bytes done"));
    log(LogLevel::kError, status.to_string(), "; ", send_.flight_record(), receive_.flight_record());
    return status;
  }

  const RoundPlan& plan_;
  const RoundWait& wait_;
  RoundTimes& times_;
  Way send_, receive_;
  TimePoint now_, last_;
};

}  // namespace

void TransferSeries::start(Plan plan, uint64_t first) {
  plan_ = std::move(plan);
  begin_ = finished_ = submitted_ = end_ = first;
  ids_.resize(plan_.window);
}

Result<bool> TransferSeries::progress() {
  TCPX_RETURN_IF_ERROR(submit());
  const bool advanced = pipeline_.progress();
  TCPX_ASSIGN_OR_RETURN(const bool finished, finish());
  return advanced || finished;
}

Status TransferSeries::submit() {
  for (; submitted_ < end_ && submitted_ - finished_ < ids_.size(); ++submitted_) {
    TCPX_ASSIGN_OR_RETURN(
        const auto id, pipeline_.submit({.memory = plan_.memory, .offset = plan_.offset_of(submitted_), .bytes = plan_.bytes}));
    ids_[submitted_ % ids_.size()] = id;
  }
  return Status::ok();
}

Result<bool> TransferSeries::finish() {
  bool any = false;
  for (; finished_ < submitted_; ++finished_) {
    TransferAnswer answer = pipeline_.poll(ids_[finished_ % ids_.size()]);
    if (answer.state == TransferState::kPending) break;
    if (answer.state == TransferState::kFailed) return std::move(answer.status);
    if (answer.state == TransferState::kUnknown)
      return Status(Code::kInternal, "poll transfer", "the connection does not know it");
    any = true;
  }
  return any;
}

Status Half::take(Result<std::unique_ptr<Pipeline>> opened) {
  if (!opened.is_ok()) return opened.status();
  pipeline = std::move(*opened);
  const auto made = pipeline->register_memory(memory.data(), memory.size(), memory.type());
  if (made.is_ok()) registered = *made;
  return made.status();
}

Status run_round(const RoundPlan& plan, Half* send, Half* receive, const RoundWait& wait, RoundTimes& times) {
  return Round(plan, send, receive, wait, times).run();
}

}  // namespace tcpx
