#include "programs/perf/round.h"

#include <sys/resource.h>

#include <array>
#include <string>

#include "base/log.h"
#include "measure/size_sweep.h"
#include "transfer/backoff.h"

namespace tcpx::perf {
namespace {

constexpr Duration kTickEvery = std::chrono::milliseconds(100);

uint64_t ns_between(TimePoint begin, TimePoint end) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
}

void count_bytes(const Half* half, NicBytes& nics) {
  if (half == nullptr) return;
  for (const ChannelCounters& channel : half->connection->counters()) nics[channel.nic] += channel.bytes;
}

/// The transfers of one half, in order.
class Series {
 public:
  Series(Half* half, const RoundPlan& plan) : half_(half), plan_(plan), done_(half == nullptr ? plan.transfers : 0) {}

  bool exists() const { return half_ != nullptr; }
  uint32_t submitted() const { return submitted_; }
  uint32_t done() const { return done_; }
  bool complete() const { return done_ == plan_.transfers; }

  Status submit() {
    const size_t offset = submitted_ * slot_stride(plan_.bytes);
    const auto id = half_->connection->submit({.memory = half_->registered, .offset = offset, .bytes = plan_.bytes});
    if (!id.is_ok()) return id.status();
    ids_[submitted_++] = *id;
    return Status::ok();
  }
  Status submit_all() {
    while (submitted_ < plan_.transfers) TCPX_RETURN_IF_ERROR(submit());
    return Status::ok();
  }

  uint64_t in_flight() const { return exists() ? half_->connection->in_flight() : 0; }
  bool progress() { return exists() && half_->connection->progress(); }

  /// True when the oldest transfer has just ended well.
  Result<bool> take_done() {
    if (!exists() || done_ == submitted_) return false;
    TransferAnswer answer = half_->connection->poll(ids_[done_]);
    if (answer.state == TransferState::kFailed) return std::move(answer.status);
    if (answer.state != TransferState::kDone) return false;
    ++done_;
    return true;
  }

 private:
  Half* half_;
  const RoundPlan& plan_;
  std::array<TransferId, kMaxSlots> ids_{};
  uint32_t submitted_ = 0;
  uint32_t done_;
};

class Round {
 public:
  Round(const RoundPlan& plan, Half* send, Half* receive, const RoundWait& wait, RoundTimes& times)
      : plan_(plan),
        wait_(wait),
        times_(times),
        send_half_(send),
        receive_half_(receive),
        sends_(send, plan),
        receives_(receive, plan) {}

  Status run() {
    NicBytes before;
    count_bytes(send_half_, before);
    count_bytes(receive_half_, before);
    const uint64_t cpu_before = process_cpu_ns();
    now_ = last_ = Clock::steady().now();
    const TimePoint begin = now_;
    Status status = drive();
    times_.busy_ns += ns_between(begin, Clock::steady().now());
    times_.cpu_ns += process_cpu_ns() - cpu_before;
    count_bytes(send_half_, times_.nics);
    count_bytes(receive_half_, times_.nics);
    for (const auto& [nic, bytes] : before) times_.nics[nic] -= bytes;
    return status;
  }

 private:
  bool ping_pong() const { return plan_.mode == PerfMode::kLatency; }

  // To and fro, receives wait for what has not been sent yet, and every sleep would be seen.
  bool much_under_way() const { return !ping_pong() && receives_.in_flight() + sends_.in_flight() >= Backoff::kMuchUnderWay; }

  Status begin() {
    if (receives_.exists()) TCPX_RETURN_IF_ERROR(receives_.submit_all());
    if (!sends_.exists()) return Status::ok();
    if (!ping_pong()) return sends_.submit_all();
    return plan_.begins ? sends_.submit() : Status::ok();
  }

  Status drive() {
    TCPX_RETURN_IF_ERROR(begin());
    Backoff backoff;
    TimePoint next_tick = now_ + kTickEvery;
    while (!sends_.complete() || !receives_.complete()) {
      const bool received = receives_.progress(), sent = sends_.progress();
      now_ = Clock::steady().now();
      TCPX_RETURN_IF_ERROR(take_received());
      TCPX_RETURN_IF_ERROR(take_sent());
      if (wait_.stop != nullptr && wait_.stop->load(std::memory_order_relaxed)) {
        return {Code::kCancelled, "transfer", "interrupted"};
      }
      if (now_ >= wait_.deadline.at()) return expired();
      if (now_ >= next_tick) {
        TCPX_RETURN_IF_ERROR(wait_.on_tick(receives_.exists() ? receives_.done() : sends_.done()));
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

  Status take_received() {
    uint32_t done = 0;
    for (;; ++done) {
      const Result<bool> next = receives_.take_done();
      if (!next.is_ok()) return next.status();
      if (!*next) break;
      if (!ping_pong()) continue;
      if (plan_.begins) sample(1, 2);
      if (sends_.submitted() < plan_.transfers) TCPX_RETURN_IF_ERROR(sends_.submit());
    }
    if (!ping_pong()) sample(done, 1);
    return Status::ok();
  }

  Status take_sent() {
    uint32_t done = 0;
    for (;; ++done) {
      const Result<bool> next = sends_.take_done();
      if (!next.is_ok()) return next.status();
      if (!*next) break;
    }
    if (!receives_.exists()) sample(done, 1);
    return Status::ok();
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
                  concat("deadline passed with ", sends_.exists() ? sends_.done() : receives_.done(), " of ", plan_.transfers,
                         " transfers of ", plan_.bytes, " bytes done"));
    std::string record;
    for (const Half* half : {send_half_, receive_half_}) {
      if (half != nullptr) record += half->connection->flight_record();
    }
    log(LogLevel::kError, status.to_string(), "; ", record);
    return status;
  }

  const RoundPlan& plan_;
  const RoundWait& wait_;
  RoundTimes& times_;
  Half* const send_half_;
  Half* const receive_half_;
  Series sends_, receives_;
  TimePoint now_, last_;
};

}  // namespace

Status run_round(const RoundPlan& plan, Half* send, Half* receive, const RoundWait& wait, RoundTimes& times) {
  return Round(plan, send, receive, wait, times).run();
}

uint64_t process_cpu_ns() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace tcpx::perf
