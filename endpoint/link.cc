#include "endpoint/link.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "endpoint/link_rules.h"

namespace tcpx {

namespace {

Result<bool> is_reached(const std::vector<std::unique_ptr<GpuMark>>& marks) {
  bool all = true;
  for (const auto& mark : marks) {
    const auto reached = mark->reached();
    if (!reached.is_ok()) return reached;
    all &= *reached;
  }
  return all;
}

}  // namespace

Link::Link(const LinkShared& shared, ConnId id, LinkParts parts, std::string path)
    : shared_(shared),
      id_(id),
      peer_(parts.peer),
      peer_host_(std::move(parts.peer_host)),
      peer_name_(std::move(parts.peer_name)),
      path_(std::move(path)),
      stream_(std::move(parts.stream)),
      send_lane_(std::move(parts.send), shared.lanes),
      recv_lane_(std::move(parts.recv), shared.lanes) {
  now_ = shared_.clock.now();
  next_deadline_ = TimePoint::max();
  next_alive_look_ = now_ + kLookAliveEvery;
}

Link::~Link() {
  try {
    fail(Status(Code::kCancelled, "close connection", "closed by this end"));
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
  // What is left waits for the GPU alone.
  while (!closed() || !copies_.empty()) {
    try {
      (void)progress(false);
    } catch (const std::bad_alloc&) {  // what this frees is enough in the end
    }
  }
  // Receives that came after the end, for what had come whole before, and whose memory still waits for the GPU.
  while (!local_.empty()) finish(local_.begin()->second, status_);
}

const char* Link::name_of(Phase phase) {
  switch (phase) {
    case Phase::kGpu:
      return "waits for the GPU's work";
    case Phase::kReadOut:
      return "is copied from the GPU";
    case Phase::kWindow:
      return "waits for the peer's window";
    case Phase::kLeaving:
      return "leaves";
    case Phase::kPosted:
      return "waits for a send";
    case Phase::kOffered:
      return "waits for the peer";
    case Phase::kMoving:
      return "moves";
    case Phase::kWriteIn:
      return "is copied to the GPU";
    case Phase::kAnswer:
      return "waits for the peer's answer";
  }
  return "";
}

bool Link::progress(bool readable) {
  now_ = shared_.clock.now();
  bool advanced = false;
  if (state_ == State::kFailed && !all_ended_) end_all();
  if (readable && state_ <= State::kClosing) advanced |= stream_->receive(*this);
  if (state_ <= State::kClosing) {
    if (now_ >= next_alive_look_) {
      stream_->check_alive(kSilence);
      next_alive_look_ = now_ + kLookAliveEvery;
    }
    if (!stream_->status().is_ok()) fail(stream_->status());
  }
  advanced |= progress_waiting();
  advanced |= progress_copies();
  advanced |= progress_lanes();
  advanced |= deliver_held();
  if (now_ >= next_deadline_) look_at_deadlines();
  advance_state();
  if (state_ <= State::kClosing && (now_ - flushed_at_ >= kCollect || stream_->backlog() >= kManyBytes)) advanced |= flush();
  return advanced;
}

// A short send is done when the kernel has it: it arrives then even if this process ends.
bool Link::flush() {
  const bool advanced = stream_->flush();
  if (advanced) flushed_at_ = now_;
  if (leaving_.empty() || stream_->backlog() > 0) return advanced;
  for (const uint64_t number : leaving_) {
    const auto found = local_.find(number);
    if (found != local_.end() && found->second.phase == Phase::kLeaving) finish(found->second, Status::ok());
  }
  leaving_.clear();
  return true;
}

bool Link::needs_polling() const {
  if (state_ == State::kClosed) return !held_.empty() || !copies_.empty() || !gpu_waits_.empty();
  return state_ != State::kOpen || peer_closing_ || !send_lane_.idle() || !recv_lane_.idle() || !gpu_waits_.empty() ||
         !copies_.empty() || !remote_copies_.empty() || !held_.empty() || stream_->backlog() > 0;
}

// Application's GPU work, and the peer's window.
bool Link::progress_waiting() {
  bool advanced = false;
  // Apart, because what starts may fail, and with it the link, which forgets who waits.
  std::vector<uint64_t> waiting = std::exchange(gpu_waits_, {});
  for (const uint64_t number : waiting) {
    const auto found = local_.find(number);
    if (found == local_.end() || found->second.phase != Phase::kGpu) continue;
    Local& local = found->second;
    const Result<bool> ready = is_reached(local.operation->after);
    if (ready.is_ok() && !*ready) {
      gpu_waits_.push_back(number);
      continue;
    }
    advanced = true;
    if (ready.is_ok()) {
      start(local);
    } else {
      end_early(local, ready.status());
    }
  }
  for (auto& waits : window_waits_) {
    while (!waits.empty()) {
      const auto found = local_.find(waits.front());
      const bool there = found != local_.end() && found->second.phase == Phase::kWindow;
      const bool open = there && window_open(found->second);
      if (there && !open && !waits_too_long(found->second)) break;
      waits.pop_front();
      if (open) pass(found->second);
      if (there && !open) enter(found->second, Window::kSendOffers);
      advanced = true;
    }
  }
  advanced |= send_notifications();
  return advanced;
}

bool Link::send_notifications() {
  bool advanced = false;
  while (!notify_waits_.empty() && state_ == State::kOpen) {
    const NotifyMsg& message = notify_waits_.front()->message;
    const uint64_t cost = window_cost(message.name.size() + message.msg.size());
    if (window_left_[static_cast<size_t>(Window::kRest)] < cost) break;
    window_left_[static_cast<size_t>(Window::kRest)] -= cost;
    stream_->send(NotifyFrame{.notify = {message.name, message.msg}});
    notify_waits_.pop_front();
    advanced = true;
  }
  return advanced;
}

// Short copies, in order. Those without a slot are the last ones, so that what frees a slot never stands behind what waits for
// it.
bool Link::progress_copies() {
  bool advanced = false;
  while (!copies_.empty()) {
    const auto found = local_.find(copies_.front());
    Local& local = found->second;
    if (!local.has_copy && state_ >= State::kFailed && local.phase == Phase::kReadOut) {
      copies_.pop_front();
      finish(local, status_);
      continue;
    }
    if (!local.has_copy && !begin_copy(local)) break;
    const auto done = shared_.copies.is_done(local.copy);
    if (done.is_ok() && !*done) break;
    end_copy(local, done.is_ok() ? Status::ok() : done.status());
    copies_.pop_front();
    advanced = true;
  }
  for (const uint64_t id : copies_) {
    Local& local = local_.find(id)->second;
    if (!local.has_copy && !begin_copy(local)) break;
  }
  while (!remote_copies_.empty() && step(remote_copies_.front())) {
    remote_copies_.pop_front();
    advanced = true;
  }
  for (RemoteCopy& copy : remote_copies_) {
    if (!copy.started && !begin(copy)) break;
  }
  return advanced;
}

bool Link::progress_lanes() {
  bool advanced = false;
  for (Lane* lane : {&send_lane_, &recv_lane_}) {
    if (lane->idle() && lane->status().is_ok()) continue;
    advanced |= lane->progress();
    if (!lane->status().is_ok() && state_ <= State::kClosing) fail(lane->status());
    while (auto job = lane->take_ended()) {
      advanced = true;
      end_moved(std::move(job), lane == &recv_lane_);
    }
  }
  return advanced;
}

void Link::take_cancel_requests() {
  std::vector<uint64_t> wanted;
  for (const auto& [number, local] : local_) {
    if (local.ending.is_ok() && local.operation->cancel_requested()) wanted.push_back(number);
  }
  for (const uint64_t number : wanted) {
    end_early(local_.find(number)->second, Status(Code::kCancelled, "cancel", "given up by the caller"));
  }
}

void Link::note_deadline(TimePoint at) {
  next_deadline_ = std::min(next_deadline_, at);
}

void Link::look_at_deadlines() {
  std::vector<uint64_t> late;
  Status stuck;
  next_deadline_ = TimePoint::max();
  for (const auto& [number, local] : local_) {
    if (!local.ending.is_ok()) {
      if (now_ >= local.grace) {
        stuck = Status(Code::kTimeout, std::string(tcpx::name_of(local.operation->kind)),
                       concat("operation ", number, " ", name_of(local.phase), " and did not end within ",
                              std::chrono::duration_cast<std::chrono::milliseconds>(kGrace).count(),
                              " ms: the connection is closed so that nothing touches its memory"));
      } else {
        note_deadline(local.grace);
      }
    } else if (now_ >= local.operation->deadline) {
      late.push_back(number);
    } else {
      note_deadline(local.operation->deadline);
    }
  }
  for (const uint64_t number : late) {
    Local& local = local_.find(number)->second;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - local.operation->submitted_at).count();
    end_early(local, Status(Code::kTimeout, std::string(tcpx::name_of(local.operation->kind)),
                            concat("deadline passed after ", ms, " ms; it ", name_of(local.phase))));
  }
  if (!stuck.is_ok()) {
    log(LogLevel::kError, stuck.to_string(), "; ", flight_record());
    fail(std::move(stuck));
  }
}

void Link::finish(Local& local, Status status) {
  Operation& operation = *local.operation;
  if (!local.ending.is_ok()) status = local.ending;
  if (status.is_ok()) {
    const bool sends = operation.kind == OperationKind::kSend || operation.kind == OperationKind::kWrite;
    (sends ? stats_.bytes_sent : stats_.bytes_received) += operation.bytes;
    ++stats_.operations_done;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now_ - operation.submitted_at).count();
    const auto bucket = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(us, 1))) - 1;
    ++stats_.latency.buckets[std::min<size_t>(static_cast<size_t>(bucket), stats_.latency.buckets.size() - 1)];
    ++stats_.latency.count;
  } else {
    ++stats_.operations_failed;
  }
  give_back(local.held);
  local_.erase(static_cast<uint64_t>(operation.id));
  shared_.operations.finish(operation, std::move(status));
}

