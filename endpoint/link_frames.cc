// The part of a Link that knows what the peer says. Nothing of it is believed: numbers are looked up, sizes compared, ranges
// checked against what was advertised; what no peer of ours says ends the link.
#include <utility>

#include "base/text.h"
#include "endpoint/link.h"
#include "endpoint/link_rules.h"

namespace tcpx {
namespace {

Status unexpected(const ControlHeader& header, std::string_view why) {
  return Status(Code::kProtocol, concat("read \"", name_of(static_cast<ControlType>(header.type)), '"'),
                concat("operation ", header.operation, ": ", why));
}

std::unique_ptr<NotifyMsg> notify_of(const OperationPayload& payload, ConnId conn) {
  if (!payload.has_notify) return nullptr;
  return std::make_unique<NotifyMsg>(NotifyMsg{payload.notify_name, payload.notify_text, conn});
}

// What the sender of a frame took of its window for it.
Charge charge_of(const OperationPayload& payload, Window window, uint64_t data_bytes) {
  return {window, window_cost(window, data_bytes, payload.lengths.size(), payload.ranges.size(),
                              payload.notify_name.size() + payload.notify_text.size())};
}

}  // namespace

Status Link::on_frame(const ControlHeader& header, std::span<const std::byte> payload) {
  switch (static_cast<ControlType>(header.type)) {
    case ControlType::kSend:
    case ControlType::kSendData:
      return on_send(header, payload);
    case ControlType::kWrite:
    case ControlType::kWriteData:
      return on_write(header, payload);
    case ControlType::kRead:
      return on_read(header, payload);
    case ControlType::kReadData:
      return on_read_data(header, payload);
    case ControlType::kReady:
      return on_ready(header);
    case ControlType::kGo:
      return on_go(header);
    case ControlType::kDone:
      return on_done(header, payload);
    case ControlType::kCancel:
      return on_cancel(header);
    case ControlType::kCredit:
      return on_credit(header);
    case ControlType::kNotify:
      return on_notify(header, payload);
    case ControlType::kBye:
      peer_closing_ = true;
      if (state_ == State::kOpen) close_until_ = now_ + kFarewell;
      return Status::ok();
    case ControlType::kPeer:
      break;
  }
  return unexpected(header, "not for a link");
}

Status Link::on_send(const ControlHeader& header, std::span<const std::byte> payload) {
  TCPX_RETURN_IF_ERROR(decode_operation_payload(header, payload, decoded_));
  const uint64_t sequence = header.value;
  const bool with_data = header.type == static_cast<uint8_t>(ControlType::kSendData);
  if (!with_data && header.bytes == 0) return unexpected(header, "a send of nothing that is not inline");
  const Charge charge = charge_of(decoded_, with_data ? Window::kSends : Window::kSendOffers, with_data ? header.bytes : 0);
  TCPX_RETURN_IF_ERROR(count(header, charge));
  if (arrivals_.contains(sequence) || cancelled_.contains(sequence))
    return unexpected(header, concat("send ", sequence, " has come before"));
  Arrival arrival{.number = header.operation,
                  .bytes = header.bytes,
                  .packing = static_cast<Packing>(header.packing),
                  .with_data = with_data,
                  .lengths = decoded_.lengths,
                  .notify = notify_of(decoded_, id_),
                  .charge = charge};
  if (given_up_.erase(sequence)) {
    refuse_arrival(arrival, given_up_by_receiver());
    return Status::ok();
  }
  const auto posted = receives_.find(sequence);
  Local* const local = posted != receives_.end() ? &local_.find(posted->second)->second : nullptr;
  if (local != nullptr && local->phase == Phase::kPosted && arrival.with_data && arrival.bytes == local->operation->bytes) {
    // The common short message: straight from the stream's buffer.
    receives_.erase(posted);
    keep_notify(*local, std::move(arrival.notify), charge);
    ++stats_.inline_received;
    take_data(*local, decoded_.data);
    return Status::ok();
  }
  arrival.data.assign(decoded_.data.begin(), decoded_.data.end());
  if (local != nullptr && local->phase == Phase::kPosted) {
    match(*local, std::move(arrival));
  } else {
    arrivals_.emplace(sequence, std::move(arrival));
  }
  return Status::ok();
}

Status Link::look_up(const OperationPayload& payload, std::vector<HeldRange>& ranges) {
  for (const WireRange& range : payload.ranges) {
    auto granted = shared_.memory.look_up(id_, range.slot, range.offset, range.bytes);
    if (!granted.is_ok()) return granted.status();
    if (range.bytes == 0) continue;
    if (!ranges.empty() && granted->use.region().type != ranges.front().use.region().type)
      return Status(Code::kInvalidArgument, "look up remote ranges", "host and GPU memory in one transfer");
    ranges.push_back({std::move(granted->use), granted->data, granted->bytes});
  }
  return Status::ok();
}

Status Link::on_write(const ControlHeader& header, std::span<const std::byte> payload) {
  TCPX_RETURN_IF_ERROR(decode_operation_payload(header, payload, decoded_));
  const bool with_data = header.type == static_cast<uint8_t>(ControlType::kWriteData);
  const Charge charge = charge_of(decoded_, with_data ? Window::kRest : Window::kRestOffers, with_data ? header.bytes : 0);
  TCPX_RETURN_IF_ERROR(count(header, charge));
  std::vector<HeldRange> ranges;
  if (Status refused = look_up(decoded_, ranges); !refused.is_ok()) {
    give_back(charge);
    answer(header.operation, refused);
    return Status::ok();
  }
  if (!with_data) {
    if (ranges.empty()) return unexpected(header, "a write of nothing that is not inline");
    auto packing = static_cast<Packing>(header.packing);
    if (packing == Packing::kWhole && ranges.size() > 1) packing = Packing::kPacked;
    const auto prepared = recv_lane_.prepare(ranges, packing);
    if (!prepared.is_ok()) {
      give_back(charge);
      answer(header.operation, prepared.status());
      return Status::ok();
    }
    auto job = std::make_unique<Job>();
    job->number = header.operation;
    job->held = std::move(ranges);
    job->bytes = header.bytes;
    job->packing = *prepared;
    job->notify = notify_of(decoded_, id_);
    job->charge = charge;
    recv_lane_.push(std::move(job));
    say_go(header.operation, false, *prepared);
    return Status::ok();
  }
  ++stats_.inline_received;
  if (!on_gpu(ranges)) {
    scatter(ranges, decoded_.data);
    deliver(notify_of(decoded_, id_), header.operation, true, charge);
    return Status::ok();
  }
  RemoteCopy copy{.kind = RemoteCopy::Kind::kWrite, .number = header.operation, .ranges = std::move(ranges)};
  copy.data.assign(decoded_.data.begin(), decoded_.data.end());
  copy.charge = charge;
  copy.notify = notify_of(decoded_, id_);
  queue(std::move(copy));
  return Status::ok();
}

Status Link::on_read(const ControlHeader& header, std::span<const std::byte> payload) {
  TCPX_RETURN_IF_ERROR(decode_operation_payload(header, payload, decoded_));
  const bool is_short = header.bytes <= shared_.inline_bytes;
  const Charge charge = charge_of(decoded_, Window::kRestOffers, is_short ? header.bytes : 0);
  TCPX_RETURN_IF_ERROR(count(header, charge));
  if (serving_.contains(header.operation)) return unexpected(header, "asked for before");
  std::vector<HeldRange> ranges;
  if (Status refused = look_up(decoded_, ranges); !refused.is_ok()) {
    give_back(charge);
    answer(header.operation, refused);
    return Status::ok();
  }
  if (!is_short) {
    const auto prepared = send_lane_.prepare(ranges, preferred_packing(ranges, header.bytes));
    if (!prepared.is_ok()) {
      give_back(charge);
      answer(header.operation, prepared.status());
      return Status::ok();
    }
    auto job = std::make_unique<Job>();
    job->number = header.operation;
    job->held = std::move(ranges);
    job->bytes = header.bytes;
    job->charge = charge;
    serving_.emplace(header.operation, std::move(job));
    stream_->send(make_header(ControlType::kReady, header.operation, 0, 0, *prepared));
    return Status::ok();
  }
  if (!on_gpu(ranges)) {
    gather(ranges);
    send_read_data(header.operation, scratch_);
    give_back(charge);
    return Status::ok();
  }
  RemoteCopy copy{.kind = RemoteCopy::Kind::kRead, .number = header.operation, .ranges = std::move(ranges)};
  copy.charge = charge;
  queue(std::move(copy));
  return Status::ok();
}

void Link::send_read_data(uint64_t number, std::span<const std::byte> data) {
  stream_->send(make_header(ControlType::kReadData, number, 0, data.size()), data);
  ++stats_.inline_sent;
}

void Link::queue(RemoteCopy copy) {
  const bool others_wait = !remote_copies_.empty() && !remote_copies_.back().started;
  remote_copies_.push_back(std::move(copy));
  if (!others_wait) (void)begin(remote_copies_.back());
}

// @return false: no slot yet, or it has failed, and the link with it
bool Link::begin(RemoteCopy& copy) {
  const bool writes = copy.kind == RemoteCopy::Kind::kWrite;
  auto started = writes ? shared_.copies.write(copy.ranges, copy.data) : shared_.copies.read(copy.ranges);
  if (started.is_ok()) {
    copy.copy = *started;
    copy.started = true;
  } else if (started.status().code() != Code::kExhausted) {
    fail(started.status());
  }
  return copy.started;
}

// @return true when it has ended
bool Link::step(RemoteCopy& copy) {
  if (!copy.started && state_ >= State::kFailed) return true;
  if (!copy.started && !begin(copy)) return false;
  const auto done = shared_.copies.is_done(copy.copy);
  if (done.is_ok() && !*done) return false;
  if (!done.is_ok()) {
    fail(done.status());
  } else if (copy.kind == RemoteCopy::Kind::kRead) {
    if (state_ <= State::kClosing) send_read_data(copy.number, shared_.copies.bytes_of(copy.copy));
    give_back(copy.charge);
  } else {
    deliver(std::move(copy.notify), copy.number, true, copy.charge);
  }
  shared_.copies.release(copy.copy);
  return true;
}

Status Link::on_read_data(const ControlHeader& header, std::span<const std::byte> payload) {
  TCPX_RETURN_IF_ERROR(decode_operation_payload(header, payload, decoded_));
  const auto found = local_.find(header.operation);
  if (found == local_.end()) return Status::ok();  // given up in the meantime
  Local& local = found->second;
  if (local.operation->kind != OperationKind::kRead || local.phase != Phase::kOffered) return unexpected(header, "not asked for");
  if (local.operation->bytes != header.bytes) return unexpected(header, "another number of bytes than asked for");
  ++stats_.inline_received;
  take_data(local, decoded_.data);
  return Status::ok();
}

Status Link::on_ready(const ControlHeader& header) {
  const auto found = local_.find(header.operation);
  if (found == local_.end()) {
    stream_->send(make_header(ControlType::kCancel, header.operation));  // given up in the meantime
    return Status::ok();
  }
  Local& local = found->second;
  const Operation& operation = *local.operation;
  if (operation.kind != OperationKind::kRead || local.phase != Phase::kOffered || operation.bytes == 0)
    return unexpected(header, "not asked for");
  const bool must_pack = header.packing == static_cast<uint8_t>(Packing::kPacked);
  const auto prepared =
      recv_lane_.prepare(operation.ranges, must_pack ? Packing::kPacked : preferred_packing(operation.ranges, operation.bytes));
  if (!prepared.is_ok()) {
    stream_->send(make_header(ControlType::kCancel, header.operation));
    finish(local, prepared.status());
    return Status::ok();
  }
  push_receive(local, header.operation, true, *prepared);
  return Status::ok();
}

Status Link::on_go(const ControlHeader& header) {
  const auto packing = static_cast<Packing>(header.packing);
  // Ranges of nothing are no ranges here, so both ends count the same.
  const bool is_whole = packing == Packing::kWhole;
  constexpr std::string_view kNoWhole = "a vector cannot travel as a whole";
  std::unique_ptr<Job> job;
  if (header.value == 1) {  // of the peer's read
    const auto found = serving_.find(header.operation);
    if (found == serving_.end()) return unexpected(header, "no such read");
    if (is_whole && found->second->held.size() != 1) return unexpected(header, kNoWhole);
    job = std::move(found->second);
    serving_.erase(found);
  } else {
    const auto found = local_.find(header.operation);
    if (found == local_.end()) return unexpected(header, "no such operation");
    Local& local = found->second;
    const OperationKind kind = local.operation->kind;
    if (local.phase != Phase::kOffered || (kind != OperationKind::kSend && kind != OperationKind::kWrite))
      return unexpected(header, "it was not offered");
    if (is_whole && local.operation->ranges.size() != 1) return unexpected(header, kNoWhole);
    job = std::make_unique<Job>();
    job->operation = local.operation;
    job->number = header.operation;
    job->bytes = local.operation->bytes;
  }
  job->packing = packing;
  const bool mine = job->operation != nullptr;
  send_lane_.push(std::move(job));
  if (mine) local_.find(header.operation)->second.phase = Phase::kMoving;  // from here on only the lane ends it
  return Status::ok();
}

Status Link::on_done(const ControlHeader& header, std::span<const std::byte> payload) {
  const Status status = decode_status(header.value, payload);
  const auto found = local_.find(header.operation);
  if (found == local_.end()) return Status::ok();  // given up in the meantime
  Local& local = found->second;
  if (local.phase == Phase::kMoving && local.operation->kind == OperationKind::kWrite) {
    local.answered = true;
    local.answer = status;
    return Status::ok();
  }
  const bool refused = local.phase == Phase::kOffered && !status.is_ok();
  if (local.phase != Phase::kAnswer && !refused) return unexpected(header, "it is not waiting for an answer");
  finish(local, status);
  return Status::ok();
}

// Of a read that waits for its "go", or of a send. A send that has been matched goes on: "go" is on its way to the sender, which
// waits for that. One that was never offered leaves its place empty.
Status Link::on_cancel(const ControlHeader& header) {
  if (const auto served = serving_.find(header.operation); served != serving_.end()) {
    give_back(served->second->charge);
    serving_.erase(served);
    return Status::ok();
  }
  const uint64_t sequence = header.value;
  const auto arrived = arrivals_.find(sequence);
  if (header.bytes != 0) {
    if (arrived == arrivals_.end()) return Status::ok();
    if (arrived->second.number != header.operation || arrived->second.with_data) return unexpected(header, "no such send");
    give_back(take_arrival(arrived).charge);
    cancelled_.insert(sequence);
    answer(header.operation, Status(Code::kCancelled, "send", "given up by the sender"));
    return Status::ok();
  }
  if (arrived != arrivals_.end() || cancelled_.contains(sequence)) return unexpected(header, "the send has come before");
  if (given_up_.erase(sequence)) return Status::ok();
  const auto posted = receives_.find(sequence);
  if (posted == receives_.end()) {
    if (cancelled_.intervals() >= kMaxGivenUpSends) return unexpected(header, "too many sends are given up here and there");
    cancelled_.insert(sequence);
    return Status::ok();
  }
  Local& local = local_.find(posted->second)->second;
  receives_.erase(posted);
  finish(local, Status(Code::kCancelled, "receive", "the sender has given its send up"));
  return Status::ok();
}

Status Link::on_credit(const ControlHeader& header) {
  if (header.operation >= kWindows ||
      header.bytes > bytes_of(static_cast<Window>(header.operation)) - window_left_[header.operation])
    return unexpected(header, concat("credit of ", header.bytes, " bytes that are not owed"));
  window_left_[header.operation] += header.bytes;
  return Status::ok();
}

Status Link::on_notify(const ControlHeader& header, std::span<const std::byte> payload) {
  auto message = std::make_unique<NotifyMsg>();
  TCPX_RETURN_IF_ERROR(decode_notify(payload, message->name, message->msg));
  message->conn = id_;
  const Charge charge{Window::kRest, window_cost(message->name.size() + message->msg.size())};
  TCPX_RETURN_IF_ERROR(count(header, charge));
  deliver(std::move(message), 0, false, charge);
  return Status::ok();
}

void Link::answer(uint64_t number, const Status& status) {
  if (state_ > State::kClosing) return;
  const auto header = make_header(ControlType::kDone, number, static_cast<uint64_t>(status.code()));
  if (status.is_ok()) return stream_->send(header);
  stream_->send(header, encode_status(status));
}

// What is held here for the peer is memory that only the window bounds.
Status Link::count(const ControlHeader& header, const Charge& charge) {
  uint64_t& taken = taken_[static_cast<size_t>(charge.window)];
  if (charge.bytes > bytes_of(charge.window) - taken) return unexpected(header, "more than the window lets through");
  taken += charge.bytes;
  return Status::ok();
}

// In few frames: a quarter of the window is told at once.
void Link::give_back(const Charge& charge) {
  const auto index = static_cast<size_t>(charge.window);
  owed_[index] += charge.bytes;
  if (owed_[index] < bytes_of(charge.window) / 4 || state_ > State::kClosing) return;
  taken_[index] -= owed_[index];
  stream_->send(make_header(ControlType::kCredit, index, 0, std::exchange(owed_[index], 0)));
}

// A notification, and with it what it holds back: the answer to a write, the room of an inline message.
void Link::deliver(std::unique_ptr<NotifyMsg> message, uint64_t number, bool answers, const Charge& charge) {
  if (message != nullptr && (!held_.empty() || !shared_.inbox.push(*message))) {
    held_.push_back({std::move(message), number, answers, charge});
    return;
  }
  give_back(charge);
  if (answers) answer(number, Status::ok());
}

bool Link::deliver_held() {
  bool advanced = false;
  while (!held_.empty() && shared_.inbox.push(*held_.front().message)) {
    HeldNotify held = std::move(held_.front());
    held_.pop_front();
    advanced = true;
    deliver(nullptr, held.number, held.answers, held.charge);
  }
  return advanced;
}

}  // namespace tcpx
