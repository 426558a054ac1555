// The part of a Link that knows what the peer says. Nothing of it is believed: numbers are looked up, sizes compared, ranges
// checked against what was advertised; what no peer of ours says ends the link.
#include <utility>

#include "base/text.h"
#include "endpoint/link.h"
#include "endpoint/link_rules.h"

namespace tcpx {
namespace {

Status unexpected(ControlType type, uint64_t operation, std::string_view why) {
  return Status(Code::kProtocol, concat("read \"", name_of(type), '"'), concat("operation ", operation, ": ", why));
}
template <class Frame>
Status unexpected(const Frame& frame, std::string_view why) {
  return unexpected(frame.kType, frame.operation, why);
}

std::unique_ptr<NotifyMsg> message_of(const std::optional<NotifyText>& notify, ConnId conn) {
  if (!notify) return nullptr;
  return std::make_unique<NotifyMsg>(NotifyMsg{std::string(notify->name), std::string(notify->text), conn});
}

size_t bytes_of(const std::optional<NotifyText>& notify) {
  return notify ? notify->name.size() + notify->text.size() : 0;
}

}  // namespace

template <class Frame>
Status Link::on(const ControlHeader& header, std::span<const std::byte> payload) {
  Frame frame;
  TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
  return handle(frame);
}

Status Link::on_frame(const ControlHeader& header, std::span<const std::byte> payload) {
  switch (static_cast<ControlType>(header.type)) {
    case ControlType::kSend:
      return on<SendFrame>(header, payload);
    case ControlType::kSendData:
      return on<SendDataFrame>(header, payload);
    case ControlType::kWrite:
      return on<WriteFrame>(header, payload);
    case ControlType::kWriteData:
      return on<WriteDataFrame>(header, payload);
    case ControlType::kRead:
      return on<ReadFrame>(header, payload);
    case ControlType::kReadData:
      return on<ReadDataFrame>(header, payload);
    case ControlType::kReady:
      return on<ReadyFrame>(header, payload);
    case ControlType::kGo:
      return on<GoFrame>(header, payload);
    case ControlType::kDone:
      return on<DoneFrame>(header, payload);
    case ControlType::kCancel:
      return on<CancelFrame>(header, payload);
    case ControlType::kCredit:
      return on<CreditFrame>(header, payload);
    case ControlType::kNotify:
      return on<NotifyFrame>(header, payload);
    case ControlType::kBye:
      return on<ByeFrame>(header, payload);
    case ControlType::kPeer:
      break;
  }
  return unexpected(static_cast<ControlType>(header.type), header.operation, "not for a link");
}

Status Link::handle(const ByeFrame& /*frame*/) {
  peer_closing_ = true;
  if (state_ == State::kOpen) close_until_ = now_ + kFarewell;
  return Status::ok();
}

Status Link::handle(const SendFrame& frame) {
  if (frame.bytes == 0) return unexpected(frame, "a send of nothing that is not inline");
  const Charge charge{Window::kSendOffers, window_cost(Window::kSendOffers, 0, frame.lengths.size(), 0, bytes_of(frame.notify))};
  TCPX_RETURN_IF_ERROR(count(frame.kType, frame.operation, charge));
  Arrival arrival{.number = frame.operation,
                  .bytes = frame.bytes,
                  .packing = frame.packing,
                  .with_data = false,
                  .lengths = frame.lengths.to_vector(),
                  .notify = message_of(frame.notify, id_),
                  .charge = charge};
  return begin_send(std::move(arrival), {}, frame.sequence);
}

Status Link::handle(const SendDataFrame& frame) {
  const Charge charge{Window::kSends, window_cost(Window::kSends, frame.data.size(), 0, 0, bytes_of(frame.notify))};
  TCPX_RETURN_IF_ERROR(count(frame.kType, frame.operation, charge));
  Arrival arrival{.number = frame.operation,
                  .bytes = frame.data.size(),
                  .with_data = true,
                  .notify = message_of(frame.notify, id_),
                  .charge = charge};
  return begin_send(std::move(arrival), frame.data, frame.sequence);
}

// @param data of the frame, not yet the arrival's
Status Link::begin_send(Arrival arrival, std::span<const std::byte> data, uint64_t sequence) {
  if (arrivals_.contains(sequence) || cancelled_.contains(sequence))
    return unexpected(arrival.with_data ? ControlType::kSendData : ControlType::kSend, arrival.number,
                      concat("send ", sequence, " has come before"));
  if (given_up_.erase(sequence)) {
    refuse_arrival(arrival, given_up_by_receiver());
    return Status::ok();
  }
  const auto posted = receives_.find(sequence);
  Local* const local = posted != receives_.end() ? &local_.find(posted->second)->second : nullptr;
  if (local != nullptr && local->phase == Phase::kPosted && arrival.with_data && arrival.bytes == local->operation->bytes) {
    // The common short message: straight from the stream's buffer.
    receives_.erase(posted);
    keep_notify(*local, std::move(arrival.notify), arrival.charge);
    ++stats_.inline_received;
    take_data(*local, data);
    return Status::ok();
  }
  arrival.data.assign(data.begin(), data.end());
  if (local != nullptr && local->phase == Phase::kPosted) {
    match(*local, std::move(arrival));
  } else {
    arrivals_.emplace(sequence, std::move(arrival));
  }
  return Status::ok();
}

Status Link::look_up(const WireArray<WireRange>& wanted, std::vector<HeldRange>& ranges) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const WireRange range = wanted[i];
    auto granted = shared_.memory.look_up(id_, range.slot, range.offset, range.bytes);
    if (!granted.is_ok()) return granted.status();
    if (range.bytes == 0) continue;
    if (!ranges.empty() && granted->use.region().type != ranges.front().use.region().type)
      return Status(Code::kInvalidArgument, "look up remote ranges", "host and GPU memory in one transfer");
    ranges.push_back({std::move(granted->use), granted->data, granted->bytes});
  }
  return Status::ok();
}

