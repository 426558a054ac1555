#include "endpoint/data_receiver.h"

#include <numeric>
#include <utility>

#include "base/text.h"

namespace tcpx {
namespace {

Status given_up_by_receiver() {
  return Status(Code::kCancelled, "send", "the receiver has given its receive up");
}

Status given_up_by_sender() {
  return Status(Code::kCancelled, "receive", "the sender has given its send up");
}

}  // namespace

void DataReceiver::post(LocalOperation& local) {
  local.enter(Phase::kPosted);
  SendMatching::Met met = matching_.post(local.operation->sequence);
  if (met.cancelled) return book_.finish(local, given_up_by_sender());
  if (!met.arrival) return tell_posted(local);
  const std::vector<std::byte> data = std::move(met.arrival->data);
  match(local, std::move(*met.arrival), data);
}

// Tells the peer of a long receive, so that its send may begin without a Go. Not of ranges that would go one by one: these must first
// be compared with the sender's.
void DataReceiver::tell_posted(LocalOperation& local) {
  const Operation& operation = *local.operation;
  if (!link_.eager || operation.bytes <= link_.peer.inline_bytes) return;
  const Packing wanted = preferred_packing(operation.ranges, operation.bytes);
  if (wanted == Packing::kRanges) return;
  const auto prepared = link_.lanes.prepare_recv(operation.ranges, wanted);
  if (!prepared.is_ok()) return;  // its send will be refused with the same error
  local.packing = *prepared;
  local.begun = true;
  link_.stream->send(PostedFrame{.sequence = operation.sequence, .bytes = operation.bytes, .packing = local.packing});
}

Status DataReceiver::on(const SendFrame& frame) {
  if (frame.bytes == 0) return unexpected(frame, "a send of nothing that is not inline");
  if (frame.begun && !link_.eager) return unexpected(frame, kNotEager);
  TCPX_RETURN_IF_ERROR(link_.lanes.check(frame.offers, frame.bytes));
  const Charge charge = charge_of(frame);
  TCPX_RETURN_IF_ERROR(link_.count(frame.kType, frame.operation, charge));
  return take_in({.number = frame.operation,
                  .bytes = frame.bytes,
                  .packing = frame.packing,
                  .begun = frame.begun,
                  .lengths = frame.lengths.to_vector(),
                  .offers = {frame.offers.raw().begin(), frame.offers.raw().end()},
                  .data = {},
                  .notify = message_of(frame.notify, link_.id),
                  .charge = charge},
                 {}, frame.sequence);
}

Status DataReceiver::on(const SendDataFrame& frame) {
  const Charge charge = charge_of(frame);
  TCPX_RETURN_IF_ERROR(link_.count(frame.kType, frame.operation, charge));
  return take_in({.number = frame.operation,
                  .bytes = frame.data.size(),
                  .with_data = true,
                  .lengths = {},
                  .offers = {},
                  .data = {},
                  .notify = message_of(frame.notify, link_.id),
                  .charge = charge},
                 frame.data, frame.sequence);
}

// @param data of the frame: a short message usually goes straight from the stream's buffer into place
Status DataReceiver::take_in(Arrival arrival, std::span<const std::byte> data, uint64_t sequence) {
  const auto [with, receive] = matching_.meet(sequence);
  switch (with) {
    case SendMatching::Meets::kReceive:
      match(*book_.find(receive), std::move(arrival), data);
      break;
    case SendMatching::Meets::kNobody:
      if (arrival.begun) return unexpected(FrameType::kSend, arrival.number, "it has begun, and no receive was posted");
      arrival.data.assign(data.begin(), data.end());
      matching_.keep(sequence, std::move(arrival));
      break;
    case SendMatching::Meets::kGivenUpReceive:
      refuse_arrival(arrival, given_up_by_receiver());
      break;
    case SendMatching::Meets::kAnotherSend:
      return unexpected(arrival.with_data ? FrameType::kSendData : FrameType::kSend, arrival.number,
                        concat("send ", sequence, " has come before"));
  }
  return Status::ok();
}

void DataReceiver::match(LocalOperation& local, Arrival arrival, std::span<const std::byte> data) {
  if (arrival.begun) return take_begun(local, std::move(arrival));
  Operation& operation = *local.operation;
  if (arrival.bytes != operation.bytes) {
    Status mismatch(Code::kMismatch, "receive",
                    concat("the sender sends ", arrival.bytes, " bytes, ", operation.bytes, " were posted"));
    refuse_arrival(arrival, mismatch);
    return book_.finish(local, std::move(mismatch));
  }
  if (arrival.with_data) {
    keep_notify(local, std::move(arrival.notify), arrival.charge);
    ++link_.stats.inline_received;
    return take_data(local, data);
  }
  Packing packing = arrival.packing;
  if (packing == Packing::kRanges && lengths_of(operation.ranges) != arrival.lengths) packing = Packing::kPacked;
  GoFrame go{.operation = arrival.number};
  if (Status taken = link_.lanes.take(operation.ranges, arrival.offers, packing, go); !taken.is_ok()) {
    refuse_arrival(arrival, taken);
    return book_.finish(local, std::move(taken));
  }
  keep_notify(local, std::move(arrival.notify), arrival.charge);
  receive(local, arrival.offers, go);
}

// The send may already be done at the peer, so it cannot be refused. It only has to match what was posted.
void DataReceiver::take_begun(LocalOperation& local, Arrival arrival) {
  if (!local.begun || arrival.bytes != local.operation->bytes || arrival.packing != local.packing)
    return link_.break_with(unexpected(FrameType::kSend, arrival.number, "it has begun in another way than was posted"));
  keep_notify(local, std::move(arrival.notify), arrival.charge);
  start_moving(local, local.packing, [this](auto job) { link_.lanes.receive_begun(std::move(job)); });
}

void DataReceiver::give_up(const LocalOperation& local) {
  const uint64_t sequence = local.operation->sequence;
  if (local.begun) link_.stream->send(PostedFrame{.sequence = sequence, .bytes = 0});
  if (const auto arrival = matching_.give_up(sequence)) refuse_arrival(*arrival, given_up_by_receiver());
}

// A send with data is not answered: it was done at the peer when it left.
void DataReceiver::refuse_arrival(const Arrival& arrival, const Status& why) {
  if (arrival.begun) {
    link_.let_go_by(arrival.number, arrival.bytes, arrival.packing, {arrival.bytes}, arrival.charge);
  } else {
    link_.give_back(arrival.charge);
  }
  if (!arrival.with_data) link_.answer(arrival.number, why);
}

// A matched send goes on: its Go is already on the way to the sender, which waits for it. A send that was never offered leaves its
// place empty.
Status DataReceiver::on(const CancelFrame& frame) {
  if (frame.what == CancelFrame::What::kSend) {
    const auto charge = matching_.cancel_announced(frame.sequence, frame.operation);
    if (!charge.is_ok()) return unexpected(frame, charge.status().detail());
    if (*charge) link_.refuse(frame.operation, **charge, Status(Code::kCancelled, "send", "given up by the sender"));
    return Status::ok();
  }
  const auto receive = matching_.cancel_unannounced(frame.sequence);
  if (!receive.is_ok()) return unexpected(frame, receive.status().detail());
  if (*receive) book_.finish(*book_.find(**receive), given_up_by_sender());
  return Status::ok();
}

Status DataReceiver::on(const ReadDataFrame& frame) {
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr) {  // given up in the meantime
    forget_read(frame.operation);
    return Status::ok();
  }
  LocalOperation& local = *found;
  if (local.kind() != OperationKind::kRead || local.phase() != Phase::kOffered) return unexpected(frame, "not asked for");
  if (local.operation->bytes != frame.data.size()) return unexpected(frame, "another number of bytes than asked for");
  ++link_.stats.inline_received;
  take_data(local, frame.data);
  return Status::ok();
}