void Link::cancel_all(const Status& why) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, local] : local_) {
    if (local.ending.is_ok()) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) end_early(local_.find(number)->second, why);
}

void Link::close() {
  if (state_ != State::kOpen) return;
  now_ = shared_.clock.now();
  (void)send_notifications();  // those whose `notify` came before
  state_ = State::kClosing;
  face_->ended = true;
  status_ = Status(Code::kCancelled, "close connection", "closed by this end");
  close_until_ = now_ + kFarewell;
  cancel_all(status_);
  notify_waits_.clear();
  stream_->send(ByeFrame{});
  (void)stream_->flush();
}

void Link::fail(Status reason) {
  if (state_ >= State::kFailed) return;
  now_ = shared_.clock.now();
  const bool expected = state_ == State::kClosing || peer_closing_;
  if (state_ == State::kOpen) status_ = std::move(reason);
  state_ = State::kFailed;
  face_->ended = true;
  stats_.alive = false;
  log(expected ? LogLevel::kInfo : LogLevel::kWarning, "connection ", static_cast<uint64_t>(id_), " to ", peer_name_,
      " has ended: ", status_.to_string());
  end_all();
}

void Link::fail_without_memory() noexcept {
  try {
    // Short enough to need no memory themselves. A frame may be half written: nothing leaves any more.
    stream_->fail(Status(Code::kExhausted, "allocate", "out of memory"));
    fail(stream_->status());
  } catch (const std::bad_alloc&) {
  }
}

