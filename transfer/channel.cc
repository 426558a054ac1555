#include "transfer/channel.h"

#include <utility>

#include "base/log.h"
#include "tcpx/help.h"

namespace tcpx {

uint32_t default_window(const NetPlugin& plugin, Direction direction, size_t channels) {
  const uint32_t depth = channels == 1 ? plugin.queue_depth() : kQueueDepth;
  // GPUDirect-TCPX frees a send's place in its queue only when test reports the send as done. Its direct users (UCCL p2p/tcpx)
  // keep four places in reserve.
  return direction == Direction::kSend && depth == kQueueDepth ? depth - 4 : depth;
}

Channel::Channel(Comm comm, const ReceiveParts& receive, const Clock& clock, const ChannelLimits& limits)
    : comm_(std::move(comm)),
      receive_(receive),
      clock_(clock),
      limits_(limits),
      fifo_(comm_.direction(), limits.window),
      asker_{.connection = limits.connection},
      finished_(limits.window) {
  now_ = last_advance_ = clock_.now();
}

Channel::~Channel() {
  leave_budget();
}

bool Channel::try_post(const ChunkWork& work) {
  const bool bounced = direction() == Direction::kRecv && work.type == MemoryType::kCuda;
  if (!has_room() || (fifo_.held() >= kQueueDepth && (bounced || after_cuda_ > fifo_.begin()))) return false;
  now_ = clock_.now();
  const auto share = take_share(work.chunk.bytes);
  if (!share) {
    refused_ |= had_refused_;  // the plugin was not asked again, so its earlier refusal still holds
    return false;
  }
  if (!working() && !had_refused_) last_advance_ = now_;
  auto posted = comm_.try_post(work.data, work.chunk.bytes, work.tag, work.memory);
  refused_ = posted.is_ok() && !posted->has_value();
  if (!posted.is_ok()) give_up(posted.status());
  if (!posted.is_ok() || refused_) {
    give_back(*share);
    return false;
  }
  log(LogLevel::kDebug, name_of(direction()), " posted: chunk_idx=", work.chunk.index, " tag=", work.tag,
      " size=", work.chunk.bytes, " offset=", work.chunk.offset);
  const char* const name = direction() == Direction::kSend ? "send chunk" : "recv chunk";
  fifo_.post({.work = work,
              .request = **posted,
              .ticket = std::nullopt,
              .posted_at = now_,
              .share = *share,
              .trace = TraceRange(name, work.chunk.bytes)});
  held_bytes_ += work.chunk.bytes;
  if (bounced) after_cuda_ = fifo_.end();
  last_advance_ = now_;
  return true;
}

Channel::Progress Channel::progress() {
  now_ = clock_.now();
  finished_count_ = 0;
  bool advanced = false;
  if (state_ == State::kOpen) {
    advanced |= test_posted();
    advanced |= unpack_arrived();
    advanced |= consume_unpacked();
    if (advanced || !working()) last_advance_ = now_;
    check_stall();
    had_refused_ = std::exchange(refused_, false);
    if (!std::exchange(waits_for_share_, false)) leave_budget();
  }
  if (state_ == State::kDraining) {
    drain();
    advanced |= state_ == State::kClosed;
  }
  return {advanced, std::span(finished_).first(finished_count_)};
}

// Posted -> Arrived (receive) or Sent.
bool Channel::test_posted() {
  if (waits_after_peer_gone()) return false;
  const ChunkState done = successor(direction(), ChunkState::kPosted);
  bool advanced = false;
  while (Flight* flight = state_ == State::kOpen ? fifo_.oldest(ChunkState::kPosted) : nullptr) {
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

// Arrived -> Unpacking. Moves all arrived chunks; when the unpacker is full, only those in front of the first that needs a copy.
bool Channel::unpack_arrived() {
  if (state_ != State::kOpen || fifo_.count(ChunkState::kArrived) == 0) return false;
  bool advanced = false;
  for (const uint64_t end = fifo_.end() - fifo_.count(ChunkState::kPosted); gathered_end_ != end; ++gathered_end_) {
    // Nothing is given back after an error, so what was gathered before it is not worth copying.
    if (Status status = gather(fifo_.at(gathered_end_)); !status.is_ok()) {
      fail(std::move(status));
      return advanced;
    }
    if (batch_blocks_ == 0) {  // neither this message nor one before it waits for a copy
      fifo_.advance(ChunkState::kArrived, ChunkState::kUnpacking);
      advanced = true;
    }
  }
  if (batch_blocks_ == 0) return advanced;
  const TraceRange trace("submit unpack", batch_blocks_);
  const auto ticket = receive_.unpacker->submit(std::span(blocks_).first(batch_blocks_));
  if (!ticket.is_ok()) {
    // When the unpacker is full, the next call submits the batch again, with the messages that have arrived by then.
    if (ticket.status().code() != Code::kExhausted) fail(ticket.status());
    return advanced;
  }
  log(LogLevel::kDebug, "Launching device unpack (", receive_.unpacker->name(), "): ", batch_blocks_, " requests");
  batch_blocks_ = 0;
  // A message that needs no copy but follows one that does is not given back before that one, so it waits for the same ticket.
  while (Flight* flight = fifo_.oldest(ChunkState::kArrived)) {
    flight->ticket = *ticket;
    fifo_.advance(ChunkState::kArrived, ChunkState::kUnpacking);
  }
  return true;
}

// Reads once what has arrived for `flight`, and adds it to the batch if there is something to copy. This happens right after the
// chunk's test, because the plugin can tell what arrived only until the next post. A block that waits for a full unpacker is not
// built again.
Status Channel::gather(const Flight& flight) {
  TCPX_ASSIGN_OR_RETURN(auto message, comm_.plugin().received(flight.request));
  // The plugin accepts the sender's size unchecked (16), and a short message leaves old bytes at the end of the chunk. Both a
  // long and a short message are refused before anything is copied.
  const Chunk& chunk = flight.work.chunk;
  if (message.bytes != chunk.bytes) {
    Status status(
        message.bytes > chunk.bytes ? Code::kProtocol : Code::kMismatch, "receive chunk",
        concat("chunk ", chunk.index, " of transfer ", static_cast<uint64_t>(flight.work.transfer), ": the sender sent ",
               message.bytes, " bytes, ", chunk.bytes, " were posted", name_in_detail(Hint::kTagsIgnored)));
    log(LogLevel::kError, status.to_string());
    return status;
  }
  DescriptorBlock& block = blocks_[batch_blocks_];
  block.clear();
  if (!message.in_place) {
    const UnpackTarget target{.pool = receive_.pool.base,
                              .pool_bytes = receive_.pool.bytes,
                              .destination = flight.work.data,
                              .destination_bytes = chunk.bytes};
    if (Status status = block.build({message.fragments, message.fragment_count}, message.bytes, target); !status.is_ok()) {
      log(LogLevel::kError, "scatter list of chunk ", chunk.index, " refused: ", status.to_string());
      return status;
    }
  }
  if (!block.fragments().empty()) {
    if (receive_.unpacker == nullptr)
      return Status(Code::kUnsupported, "unpack", "the message lies in the bounce pool and no unpacker was given");
    ++batch_blocks_;
  }
  if (receive_.tap != nullptr) receive_.tap->arrived(flight.work, message, block);
  return Status::ok();
}

// Unpacking -> Consumed.
bool Channel::consume_unpacked() {
  bool advanced = false;
  while (Flight* flight = state_ == State::kOpen ? fifo_.oldest(ChunkState::kUnpacking) : nullptr) {
    const auto copied = is_copied(*flight);
    if (!copied.is_ok()) {
      fail(copied.status());
      break;
    }
    if (!*copied) break;
    // The bytes are in place now. But a comm that does not get its pages back cannot go on, so an error here fails the channel.
    if (Status status = comm_.consumed(flight->request); !status.is_ok()) {
      fail(std::move(status));
      break;
    }
    finish_oldest(ChunkState::kUnpacking, ChunkState::kConsumed);
    advanced = true;
  }
  return advanced;
}

Result<bool> Channel::is_copied(const Flight& flight) {
  if (!flight.ticket || flight.ticket <= newest_done_) return true;
  auto done = receive_.unpacker->query(*flight.ticket);
  if (done.is_ok() && *done) newest_done_ = flight.ticket;
  return done;
}

void Channel::finish_oldest(ChunkState from, ChunkState to) {
  require(finished_count_ < finished_.size(), "one call of progress finishes at most what was in flight");
  Flight& flight = *fifo_.oldest(from);
  flight.trace.end();
  give_back(flight.share);
  held_bytes_ -= flight.work.chunk.bytes;
  finished_[finished_count_++] = {.transfer = flight.work.transfer, .bytes = flight.work.chunk.bytes};
  fifo_.advance(from, to);
}

// All others wait for the first in line, so a channel stays in line only as long as it keeps asking (see `progress`).
std::optional<ChunkBudget::Share> Channel::take_share(uint32_t bytes) {
  if (limits_.budget == nullptr) return ChunkBudget::Share{};
  const auto share = limits_.budget->take(asker_, bytes, now_);
  waits_for_share_ = !share;
  return share;
}

void Channel::give_back(ChunkBudget::Share share) {
  if (limits_.budget != nullptr) limits_.budget->give_back(share);
}

void Channel::leave_budget() {
  if (asker_.in_line) limits_.budget->leave(asker_);
}

void Channel::check_stall() {
  if (state_ != State::kOpen || !working() || now_ - last_advance_ < limits_.stall_limit) return;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - last_advance_).count();
  std::string what = concat("nothing advanced for ", ms, " ms");
  // Receives that wait in the plugin point to the other end: it has not sent another message of any tag.
  if (fifo_.held() > 0 && fifo_.state_of(fifo_.begin()) == ChunkState::kPosted && direction() == Direction::kRecv)
    what += concat("; the oldest of ", fifo_.held(), " receives waits for the next message", name_in_detail(Hint::kTagsIgnored));
  Status status(Code::kTimeout, concat(name_of(direction()), " transfer"), std::move(what));
  log(LogLevel::kError, status.to_string(), "; ", flight_record());
  fail(std::move(status));
}

void Channel::fail(Status reason) {
  require(!reason.is_ok(), "a channel fails for a reason");
  if (state_ != State::kOpen) return;
  state_ = State::kDraining;
  status_ = std::move(reason);
  leave_budget();
  drain_until_ = clock_.now() + limits_.drain_limit;
}

void Channel::give_up(const Status& answer) {
  log(LogLevel::kWarning, name_of(direction()), " channel gives up: ", answer.to_string());
  fail(answer);
}

void Channel::drain() {
  // Only chunks in the unpacker have to be waited for. Messages that have arrived but were not submitted concern the plugin
  // alone.
  bool busy = false;
  for (uint64_t number = fifo_.begin(); !busy && number != fifo_.end() && fifo_.state_of(number) == ChunkState::kUnpacking;
       ++number) {
    const auto copied = is_copied(fifo_.at(number));
    busy = copied.is_ok() && !*copied;  // after an error the unpacker is broken for good and copies nothing any more
  }
  if (busy && now_ < drain_until_) return;
  if (busy) {
    const Status late(Code::kTimeout, "drain", "unpack did not end within the drain limit");
    log(LogLevel::kError, late.to_string(), "; ", flight_record());
    abandoned_ = true;
  }
  // The first error has won already.
  if (fifo_.held() == 0) (void)comm_.deregister_all();
  if (comm_.abort().code() == Code::kTimeout) abandoned_ = true;
  for (uint64_t number = fifo_.begin(); number != fifo_.end(); ++number) {
    fifo_.at(number).trace.end();
    give_back(fifo_.at(number).share);
  }
  fifo_.fail_all();
  state_ = State::kClosed;
}

Status Channel::close() {
  if (state_ != State::kOpen) return status_;
  require(fifo_.held() == 0, "a channel is closed with nothing in flight");
  state_ = State::kClosed;
  return comm_.close();
}

std::string Channel::flight_record() const {
  if (closed()) return "closed";
  std::string text = concat("in flight: ", fifo_.held(), " ", name_of(direction()), " chunks",
                            refused_ || had_refused_ ? ", the plugin takes no more" : "",
                            asker_.in_line ? ", waits for its turn among the endpoint's connections" : "");
  for (uint64_t number = fifo_.begin(); number != fifo_.end(); ++number) {
    const Flight& flight = fifo_.at(number);
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - flight.posted_at).count();
    text += concat("\n  chunk ", flight.work.chunk.index, " of transfer ", static_cast<uint64_t>(flight.work.transfer), ": ",
                   name_of(fifo_.state_of(number)), ", ", flight.work.chunk.bytes, " bytes, ", age, " ms, tag ", flight.work.tag);
  }
  return text;
}

}  // namespace tcpx
