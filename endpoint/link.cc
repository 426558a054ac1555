#include "endpoint/link.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

// After a flush, frames are collected for this long, or up to kManyBytes: a system call for each would cost more than the wait. The
// first two after a pause leave at once, because the notification of a read is often followed by the next read.
constexpr Duration kCollect = std::chrono::microseconds(10);
constexpr size_t kManyBytes = 64 * 1024;
// How long a closing connection waits for transfers that have begun.
constexpr Duration kFarewell = std::chrono::seconds(2);
// How often the peer's host is checked for silence (wire/host_signs.h).
constexpr Duration kLookAliveEvery = std::chrono::milliseconds(250);
// Regions that are looked at in one turn of `share_early`: an application may have a hundred thousand.
constexpr int kEarlyPerTurn = 64;

// First and last byte of ranges, for people; "" unless one registration has them all.
std::string place_of(std::span<const HeldRange> ranges) {
  if (ranges.empty()) return "";
  const Region& region = ranges.front().region();
  size_t begin = region.bytes, end = 0;
  for (const HeldRange& range : ranges) {
    if (&range.region() != &region) return "";
    const auto at = static_cast<size_t>(range.data - region.data);
    begin = std::min(begin, at);
    end = std::max(end, at + range.bytes);
  }
  return concat("; at this end between bytes ", begin, " and ", end, " of a registration of ", region.bytes);
}

}  // namespace

Link::Link(const LinkShared& shared, ConnId id, LinkParts parts, std::string path)
    : peer_host_(std::move(parts.peer_host)),
      peer_name_(std::move(parts.peer_name)),
      proved_(std::move(parts.proved)),
      path_(std::move(path)),
      context_(shared, id, std::move(parts)),
      shares_(context_.host != nullptr && !context_.host->same_process),
      next_alive_look_(context_.now + kLookAliveEvery) {}