// Again when memory was wanting.
void Link::end_all() {
  if (stream_->status().is_ok()) (void)flush();
  stream_->fail(status_);
  send_lane_.fail(status_);
  recv_lane_.fail(status_);
  for (auto next = local_.begin(); next != local_.end();) {
    Local& local = next++->second;
    if (local.phase != Phase::kMoving && local.phase != Phase::kReadOut && local.phase != Phase::kWriteIn) finish(local, status_);
  }
  receives_.clear();
  gpu_waits_.clear();
  for (auto& waits : window_waits_) waits.clear();
  leaving_.clear();
  notify_waits_.clear();
  serving_.clear();
  given_up_.clear();
  cancelled_.clear();
  // What has come whole can still be received.
  std::erase_if(arrivals_, [](const auto& entry) { return !entry.second.with_data; });
  all_ended_ = true;
}

void Link::advance_state() {
  const bool quiet = send_lane_.idle() && recv_lane_.idle() && copies_.empty() && remote_copies_.empty();
  if (state_ == State::kOpen && peer_closing_ && (quiet || now_ >= close_until_)) {
    if (!std::exchange(said_bye_, true)) stream_->send(ByeFrame{});
    fail(Status(Code::kPeerGone, "wait for the peer", "the peer has closed the connection"));
  }
  if (state_ == State::kClosing && ((quiet && local_.empty() && peer_closing_) || now_ >= close_until_)) fail(status_);
  if (state_ == State::kFailed && quiet && local_.empty() && send_lane_.closed() && recv_lane_.closed()) {
    state_ = State::kClosed;
    stream_->close();  // the link may be kept for what has arrived
  }
}

