#include "transfer/channel.h"

#include <utility>

#include "base/log.h"

namespace tcpx {

Channel::Channel(Comm comm, const ReceiveParts& receive, const Clock& clock, const ChannelLimits& limits)
    : comm_(std::move(comm)), receive_(receive), clock_(clock), limits_(limits), fifo_(comm_.direction(), limits.window) {
  now_ = last_advance_ = clock_.now();
}

bool Channel::try_post(const ChunkWork& work) {
  if (!has_room()) return false;
  now_ = clock_.now();
  if (!working()) last_advance_ = now_;
  auto posted = comm_.try_post(work.data, work.chunk.bytes, work.tag, work.memory);
  if (!posted.is_ok()) {
    give_up(posted.status());
    return false;
  }
  refused_ = !posted->has_value();
  if (refused_) return false;
  fifo_.post({.work = work, .request = **posted, .ticket = std::nullopt, .posted_at = now_});
  last_advance_ = now_;
  return true;
}

Channel::Progress Channel::progress() {
  now_ = clock_.now();
  finished_count_ = 0;
  bool advanced = false;
  if (phase_ == Phase::kOpen) {
    advanced |= test_posted();
    advanced |= unpack_arrived();
    advanced |= consume_unpacked();
    if (advanced || !working()) last_advance_ = now_;
    check_stall();
  }
  if (phase_ == Phase::kDraining) {
    drain();
    advanced |= phase_ == Phase::kClosed;
  }
  return {advanced, std::span(finished_).first(finished_count_)};
}

// Posted -> Arrived (receive) or Sent.
bool Channel::test_posted() {
  if (waits_after_peer_gone()) return false;
  const ChunkState done = successor(direction(), ChunkState::kPosted);
  bool advanced = false;
  while (Flight* flight = phase_ == Phase::kOpen ? fifo_.oldest(ChunkState::kPosted) : nullptr) {
    const auto answer = comm_.plugin().test(flight->request);
    if (!answer.is_ok()) {
      if (answer.status().code() != Code::kPeerGone || direction() == Direction::kSend || peer_gone_for_good())
        give_up(answer.status());
      break;
    }
    if (!answer->done) break;
    peer_gone_count_ = 0;
    advanced = true;
    if (done == ChunkState::kSent) {
      finish_oldest(ChunkState::kPosted, done);
    } else {
      fifo_.advance(ChunkState::kPosted, done);
    }
  }
  return advanced;
}

bool Channel::peer_gone_for_good() {
  next_test_at_ = now_ + limits_.peer_gone_grace / (limits_.peer_gone_tests - 1);
  return ++peer_gone_count_ >= limits_.peer_gone_tests;
}

// Arrived -> Unpacking.
bool Channel::unpack_arrived() {
  bool advanced = false;
  while (Flight* flight = phase_ == Phase::kOpen ? fifo_.oldest(ChunkState::kArrived) : nullptr) {
    bool submitted = false;
    if (Status status = start_unpack(*flight, submitted); !status.is_ok()) {
      fail(std::move(status));
      break;
    }
    if (!submitted) break;
    fifo_.advance(ChunkState::kArrived, ChunkState::kUnpacking);
    advanced = true;
  }
  return advanced;
}

Status Channel::start_unpack(Flight& flight, bool& submitted) {
  auto message = comm_.plugin().received(flight.request);
  if (!message.is_ok()) return message.status();
  // The plugin adopts the sender's size without looking (16), and a short message leaves old bytes at the end of the chunk: both
  // are refused before anything is copied.
  const Chunk& chunk = flight.work.chunk;
  if (message->bytes != chunk.bytes) {
    Status status(message->bytes > chunk.bytes ? Code::kProtocol : Code::kMismatch, "receive chunk",
                  concat("chunk ", chunk.index, " of transfer ", static_cast<uint64_t>(flight.work.transfer),
                         ": the sender sent ", message->bytes, " bytes, ", chunk.bytes, " were posted"));
    log(LogLevel::kError, status.to_string());
    return status;
  }
  block_.clear();
  if (!message->in_place) {
    const UnpackTarget target{.pool = receive_.pool.base,
                              .pool_bytes = receive_.pool.bytes,
                              .destination = flight.work.data,
                              .destination_bytes = chunk.bytes};
    if (Status status = block_.build({message->fragments, message->fragment_count}, message->bytes, target); !status.is_ok()) {
      log(LogLevel::kError, "scatter list of chunk ", chunk.index, " refused: ", status.to_string());
      return status;
    }
  }
  if (!block_.fragments().empty()) {
    if (receive_.unpacker == nullptr)
      return Status(Code::kUnsupported, "unpack", "the message lies in the bounce pool and no unpacker was given");
    const auto ticket = receive_.unpacker->submit(block_);
    if (!ticket.is_ok() && ticket.status().code() == Code::kExhausted) return Status::ok();
    if (!ticket.is_ok()) return ticket.status();
    flight.ticket = *ticket;
  }
  if (receive_.tap != nullptr) receive_.tap->arrived(flight.work, *message, block_);
  submitted = true;
  return Status::ok();
}

// Unpacking -> Consumed.
bool Channel::consume_unpacked() {
  bool advanced = false;
  while (Flight* flight = phase_ == Phase::kOpen ? fifo_.oldest(ChunkState::kUnpacking) : nullptr) {
    if (flight->ticket) {
      const auto done = receive_.unpacker->query(*flight->ticket);
      if (!done.is_ok()) {
        fail(done.status());
        break;
      }
      if (!*done) break;
      flight->ticket.reset();
    }
    // The bytes are in place from here on, but without its pages back the comm is of no use: an error here is one of the channel.
    if (Status status = comm_.consumed(flight->request); !status.is_ok()) {
      fail(std::move(status));
      break;
    }
    finish_oldest(ChunkState::kUnpacking, ChunkState::kConsumed);
    advanced = true;
  }
  return advanced;
}

void Channel::finish_oldest(ChunkState from, ChunkState to) {
  require(finished_count_ < finished_.size(), "one call of progress finishes at most what was in flight");
  finished_[finished_count_++] = fifo_.oldest(from)->work.transfer;
  fifo_.advance(from, to);
}

void Channel::check_stall() {
  if (phase_ != Phase::kOpen || !working() || now_ - last_advance_ < limits_.stall_limit) return;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - last_advance_).count();
  Status status(Code::kTimeout, concat(name_of(direction()), " transfer"), concat("nothing advanced for ", ms, " ms"));
  log(LogLevel::kError, status.to_string(), "; ", flight_record());
  fail(std::move(status));
}