Link::~Link() {
  try {
    fail(Status(Code::kCancelled, "close connection", "closed by this end"));
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
  // The link now waits only for the GPU, and for copies of memory that may never answer.
  for (const auto patience = Deadline::after(kFarewell); !closed() || local_.copying();) {
    if (patience.expired()) context_.lanes.abandon();
    try {
      (void)progress(false);
    } catch (const std::bad_alloc&) {  // each turn frees memory, so a later one succeeds
    }
  }
  // Still there: receives submitted after the end, for data that had come before it, whose memory waits for the GPU.
  local_.end_rest();
}

void Link::submit(Operation& operation) {
  context_.now = context_.shared.clock.now();
  local_.submit(operation);
  fail_if_broken();
}

void Link::notify(std::unique_ptr<Notification> notification) {
  if (context_.stage == LinkStage::kOpen) context_.notify_waits.push_back(std::move(notification));
}

bool Link::progress(bool readable) {
  context_.now = context_.shared.clock.now();
  bool advanced = false;
  if (context_.has_failed() && !all_ended_) end_all();
  if ((readable || context_.stream->has_arrived()) && reads()) advanced |= context_.stream->receive(*this, readable);
  if (reads()) {
    if (context_.now >= next_alive_look_) {
      context_.stream->check_alive(context_.shared.peer_timeout);
      next_alive_look_ = context_.now + kLookAliveEvery;
    }
    if (!context_.stream->status().is_ok()) fail(context_.stream->status());
  }
  advanced |= local_.progress();
  if (!context_.notify_waits.empty()) advanced |= send_notifications();
  advanced |= peer_.progress();
  fail_if_broken();
  advanced |= progress_lanes();
  if (shares_early()) advanced |= share_early();
  advanced |= context_.deliver_kept();
  if (reads()) advanced |= context_.size_windows();
  if (context_.now >= local_.next_deadline()) end_late();
  advance_state();
  if (reads() && (context_.now >= next_flush_ || context_.stream->backlog() >= kManyBytes)) advanced |= flush();
  return advanced;
}

// True while there is GPU memory that may be shared with a peer on the same host, which maps it, before an operation needs that.
bool Link::shares_early() const {
  return shares_ && context_.stage == LinkStage::kOpen && shared_up_to_ < context_.shared.memory.newest_on_gpu();
}

// What is registered may be written from, and what is advertised is registered. One region after the other, and only while no operation
// moves bytes or waits until it can, because the driver would serve this before what the operation needs. A region is held only here, so
// that nobody waits for this: of memory that goes while a thread asks the driver for it, the driver knows nothing, and Link::forget drops
// what it has said.
bool Link::share_early() {
  bool advanced = false;
  for (int i = 0; i < kEarlyPerTurn && context_.lanes.idle() && !local_.waits() && !peer_.waits(); ++i, advanced = true) {
    const MemoryId newest =
        context_.shared.memory.newest_on_gpu();  // first: what is added meanwhile is looked for in the next turn
    RegionUse use = context_.shared.memory.use_on_gpu(shared_up_to_);
    if (!use) {
      shared_up_to_ = newest;
      return true;
    }
    const Region& region = use.region();
    const MemoryId id = region.id;
    const HeldRange whole(std::move(use), region.data, region.bytes);
    if (!context_.lanes.expect({&whole, 1})) break;
    shared_up_to_ = id;
  }
  return advanced;
}

// A short send is done when the kernel has its bytes: from then on it arrives even if this process ends.
bool Link::flush() {
  const bool advanced = context_.stream->flush();
  // In shared memory frames take no system call, and leave at once.
  if (advanced && !context_.stream->is_shared())
    next_flush_ = std::clamp(next_flush_ + kCollect, context_.now, context_.now + kCollect);
  if (context_.stream->backlog() > 0 || !context_.stream->send_status().is_ok()) return advanced;
  return local_.end_left() || advanced;
}

void Link::fail_if_broken() {
  if (!context_.broken.is_ok()) fail(context_.broken);
}

bool Link::needs_turns() const {
  return (!closed() && !context_.lanes.rests(context_.now)) || waits_outside_lanes() || shares_early();
}

bool Link::needs_polling() const {
  return (!closed() && !context_.lanes.is_told(context_.now)) || waits_outside_lanes();
}

bool Link::waits_outside_lanes() const {
  if (!context_.notifications.empty() || local_.copying() || local_.waits()) return true;
  if (closed()) return false;
  return context_.stage != LinkStage::kOpen || peer_closing_ || !peer_.quiet() || peer_.waits() ||
         (context_.stream->backlog() > 0 && !context_.stream->is_shared());
}

bool Link::prepare_sleep() {
  if (!reads()) return false;
  const uint32_t bulk = context_.lanes.wants(context_.now);
  // base/shared_stream.h wants this order: first tell the peer, then look at the lanes.
  return context_.stream->prepare_sleep(bulk) || (bulk != 0 && context_.lanes.can_move());
}

bool Link::send_notifications() {
  bool advanced = false;
  while (!context_.notify_waits.empty() && context_.stage == LinkStage::kOpen) {
    const NotifyFrame frame{.notify = {context_.notify_waits.front()->message.name, context_.notify_waits.front()->message.msg}};
    const Charge charge = charge_of(frame.notify);
    if (!context_.windows.has_room(charge)) break;
    context_.windows.take(charge);
    context_.stream->send(frame);
    context_.notify_waits.pop_front();
    advanced = true;
  }
  return advanced;
}

bool Link::progress_lanes() {
  bool advanced = false;
  uint32_t told = 0;
  for (Lane* const lane : context_.lanes.all()) {
    if (!lane->has_work()) continue;
    advanced |= move(*lane);
    told |= lane->take_told();
  }
  if (told != 0) context_.stream->wake(told);  // only now that the lanes have stored their counters
  return advanced;
}

bool Link::move(Lane& lane) {
  bool advanced = lane.progress(context_.now);
  if (!lane.status().is_ok() && reads()) fail(lane.status());
  advanced |= context_.lanes.compare_sums(lane);
  for (; Job* const job = context_.lanes.ended(lane); lane.drop_ended()) {
    advanced = true;
    if (job->status.code() == Code::kCorrupt) {
      job->status = located(*job);
      log(LogLevel::kError, job->status.to_string());
    }
    if (job->of_peer) {
      peer_.end_moved(static_cast<PeerJob&>(*job), lane.receives());
    } else {
      local_.end_moved(*job, lane.receives());
    }
  }
  return advanced;
}

// Its status, with the connection, the way and NICs of its bytes, and the part of an operation that it moves.
Status Link::located(const Job& job) const {
  const auto [begin, end] = job.named;
  const std::string ranges = job.of_peer        ? " of the peer"
                             : end - begin == 1 ? concat(", range ", begin)
                                                : concat(", ranges ", begin, " to ", end - 1);
  return Status(job.status.code(), job.status.operation(),
                concat("connection ", static_cast<uint64_t>(context_.id), " to ", peer_name_, ", ", path_, ": operation ",
                       job.number, ranges, ": ", job.status.detail(), place_of(job.ranges)));
}

void Link::end_late() {
  Status stuck = local_.end_late();
  if (stuck.is_ok()) return;
  log(LogLevel::kError, stuck.to_string(), "; ", flight_record());
  fail(std::move(stuck));
}

void Link::close() {
  if (context_.stage != LinkStage::kOpen) return;
  context_.now = context_.shared.clock.now();
  (void)send_notifications();  // `notify` was called for them before `close`
  context_.stage = LinkStage::kClosing;
  context_.face->ended = true;
  context_.status = Status(Code::kCancelled, "close connection", "closed by this end");
  close_until_ = context_.now + kFarewell;
  local_.cancel_all(context_.status);
  context_.notify_waits.clear();
  context_.stream->send(ByeFrame{});
  (void)context_.stream->flush();
}

void Link::fail(Status reason) {
  if (context_.stage >= LinkStage::kFailed) return;
  context_.now = context_.shared.clock.now();
  const bool expected = context_.stage == LinkStage::kClosing || peer_closing_;
  if (context_.stage == LinkStage::kOpen) context_.status = std::move(reason);
  context_.stage = LinkStage::kFailed;
  // Before any operation gives memory back: what a peer on this host copies from now on does not count.
  if (context_.host != nullptr) context_.host->own_alive().store(0);
  context_.face->ended = true;
  context_.stats.alive = false;
  log(expected ? LogLevel::kInfo : LogLevel::kWarning, "connection ", static_cast<uint64_t>(context_.id), " to ", peer_name_,
      " has ended: ", context_.status.to_string());
  end_all();
}

void Link::fail_without_memory() noexcept {
  try {
    // This Status allocates nothing. A frame may be half written, so the stream must send nothing more.
    context_.stream->fail(Status(Code::kExhausted, "allocate", "out of memory"));
    fail(context_.stream->status());
  } catch (const std::bad_alloc&) {
  }
}

// `progress` calls this again if an allocation fails, or while operations must keep their memory.
void Link::end_all() {
  if (context_.stream->status().is_ok()) (void)flush();
  context_.stream->fail(context_.status);
  context_.lanes.fail(context_.status);
  if (context_.lanes.is_read()) return;
  local_.end_all();
  peer_.end();
  context_.notify_waits.clear();
  all_ended_ = true;
}

// No job and no copy is under way.
bool Link::quiet() const {
  return context_.lanes.idle() && !local_.copying() && peer_.quiet();
}

void Link::advance_state() {
  if (context_.stage == LinkStage::kOpen && peer_closing_ && (quiet() || context_.now >= close_until_)) {
    if (!std::exchange(said_bye_, true)) context_.stream->send(ByeFrame{});
    fail(Status(Code::kPeerGone, "wait for the peer", "the peer has closed the connection"));
  }
  if (context_.stage == LinkStage::kClosing && ((quiet() && local_.empty() && peer_closing_) || context_.now >= close_until_))
    fail(context_.status);
  if (context_.stage == LinkStage::kFailed && quiet() && local_.empty() && context_.lanes.closed()) {
    context_.stage = LinkStage::kClosed;
    context_.stream->close();  // the link itself may be kept for sends that have arrived
    context_.place.shrink(context_.place.bytes() - std::min(context_.place.bytes(), arrived_bytes()));
    context_.lanes.close();
  }
}

bool Link::serves(MemoryId region) const {
  return context_.lanes.serves(region) || peer_.serves(region);
}

bool Link::forget(MemoryId region) {
  context_.lanes.forget(region);
  if (!peer_holds(region)) return false;
  if (reads()) (void)flush();
  return true;
}

ConnectionStats Link::stats() const {
  ConnectionStats stats = context_.stats;
  stats.conn = context_.id;
  stats.peer = peer_name_;
  stats.name = proved_;
  stats.remote_gpu_idx = context_.peer.gpu_idx;
  stats.path = path_;
  stats.operations_pending = local_.size();
  context_.lanes.add_to(stats);
  return stats;
}

std::string Link::flight_record() const {
  std::string text = concat("connection ", static_cast<uint64_t>(context_.id), " to ", peer_name_, ": ", local_.size(),
                            " operations, ", local_.arrivals(), " sends without a receive, ", peer_.waiting_reads(),
                            " reads of the peer, ", context_.stream->backlog(), " control bytes unsent",
                            context_.status.is_ok() ? "" : ", ", context_.status.is_ok() ? "" : context_.status.to_string());
  text += local_.flight_record();
  text += context_.lanes.flight_record();
  return text;
}

Status Link::on_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  Status status = hand_over(header, payload);
  fail_if_broken();
  return status;
}

