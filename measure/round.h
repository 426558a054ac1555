// A round: some messages of one size, back to back or to and fro, from the moment both ends are ready to the last completion.
//
// Plugin and pipeline go through the same loop, so that the difference between the two is the pipeline's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "measure/end.h"
#include "measure/message_memory.h"
#include "transfer/backoff.h"
#include "transfer/pipeline.h"

namespace tcpx {

/// Transfers of one size over a pipeline, in order, several submitted ahead. One thread at a time. After an error only
/// destruction.
class TransferSeries {
 public:
  struct Plan {
    RegisteredMemory memory;
    uint64_t bytes = 0;
    /// Most that are submitted at once: chunks of several channels end in any order, so these must lie apart.
    uint64_t window = 1;
    std::function<uint64_t(uint64_t transfer)> offset_of;  ///< of a transfer, by its number, in `memory`
  };

  /// Begins anew with the transfer numbered `first`. Nothing is in flight. @param pipeline must outlive the series
  void start(Pipeline& pipeline, Plan plan, uint64_t first);
  /// Lets `count` more transfers go.
  void allow(uint64_t count) { end_ += count; }
  /// Submits what may go, as far as there is room, and drives the pipeline. @return whether anything happened.
  Result<bool> progress();
  /// Transfers of this start that are sent, or where they belong.
  uint64_t finished() const { return finished_ - begin_; }
  /// Chunks.
  uint64_t in_flight() const { return pipeline_->in_flight(); }
  std::string flight_record() const { return pipeline_->flight_record(); }

 private:
  Status submit();
  Result<bool> finish();

  Pipeline* pipeline_ = nullptr;
  Plan plan_;
  // Numbers of transfers: begin_ <= finished_ <= submitted_ <= end_, of which no more than the window are submitted.
  uint64_t begin_ = 0, finished_ = 0, submitted_ = 0, end_ = 0;
  std::vector<TransferId> ids_;
};

/// @tparam Sender, Receiver have `allow` (the sender), `progress` and `finished`, as TransferSeries has them.
template <class Sender, class Receiver>
class MessageRound {
 public:
  /// @param memory of a round that has begun; what it does not send, or receive, is not touched, the rest is started
  MessageRound(const MessageMemory& memory, Sender& sender, Receiver& receiver, const RoundWait& wait)
      : memory_(memory),
        sender_(sender),
        receiver_(receiver),
        wait_(wait),
        ping_pong_(memory.row().pattern == Pattern::kPingPong),
        patience_(ping_pong_ ? "ping-pong" : "one-way round", wait.deadline, ping_pong_ ? 0 : memory.plan().bytes_under_way()) {}

  Result<Timing> run() {
    const Stopwatch watch;
    last_ = Clock::steady().now();
    next_tick_ = last_ + kTickEvery;
    if (memory_.sends()) sender_.allow(!ping_pong_ ? memory_.count() : memory_.leads() ? 1 : 0);
    sent_ = memory_.sends() ? 0 : memory_.count();
    received_ = memory_.receives() ? 0 : memory_.count();
    while (sent_ < memory_.count() || received_ < memory_.count()) TCPX_RETURN_IF_ERROR(turn());
    return watch.stop();
  }

 private:
  static constexpr Duration kTickEvery = std::chrono::milliseconds(100);

  Status turn() {
    const uint64_t sent_before = sent_, received_before = received_;
    bool advanced = false;
    if (memory_.receives()) TCPX_RETURN_IF_ERROR(drive(receiver_, received_, advanced));
    if (memory_.sends()) TCPX_RETURN_IF_ERROR(drive(sender_, sent_, advanced));
    const uint64_t received = received_ - received_before;
    if (ping_pong_ && received > 0) {
      // The one that leads has begun with the first by itself.
      sender_.allow(std::min(received, memory_.count() - received_before - (memory_.leads() ? 1 : 0)));
      if (memory_.leads()) sample(received, 2);
    } else if (!ping_pong_) {
      sample(memory_.receives() ? received : sent_ - sent_before, 1);
    }
    return wait_.on_tick ? give_way(advanced) : patience_.after_turn(advanced);
  }

  template <class Lane>
  static Status drive(Lane& lane, uint64_t& finished, bool& advanced) {
    TCPX_ASSIGN_OR_RETURN(const bool progress, lane.progress());
    advanced |= progress;
    finished = lane.finished();
    return Status::ok();
  }

  /// Messages that are seen to be done at once share the time since the one before. @param parts of that time that one is
  void sample(uint64_t messages, uint64_t parts) {
    if (messages == 0 || wait_.samples_ns == nullptr) return;
    const TimePoint now = Clock::steady().now();
    const auto each = static_cast<uint64_t>((now - last_).count()) / (messages * parts);
    wait_.samples_ns->insert(wait_.samples_ns->end(), messages, each);
    last_ = now;
  }

  Status give_way(bool advanced) {
    if (wait_.stop != nullptr && wait_.stop->load(std::memory_order_relaxed)) {
      return {Code::kCancelled, "transfer", "interrupted"};
    }
    const TimePoint now = Clock::steady().now();
    if (now >= wait_.deadline.at()) return expired();
    if (now >= next_tick_) {
      TCPX_RETURN_IF_ERROR(wait_.on_tick(memory_.receives() ? received_ : sent_));
      next_tick_ = now + kTickEvery;
    }
    if (advanced) {
      backoff_.reset();
    } else {
      // To and fro, receives wait for what has not been sent yet, and every sleep would be seen.
      backoff_.wait(!ping_pong_ && in_flight() >= Backoff::kMuchUnderWay);
    }
    return Status::ok();
  }

  uint64_t in_flight() const {
    uint64_t chunks = 0;
    if constexpr (requires { sender_.in_flight(); }) {
      if (memory_.sends()) chunks += sender_.in_flight();
      if (memory_.receives()) chunks += receiver_.in_flight();
    }
    return chunks;
  }

  Status expired() const {
    Status status(Code::kTimeout, "transfer",
                  concat("deadline passed with ", memory_.sends() ? sent_ : received_, " of ", memory_.count(), " transfers of ",
                         memory_.row().message_bytes, " bytes done"));
    if constexpr (requires { sender_.flight_record(); }) {
      log(LogLevel::kError, status.to_string(), "; ", memory_.sends() ? sender_.flight_record() : "",
          memory_.receives() ? receiver_.flight_record() : "");
    }
    return status;
  }

  const MessageMemory& memory_;
  Sender& sender_;
  Receiver& receiver_;
  const RoundWait& wait_;
  const bool ping_pong_;
  Patience patience_;
  Backoff backoff_;
  uint64_t sent_ = 0, received_ = 0;
  TimePoint last_, next_tick_;
};

}  // namespace tcpx