void Channel::fail(Status reason) {
  require(!reason.is_ok(), "a channel fails for a reason");
  if (phase_ != Phase::kOpen) return;
  phase_ = Phase::kDraining;
  status_ = std::move(reason);
  drain_until_ = clock_.now() + limits_.drain_limit;
}

void Channel::give_up(const Status& answer) {
  log(LogLevel::kWarning, name_of(direction()), " channel gives up: ", answer.to_string());
  fail(answer);
}

void Channel::drain() {
  bool busy = false;
  for (uint64_t number = fifo_.begin(); number != fifo_.end() && fifo_.state_of(number) == ChunkState::kUnpacking; ++number) {
    Flight& flight = fifo_.at(number);
    if (!flight.ticket) continue;
    const auto done = receive_.unpacker->query(*flight.ticket);
    if (done.is_ok() && !*done) {
      busy = true;
      break;  // tickets finish in order
    }
    flight.ticket.reset();  // done, or the unpacker is broken for good and copies nothing any more
  }
  if (busy && now_ < drain_until_) return;
  if (busy) {
    log(LogLevel::kError, "unpack did not end within the drain limit; ", flight_record());
    status_ = Status(status_.code(), status_.operation(), status_.detail() + "; copies of received data may still be running",
                     status_.domain(), status_.native());
  }
  (void)comm_.abort();  // the first error has won already
  fifo_.fail_all();
  phase_ = Phase::kClosed;
}

Status Channel::close() {
  if (phase_ != Phase::kOpen) return status_;
  require(fifo_.held() == 0, "a channel is closed with nothing in flight");
  phase_ = Phase::kClosed;
  return comm_.close();
}

std::string Channel::flight_record() const {
  std::string text =
      concat("in flight: ", fifo_.held(), " ", name_of(direction()), " chunks", refused_ ? ", the plugin takes no more" : "");
  for (uint64_t number = fifo_.begin(); number != fifo_.end(); ++number) {
    const Flight& flight = fifo_.at(number);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - flight.posted_at).count();
    text += concat("\n  chunk ", flight.work.chunk.index, " of transfer ", static_cast<uint64_t>(flight.work.transfer), ": ",
                   name_of(fifo_.state_of(number)), ", ", flight.work.chunk.bytes, " bytes, ", age, " ms");
  }
  return text;
}

}  // namespace tcpx
