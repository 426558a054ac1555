#include "measure/ends/plugin_lanes.h"

#include "base/text.h"
#include "net/plugin_status.h"
#include "net/received_message.h"

namespace tcpx {
namespace {

constexpr int kTag = 0;

}  // namespace

Status answer_of(const abi::NetTable_v7& table, const char* operation, int result) {
  return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(table.name, operation, result);
}

void SendLane::start(const MessagePlan& plan, CommMemory memory, uint64_t first) {
  plan_ = plan;
  memory_ = memory;
  begin_ = done_ = posted_ = end_ = first * plan.requests_per_message();
}

Result<bool> SendLane::progress() {
  bool advanced = false;
  for (; posted_ < end_ && posted_ - done_ < kQueueDepth; ++posted_) {
    const MessagePlan::Part part = plan_.part(posted_);
    void* request = nullptr;
    TCPX_RETURN_IF_ERROR(answer_of(
        table_, "isend",
        table_.isend(comm_, memory_.data + part.send_off, static_cast<int>(part.bytes), kTag, memory_.mhandle, &request)));
    if (request == nullptr) break;  // not now
    requests_[posted_ % kQueueDepth] = request;
    advanced = true;
  }
  for (; done_ < posted_; ++done_) {
    int done = 0;
    TCPX_RETURN_IF_ERROR(answer_of(table_, "test", table_.test(requests_[done_ % kQueueDepth], &done, nullptr)));
    if (done == 0) break;
    advanced = true;
  }
  return advanced;
}

void ReceiveLane::start(const MessagePlan& plan, CommMemory memory, uint64_t first, uint64_t count) {
  plan_ = plan;
  memory_ = memory;
  begin_ = consumed_ = submitted_ = arrived_ = posted_ = first * plan.requests_per_message();
  end_ = begin_ + count * plan.requests_per_message();
}

Result<bool> ReceiveLane::post() {
  bool advanced = false;
  for (; posted_ < end_ && posted_ - consumed_ < kQueueDepth; ++posted_) {
    const MessagePlan::Part part = plan_.part(posted_);
    void* data = memory_.data + part.receive_off;
    int size = static_cast<int>(part.bytes);
    int tag = kTag;
    void* mhandle = memory_.mhandle;
    void* request = nullptr;
    TCPX_RETURN_IF_ERROR(answer_of(table_, "irecv", table_.irecv(comm_, 1, &data, &size, &tag, &mhandle, &request)));
    if (request == nullptr) break;  // not now
    flight(posted_) = {.request = request, .ticket = std::nullopt};
    advanced = true;
  }
  return advanced;
}

Result<bool> ReceiveLane::progress() {
  bool advanced = false;
  // Results of a test are read before the next post, because the plugin answers only until then.
  for (Result<bool> (ReceiveLane::*step)() :
       {&ReceiveLane::test, &ReceiveLane::submit, &ReceiveLane::consume, &ReceiveLane::post}) {
    TCPX_ASSIGN_OR_RETURN(const bool stepped, (this->*step)());
    advanced |= stepped;
  }
  return advanced;
}

Result<bool> ReceiveLane::test() {
  bool advanced = false;
  for (; arrived_ < posted_; ++arrived_) {
    int done = 0, bytes = -1;
    TCPX_RETURN_IF_ERROR(answer_of(table_, "test", table_.test(flight(arrived_).request, &done, &bytes)));
    if (done == 0) break;
    TCPX_RETURN_IF_ERROR(take(flight(arrived_), bytes));
    advanced = true;
  }
  return advanced;
}

// Adds what has to be copied for a finished request to the batch.
Status ReceiveLane::take(const Flight& flight, int reported_bytes) {
  const MessagePlan::Part part = plan_.part(arrived_);
  ReceivedMessage message{.bytes = static_cast<uint64_t>(reported_bytes), .in_place = true};
  if (unpack_.needed) {
    TCPX_ASSIGN_OR_RETURN(const ReceivedMessage received, read_received_message(flight.request));
    message = received;
  }
  if (message.bytes != part.bytes) {
    return Status(Code::kMismatch, "receive", concat(message.bytes, " bytes came, ", part.bytes, " were sent"));
  }
  if (message.in_place) return Status::ok();
  if (unpack_.unpacker == nullptr) return Status(Code::kProtocol, "receive", "host memory was not received in place");
  TCPX_RETURN_IF_ERROR(batch_[batch_blocks_].build({message.fragments, message.fragment_count}, message.bytes,
                                                   {.pool = unpack_.pool.base,
                                                    .pool_bytes = unpack_.pool.bytes,
                                                    .destination = memory_.data + part.receive_off,
                                                    .destination_bytes = part.bytes}));
  ++batch_blocks_;
  return Status::ok();
}

Result<bool> ReceiveLane::submit() {
  if (submitted_ == arrived_) return false;
  std::optional<UnpackTicket> ticket;
  if (batch_blocks_ > 0) {
    const Result<UnpackTicket> submitted = unpack_.unpacker->submit(std::span(batch_).first(batch_blocks_));
    // A full unpacker is asked again, with what will have arrived by then.
    if (!submitted.is_ok() && submitted.status().code() == Code::kExhausted) return false;
    if (!submitted.is_ok()) return submitted.status();
    ticket = *submitted;
    batch_blocks_ = 0;
  }
  for (; submitted_ < arrived_; ++submitted_) flight(submitted_).ticket = ticket;
  return true;
}

Result<bool> ReceiveLane::consume() {
  bool advanced = false;
  for (; consumed_ < submitted_; ++consumed_) {
    const Flight& oldest = flight(consumed_);
    if (oldest.ticket && !(newest_done_ && *oldest.ticket <= *newest_done_)) {
      TCPX_ASSIGN_OR_RETURN(const bool done, unpack_.unpacker->query(*oldest.ticket));
      if (!done) break;
      newest_done_ = oldest.ticket;
    }
    if (table_.irecv_consumed != nullptr) {
      TCPX_RETURN_IF_ERROR(answer_of(table_, "irecvConsumed", table_.irecv_consumed(comm_, 1, oldest.request)));
    }
    advanced = true;
  }
  return advanced;
}

}  // namespace tcpx