Status Link::handle(const WriteFrame& frame) {
  const Charge charge{Window::kRestOffers, window_cost(Window::kRestOffers, 0, 0, frame.ranges.size(), bytes_of(frame.notify))};
  TCPX_RETURN_IF_ERROR(count(frame.kType, frame.operation, charge));
  const auto refuse = [&](const Status& why) {
    give_back(charge);
    answer(frame.operation, why);
    return Status::ok();
  };
  std::vector<HeldRange> ranges;
  if (Status refused = look_up(frame.ranges, ranges); !refused.is_ok()) return refuse(refused);
  if (ranges.empty()) return unexpected(frame, "a write of nothing that is not inline");
  auto packing = frame.packing;
  if (packing == Packing::kWhole && ranges.size() > 1) packing = Packing::kPacked;
  const auto prepared = recv_lane_.prepare(ranges, packing);
  if (!prepared.is_ok()) return refuse(prepared.status());
  auto job = std::make_unique<Job>();
  job->number = frame.operation;
  job->held = std::move(ranges);
  job->bytes = frame.bytes;
  job->packing = *prepared;
  job->notify = message_of(frame.notify, id_);
  job->charge = charge;
  recv_lane_.push(std::move(job));
  say_go(frame.operation, false, *prepared);
  return Status::ok();
}

Status Link::handle(const WriteDataFrame& frame) {
  const Charge charge{Window::kRest,
                      window_cost(Window::kRest, frame.data.size(), 0, frame.ranges.size(), bytes_of(frame.notify))};
  TCPX_RETURN_IF_ERROR(count(frame.kType, frame.operation, charge));
  std::vector<HeldRange> ranges;
  if (Status refused = look_up(frame.ranges, ranges); !refused.is_ok()) {
    give_back(charge);
    answer(frame.operation, refused);
    return Status::ok();
  }
  ++stats_.inline_received;
  if (!on_gpu(ranges)) {
    scatter(ranges, frame.data);
    deliver(message_of(frame.notify, id_), frame.operation, true, charge);
    return Status::ok();
  }
  RemoteCopy copy{.kind = RemoteCopy::Kind::kWrite, .number = frame.operation, .ranges = std::move(ranges)};
  copy.data.assign(frame.data.begin(), frame.data.end());
  copy.charge = charge;
  copy.notify = message_of(frame.notify, id_);
  queue(std::move(copy));
  return Status::ok();
}