template <class Frame, class Part>
Status Link::to(Part& part, const FrameHeader& header, std::span<const std::byte> payload) {
  Frame frame;
  TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
  return part.on(frame);
}

Status Link::hand_over(const FrameHeader& header, std::span<const std::byte> payload) {
  const auto type = static_cast<FrameType>(header.type);
  if (context_.lanes.has_checksums() && data_bytes_of(header) > 0)
    return unexpected(type, header.operation, "inline data, which has no checksum");
  switch (type) {
    case FrameType::kSend:
      return to<SendFrame>(local_, header, payload);
    case FrameType::kSendData:
      return to<SendDataFrame>(local_, header, payload);
    case FrameType::kWrite:
    case FrameType::kWriteData:
    case FrameType::kRead:
      return peer_.on(header, payload);
    case FrameType::kReadData:
      return to<ReadDataFrame>(local_, header, payload);
    case FrameType::kReady:
      return to<ReadyFrame>(local_, header, payload);
    case FrameType::kGo:
      return to<GoFrame>(*this, header, payload);
    case FrameType::kDone:
      return to<DoneFrame>(local_, header, payload);
    case FrameType::kCancel:
      return to<CancelFrame>(*this, header, payload);
    case FrameType::kCredit:
      return to<CreditFrame>(*this, header, payload);
    case FrameType::kNotify:
      return to<NotifyFrame>(*this, header, payload);
    case FrameType::kLane:
      return to<LaneFrame>(context_.lanes, header, payload);
    case FrameType::kBye:
      return to<ByeFrame>(*this, header, payload);
    case FrameType::kBegin:
      return to<BeginFrame>(*this, header, payload);
    case FrameType::kPosted:
      return to<PostedFrame>(local_, header, payload);
    case FrameType::kFinish:
      // The peer could not set up its end.
      TCPX_RETURN_IF_ERROR(status_of_peer(header.value, payload));
      break;
    case FrameType::kHello:
    case FrameType::kParameters:
    case FrameType::kHandles:
    case FrameType::kBarrier:
      break;
  }
  return unexpected(type, header.operation, "not for a link");
}