Status DataReceiver::on(const ReadyFrame& frame) {
  if (frame.begun) return take_begun(frame);
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr) {
    forget_read(frame.operation);
    link_.stream->send(CancelFrame{.operation = frame.operation});  // given up in the meantime
    return Status::ok();
  }
  LocalOperation& local = *found;
  const Operation& operation = *local.operation;
  if (operation.kind != OperationKind::kRead || local.phase() != Phase::kOffered || operation.bytes == 0)
    return unexpected(frame, "not asked for");
  TCPX_RETURN_IF_ERROR(link_.lanes.check(frame.offers, operation.bytes));
  const bool must_pack = frame.packing == Packing::kPacked;
  GoFrame go{.operation = frame.operation, .of_read = true};
  Status taken = link_.lanes.take(operation.ranges, frame.offers,
                                  must_pack ? Packing::kPacked : preferred_packing(operation.ranges, operation.bytes), go);
  if (!taken.is_ok()) {
    link_.stream->send(CancelFrame{.operation = frame.operation});
    book_.finish(local, std::move(taken));
    return Status::ok();
  }
  receive(local, frame.offers, go);
  return Status::ok();
}

void DataReceiver::give_up_read(const LocalOperation& local) {
  if (!link_.eager) return;
  given_up_reads_.emplace(local.number(), GivenUpRead{lengths_of(local.operation->ranges), local.charge.bytes});
  given_up_cost_ += local.charge.bytes;
  // The peer gives a read's credit about when it answers, so more unanswered reads than the window holds cannot be.
  if (given_up_cost_ > 2 * bytes_of(Window::kRestOffers))
    link_.break_with(unexpected(FrameType::kCredit, local.number(), "credit for reads that are not answered"));
}