Status Link::handle(const ReadFrame& frame) {
  const bool is_short = frame.bytes <= shared_.inline_bytes;
  const Charge charge{Window::kRestOffers,
                      window_cost(Window::kRestOffers, is_short ? frame.bytes : 0, 0, frame.ranges.size(), 0)};
  TCPX_RETURN_IF_ERROR(count(frame.kType, frame.operation, charge));
  if (serving_.contains(frame.operation)) return unexpected(frame, "asked for before");
  const auto refuse = [&](const Status& why) {
    give_back(charge);
    answer(frame.operation, why);
    return Status::ok();
  };
  std::vector<HeldRange> ranges;
  if (Status refused = look_up(frame.ranges, ranges); !refused.is_ok()) return refuse(refused);
  if (!is_short) {
    const auto prepared = send_lane_.prepare(ranges, preferred_packing(ranges, frame.bytes));
    if (!prepared.is_ok()) return refuse(prepared.status());
    auto job = std::make_unique<Job>();
    job->number = frame.operation;
    job->held = std::move(ranges);
    job->bytes = frame.bytes;
    job->charge = charge;
    serving_.emplace(frame.operation, std::move(job));
    stream_->send(ReadyFrame{.operation = frame.operation, .packing = *prepared});
    return Status::ok();
  }
  if (!on_gpu(ranges)) {
    gather(ranges);
    send_read_data(frame.operation, scratch_);
    give_back(charge);
    return Status::ok();
  }
  RemoteCopy copy{.kind = RemoteCopy::Kind::kRead, .number = frame.operation, .ranges = std::move(ranges)};
  copy.charge = charge;
  queue(std::move(copy));
  return Status::ok();
}