bool Link::serves(MemoryId region) const {
  return send_lane_.serves(region) || recv_lane_.serves(region) ||
         std::any_of(serving_.begin(), serving_.end(),
                     [region](const auto& entry) { return uses(entry.second->held, region); }) ||
         std::any_of(remote_copies_.begin(), remote_copies_.end(),
                     [region](const auto& copy) { return uses(copy.ranges, region); });
}

void Link::forget(MemoryId region) {
  send_lane_.forget(region);
  recv_lane_.forget(region);
}

ConnectionStats Link::stats() const {
  ConnectionStats stats = stats_;
  stats.conn = id_;
  stats.peer = peer_name_;
  stats.remote_gpu_idx = peer_.gpu_idx;
  stats.path = path_;
  stats.operations_pending = local_.size();
  for (const Lane* lane : {&send_lane_, &recv_lane_}) {
    const Connection& connection = lane->connection();
    stats.chunks_in_flight += connection.in_flight();
    stats.window_chunks += connection.window();
    for (const ChannelCounters& channel : connection.counters()) {
      auto nic = std::find_if(stats.nics.begin(), stats.nics.end(), [&](const NicStats& n) { return n.name == channel.nic; });
      if (nic == stats.nics.end()) nic = stats.nics.insert(nic, NicStats{.name = channel.nic});
      (lane == &send_lane_ ? nic->bytes_sent : nic->bytes_received) += channel.bytes;
      (lane == &send_lane_ ? nic->chunks_sent : nic->chunks_received) += channel.chunks;
    }
  }
  return stats;
}

std::string Link::flight_record() const {
  std::string text =
      concat("connection ", static_cast<uint64_t>(id_), " to ", peer_name_, ": ", local_.size(), " operations, ",
             arrivals_.size(), " sends without a receive, ", serving_.size(), " reads of the peer, ", stream_->backlog(),
             " control bytes unsent", status_.is_ok() ? "" : ", ", status_.is_ok() ? "" : status_.to_string());
  size_t shown = 0;
  for (const auto& [number, local] : local_) {
    if (++shown > 8) break;
    text += concat("\n  operation ", number, ", ", tcpx::name_of(local.operation->kind), " of ", local.operation->bytes,
                   " bytes: ", name_of(local.phase));
  }
  if (!send_lane_.idle()) text += concat("\n  ", send_lane_.flight_record());
  if (!recv_lane_.idle()) text += concat("\n  ", recv_lane_.flight_record());
  return text;
}

}  // namespace tcpx