void DataReceiver::forget_read(uint64_t number) {
  const auto found = given_up_reads_.find(number);
  if (found == given_up_reads_.end()) return;
  given_up_cost_ -= found->second.cost;
  given_up_reads_.erase(found);
}

Status DataReceiver::take_begun(const ReadyFrame& frame) {
  if (!link_.eager) return unexpected(frame, kNotEager);
  if (const auto given_up = given_up_reads_.find(frame.operation); given_up != given_up_reads_.end()) {
    const std::vector<uint64_t> lengths = std::move(given_up->second.lengths);
    forget_read(frame.operation);
    if (lengths.empty() || (frame.packing == Packing::kWhole && lengths.size() > 1)) return unexpected(frame, kNoWholeVector);
    link_.let_go_by(frame.operation, std::accumulate(lengths.begin(), lengths.end(), uint64_t{0}), frame.packing, lengths, {});
    return Status::ok();
  }
  LocalOperation* const found = book_.find(frame.operation);
  if (found == nullptr || found->kind() != OperationKind::kRead || found->phase() != Phase::kOffered ||
      found->operation->bytes == 0)
    return unexpected(frame, "not asked for");
  LocalOperation& local = *found;
  if (frame.packing != local.packing && frame.packing != Packing::kPacked)
    return unexpected(frame, "packed otherwise than was asked for");
  const auto& ranges = local.operation->ranges;
  const auto prepared = link_.lanes.prepare_recv(ranges, frame.packing);
  if (!prepared.is_ok() || *prepared != frame.packing) {
    link_.let_go_by(frame.operation, local.operation->bytes, frame.packing, lengths_of(ranges), {});
    book_.finish(local,
                 prepared.is_ok() ? Status(Code::kExhausted, "read", "its memory cannot be registered") : prepared.status());
    return Status::ok();
  }
  start_moving(local, frame.packing, [this](auto job) { link_.lanes.receive_begun(std::move(job)); });
  return Status::ok();
}

void DataReceiver::receive(LocalOperation& local, const WireOffers& offers, const GoFrame& go) {
  start_moving(local, go.packing, [&](auto job) { link_.lanes.receive(std::move(job), offers, go); });
}

void DataReceiver::take_data(LocalOperation& local, std::span<const std::byte> data) {
  const Operation& operation = *local.operation;
  if (data.empty() || !is_on_gpu(operation.ranges)) {
    Status written = scatter(operation.ranges, data);
    if (written.is_ok()) deliver_notify(local);
    return book_.finish(local, std::move(written));
  }
  copies_.push_write(local.number(), operation.ranges, data);
  local.enter(Phase::kWriteIn);
  link_.break_with(copies_.start());
}

// Keeps the notification, and its send's part of the window with it. Without a notification that part goes back at once.
void DataReceiver::keep_notify(LocalOperation& local, std::unique_ptr<NotifyMsg> notify, const Charge& charge) {
  local.notify = std::move(notify);
  if (local.notify == nullptr) return link_.give_back(charge);
  local.held = charge;
}

// A read's notification goes to the peer, whose memory was read; a send's notification is delivered here.
void DataReceiver::deliver_notify(LocalOperation& local) {
  Operation& operation = *local.operation;
  if (operation.kind == OperationKind::kRead) {
    if (operation.notify == nullptr || !operation.is_last_round()) return;
    link_.notify_waits.push_back(
        std::make_unique<Notification>(link_.id, operation.link, std::move(*operation.notify), link_.face));
    return;
  }
  link_.deliver({.notify = std::move(local.notify), .charge = std::exchange(local.held, {}), .answers = {}});
}

bool DataReceiver::progress() {
  const auto end = [this](Status copied) {
    LocalOperation& local = *book_.find(copies_.front());
    if (copied.is_ok() && local.ending.is_ok()) deliver_notify(local);
    book_.finish(local, std::move(copied));
  };
  const auto drop = [this] { book_.finish(*book_.find(copies_.front()), link_.status); };
  const bool advanced = copies_.end_those_done(link_.has_failed(), end, drop);
  link_.break_with(copies_.start());
  return advanced;
}

}  // namespace tcpx