Status Link::on(const GoFrame& frame) {
  return frame.of_read ? peer_.on(frame) : local_.on(frame);
}

Status Link::on(const BeginFrame& frame) {
  if (!context_.lanes.begin(frame.operation, frame.of_read)) return unexpected(frame, "no transfer waits for it");
  return Status::ok();
}

Status Link::on(const CancelFrame& frame) {
  if (frame.what == CancelFrame::What::kWrite) {
    peer_.cancel_write(frame.operation);
    return Status::ok();
  }
  if (frame.what == CancelFrame::What::kGone) return peer_.drop_write(frame.operation);
  return peer_.cancel_read(frame.operation) ? Status::ok() : local_.on(frame);
}

Status Link::on(const CreditFrame& frame) {
  if (context_.on(frame)) return Status::ok();
  return unexpected(frame.kType, 0, concat("credit of ", frame.bytes, " bytes that are not owed"));
}

Status Link::on(const NotifyFrame& frame) {
  const Charge charge = charge_of(frame.notify);
  TCPX_RETURN_IF_ERROR(context_.count(frame.kType, 0, charge));
  context_.deliver({.notify = message_of(frame.notify, context_.id), .charge = charge, .answers = {}});
  return Status::ok();
}

Status Link::on(const ByeFrame& /*frame*/) {
  peer_closing_ = true;
  if (context_.stage == LinkStage::kOpen) close_until_ = context_.now + kFarewell;
  return Status::ok();
}

}  // namespace tcpx