void Link::send_read_data(uint64_t number, std::span<const std::byte> data) {
  stream_->send(ReadDataFrame{.operation = number, .data = data});
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

Status Link::handle(const ReadDataFrame& frame) {
  const auto found = local_.find(frame.operation);
  if (found == local_.end()) return Status::ok();  // given up in the meantime
  Local& local = found->second;
  if (local.operation->kind != OperationKind::kRead || local.phase != Phase::kOffered) return unexpected(frame, "not asked for");
  if (local.operation->bytes != frame.data.size()) return unexpected(frame, "another number of bytes than asked for");
  ++stats_.inline_received;
  take_data(local, frame.data);
  return Status::ok();
}

Status Link::handle(const ReadyFrame& frame) {
  const auto found = local_.find(frame.operation);
  if (found == local_.end()) {
    stream_->send(CancelFrame{.operation = frame.operation});  // given up in the meantime
    return Status::ok();
  }
  Local& local = found->second;
  const Operation& operation = *local.operation;
  if (operation.kind != OperationKind::kRead || local.phase != Phase::kOffered || operation.bytes == 0)
    return unexpected(frame, "not asked for");
  const bool must_pack = frame.packing == Packing::kPacked;
  const auto prepared =
      recv_lane_.prepare(operation.ranges, must_pack ? Packing::kPacked : preferred_packing(operation.ranges, operation.bytes));
  if (!prepared.is_ok()) {
    stream_->send(CancelFrame{.operation = frame.operation});
    finish(local, prepared.status());
    return Status::ok();
  }
  push_receive(local, frame.operation, true, *prepared);
  return Status::ok();
}

Status Link::handle(const GoFrame& frame) {
  // Ranges of nothing are no ranges here, so both ends count the same.
  const bool is_whole = frame.packing == Packing::kWhole;
  constexpr std::string_view kNoWhole = "a vector cannot travel as a whole";
  std::unique_ptr<Job> job;
  if (frame.of_read) {
    const auto found = serving_.find(frame.operation);
    if (found == serving_.end()) return unexpected(frame, "no such read");
    if (is_whole && found->second->held.size() != 1) return unexpected(frame, kNoWhole);
    job = std::move(found->second);
    serving_.erase(found);
  } else {
    const auto found = local_.find(frame.operation);
    if (found == local_.end()) return unexpected(frame, "no such operation");
    Local& local = found->second;
    const OperationKind kind = local.operation->kind;
    if (local.phase != Phase::kOffered || (kind != OperationKind::kSend && kind != OperationKind::kWrite))
      return unexpected(frame, "it was not offered");
    if (is_whole && local.operation->ranges.size() != 1) return unexpected(frame, kNoWhole);
    job = std::make_unique<Job>();
    job->operation = local.operation;
    job->number = frame.operation;
    job->bytes = local.operation->bytes;
  }
  job->packing = frame.packing;
  const bool mine = job->operation != nullptr;
  send_lane_.push(std::move(job));
  if (mine) local_.find(frame.operation)->second.phase = Phase::kMoving;  // from here on only the lane ends it
  return Status::ok();
}

Status Link::handle(const DoneFrame& frame) {
  const auto found = local_.find(frame.operation);
  if (found == local_.end()) return Status::ok();  // given up in the meantime
  Local& local = found->second;
  if (local.phase == Phase::kMoving && local.operation->kind == OperationKind::kWrite) {
    local.answered = true;
    local.answer = frame.status;
    return Status::ok();
  }
  const bool refused = local.phase == Phase::kOffered && !frame.status.is_ok();
  if (local.phase != Phase::kAnswer && !refused) return unexpected(frame, "it is not waiting for an answer");
  finish(local, frame.status);
  return Status::ok();
}

// Of a read that waits for its "go", or of a send. A send that has been matched goes on: "go" is on its way to the sender, which
// waits for that. One that was never offered leaves its place empty.
Status Link::handle(const CancelFrame& frame) {
  if (const auto served = serving_.find(frame.operation); served != serving_.end()) {
    give_back(served->second->charge);
    serving_.erase(served);
    return Status::ok();
  }
  const uint64_t sequence = frame.sequence;
  const auto arrived = arrivals_.find(sequence);
  if (frame.announced) {
    if (arrived == arrivals_.end()) return Status::ok();
    if (arrived->second.number != frame.operation || arrived->second.with_data) return unexpected(frame, "no such send");
    give_back(take_arrival(arrived).charge);
    cancelled_.insert(sequence);
    answer(frame.operation, Status(Code::kCancelled, "send", "given up by the sender"));
    return Status::ok();
  }
  if (arrived != arrivals_.end() || cancelled_.contains(sequence)) return unexpected(frame, "the send has come before");
  if (given_up_.erase(sequence)) return Status::ok();
  const auto posted = receives_.find(sequence);
  if (posted == receives_.end()) {
    if (cancelled_.intervals() >= kMaxGivenUpSends) return unexpected(frame, "too many sends are given up here and there");
    cancelled_.insert(sequence);
    return Status::ok();
  }
  Local& local = local_.find(posted->second)->second;
  receives_.erase(posted);
  finish(local, Status(Code::kCancelled, "receive", "the sender has given its send up"));
  return Status::ok();
}

Status Link::handle(const CreditFrame& frame) {
  uint64_t& left = window_left_[static_cast<size_t>(frame.window)];
  if (frame.bytes > bytes_of(frame.window) - left)
    return unexpected(frame.kType, 0, concat("credit of ", frame.bytes, " bytes that are not owed"));
  left += frame.bytes;
  return Status::ok();
}

Status Link::handle(const NotifyFrame& frame) {
  auto message = message_of(frame.notify, id_);
  const Charge charge{Window::kRest, window_cost(message->name.size() + message->msg.size())};
  TCPX_RETURN_IF_ERROR(count(frame.kType, 0, charge));
  deliver(std::move(message), 0, false, charge);
  return Status::ok();
}

void Link::answer(uint64_t number, const Status& status) {
  if (state_ > State::kClosing) return;
  stream_->send(DoneFrame{.operation = number, .status = status});
}

// What is held here for the peer is memory that only the window bounds.
Status Link::count(ControlType type, uint64_t operation, const Charge& charge) {
  uint64_t& taken = taken_[static_cast<size_t>(charge.window)];
  if (charge.bytes > bytes_of(charge.window) - taken) return unexpected(type, operation, "more than the window lets through");
  taken += charge.bytes;
  return Status::ok();
}

// In few frames: a quarter of the window is told at once.
void Link::give_back(const Charge& charge) {
  const auto index = static_cast<size_t>(charge.window);
  owed_[index] += charge.bytes;
  if (owed_[index] < bytes_of(charge.window) / 4 || state_ > State::kClosing) return;
  taken_[index] -= owed_[index];
  stream_->send(CreditFrame{.window = charge.window, .bytes = std::exchange(owed_[index], 0)});
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
