#include "lanes/ring/ring_lane.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/shared_order.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Limit of what one call of `progress` begins: other links wait while short pieces are copied, some tens of microseconds.
constexpr uint64_t kTurnBytes = 256 << 10;

}  // namespace

RingLane::~RingLane() {
  for (const Piece& piece : pieces_) {
    while (piece.ticket && !is_over(piece)) {
    }
  }
}

std::unique_ptr<Lane> make_ring_lane(const LaneMaking& making, bool receives) {
  const SharedArea& area = making.host.area;
  return std::make_unique<RingLane>(area.bulk_ring(receives != area.first()), making, !receives);
}

// The first call for memory of the GPU begins the pinning.
bool RingLane::is_ready(std::span<const HeldRange> ranges) {
  if (!status_.is_ok() || ranges.empty() || !is_for_gpu(ranges) || ranges.front().region().access.copier != nullptr) return true;
  if (pin_ == nullptr) pin();
  return pin_->is_done();
}

// Call when `is_ready`.
bool RingLane::reaches(std::span<const HeldRange> ranges) const {
  if (!status_.is_ok() || ranges.empty()) return false;
  return !is_for_gpu(ranges) || (ranges.front().region().access.copier == nullptr && pin_->has_buffer());
}

void RingLane::pin() {
  pin_ = parts_.unmapper.make([&ops = parts_.memory, gpu = parts_.gpu, bytes = ring_.bytes] {
    auto ring = ops.map_host(gpu, bytes, BulkRing::kBytes);
    if (!ring.is_ok())
      log(LogLevel::kInfo, ring.status().to_string(), ": GPU memory does not go through the ring that is shared with the peer");
    return ring;
  });
}

MemoryBuffer RingLane::close() {
  const auto pin = std::move(pin_);
  if (pin == nullptr) return {};
  if (pin->is_done()) return pin->has_buffer() ? std::move(*pin->buffer) : MemoryBuffer();
  return MemoryBuffer(nullptr, ring_.bytes, BulkRing::kBytes, [pin] {
    pin->done.wait(false, std::memory_order_acquire);
    pin->buffer = MemoryBuffer();
  });
}

// The order of a receiver's Gos is that of its jobs.
void RingLane::push(std::unique_ptr<Job>&& job, std::span<const std::byte> /*words*/, const GoFrame& go) {
  if (receives() && is_for_gpu(job->ranges) && !(pin_->is_done() && pin_->has_buffer())) {
    unpinned_.push_back({nullptr, go});
    unpinned_.back().job = std::move(job);
    return;
  }
  if (receives()) stream_.send(go);
  jobs_.push_back(std::move(job));
  enter(*jobs_.back());
  pushed_ = true;
}

bool RingLane::end_unpinned() {
  if (unpinned_.empty() || (status_.is_ok() && !pin_->is_done())) return false;
  for (; !unpinned_.empty(); unpinned_.pop_front()) {
    auto& [job, go] = unpinned_.front();
    if (job == nullptr) continue;  // it was given away in a turn that then ran out of memory
    if (status_.is_ok() && pin_->has_buffer()) {
      push(std::move(job), {}, go);
    } else if (status_.is_ok()) {
      if (const Status left = elsewhere_(std::move(job), go); !left.is_ok()) fail(left);
    }
    if (job == nullptr) continue;
    job->status = status_;
    ended_.push_back(std::move(job));
  }
  return true;
}

bool RingLane::progress(TimePoint now) {
  bool advanced = end_unpinned();
  advanced |= end_pieces();
  const uint64_t enough = begun_ + kTurnBytes;
  starved_ = false;
  while (status_.is_ok() && next_cut_ < jobs_.size() && begun_ < enough && begin_piece()) {
    advanced = true;
    end_pieces();  // a short piece is already copied, and the other end waits for it
  }
  while (!status_.is_ok() && pieces_.empty() && !jobs_.empty()) end_front_job();
  if (std::exchange(pushed_, false) || advanced) moved_at_ = now;
  return advanced;
}

// @return bytes that may be begun now; nullopt: the peer's counter does not add up, and this lane has failed
std::optional<uint64_t> RingLane::room() {
  const uint64_t held =
      sends_ ? begun_ - ring_.read.load(std::memory_order_acquire) : ring_.written.load(std::memory_order_acquire) - begun_;
  tell_read();
  if (held <= BulkRing::kBytes) return sends_ ? BulkRing::kBytes - held : held;
  fail(Status(Code::kProtocol, "use shared ring", "the peer's counters do not add up"));
  return std::nullopt;
}

// Begins a piece: as much of one job as fits before the ring's end. @return false: nothing can be begun
bool RingLane::begin_piece() {
  const auto may = room();
  const auto ranges = jobs_[next_cut_]->ranges;
  const bool for_gpu = is_for_gpu(ranges);
  const size_t at = begun_ % BulkRing::kBytes;
  const uint64_t most = std::min<uint64_t>({may.value_or(0), for_gpu ? kLongPiece : piece_, BulkRing::kBytes - at});
  if (most == 0 || (for_gpu && pieces_.size() >= kMaxGpuPieces)) return false;
  std::byte* const ring = (for_gpu ? pin_->buffer->device() : ring_.bytes) + at;
  Piece piece;
  size_t range_at = range_;
  uint64_t offset = offset_;
  segments_.clear();
  while (piece.bytes < most && range_at < ranges.size() && segments_.size() < kMaxCopySegments) {
    const HeldRange& range = ranges[range_at];
    const uint64_t part = std::min(range.bytes - offset, most - piece.bytes);
    std::byte *const user = range.data + offset, *const shared = ring + piece.bytes;
    segments_.push_back(sends_ ? CopySegment{shared, user, part} : CopySegment{user, shared, part});
    piece.bytes += part;
    offset += part;
    if (offset < range.bytes) continue;
    offset = 0;
    ++range_at;
  }
  piece.ends_job = range_at == ranges.size();
  pieces_.push_back(std::move(piece));  // before the copy begins: a begun copy must be waited for
  if (!start(pieces_.back(), for_gpu)) {
    pieces_.pop_back();
    return false;
  }
  begun_ += pieces_.back().bytes;
  range_ = pieces_.back().ends_job ? 0 : range_at;
  offset_ = offset;
  if (pieces_.back().ends_job) ++next_cut_;
  return true;
}

// @return false: the copy has not begun; either it will be tried again or the lane has failed
bool RingLane::start(Piece& piece, bool for_gpu) {
  if (!for_gpu) {
    piece.copy =
        parts_.host_copier.start(HostCopy::kThisProcess, segments_, {.may_hang = sends_ ? MayHang::kSources : MayHang::kTargets});
    return true;
  }
  const auto ticket = parts_.gpu_copier.submit(segments_);
  if (ticket.is_ok()) {
    piece.ticket = *ticket;
  } else if (ticket.status().code() == Code::kExhausted) {
    starved_ = true;
  } else {
    fail(ticket.status());
  }
  return ticket.is_ok();
}

bool RingLane::is_over(const Piece& piece) {
  if (piece.copy != nullptr) {
    if (!piece.copy->done()) {
      parts_.host_copier.relieve();
      return false;
    }
    if (const Status copied = piece.copy->status(); !copied.is_ok()) fail(copied);
    return true;
  }
  if (!piece.ticket) {
    fail(Status(Code::kExhausted, "copy through the shared ring", "out of memory"));
    return true;
  }
  const auto copied = parts_.gpu_copier.query(*piece.ticket);
  if (!copied.is_ok()) fail(copied.status());
  return !copied.is_ok() || *copied;
}

bool RingLane::end_pieces() {
  bool advanced = false;
  while (!pieces_.empty() && is_over(pieces_.front())) {
    const auto [bytes, ends_job] = std::pair(pieces_.front().bytes, pieces_.front().ends_job);
    pieces_.pop_front();  // first: the piece must count once, even if an allocation below fails
    advanced = true;
    if (!status_.is_ok()) continue;
    copied_ += bytes;
    tell_written();
    (sends_ ? ring_.written : ring_.read).store(copied_, std::memory_order_release);
    told_ = true;
    if (ends_job) end_front_job();
  }
  return advanced;
}

void RingLane::end_front_job() {
  jobs_.front()->status = status_;
  ended_.push_back(std::move(jobs_.front()));
  jobs_.pop_front();
  if (next_cut_ > 0) --next_cut_;
}

void RingLane::fail(const Status& reason) {
  if (!status_.is_ok()) return;
  status_ = reason;
  for (const Piece& piece : pieces_) {
    if (piece.copy != nullptr) piece.copy->stop();
  }
}

void RingLane::abandon() {
  for (const Piece& piece : pieces_) {
    if (piece.copy != nullptr) piece.copy->abandon();
  }
}

bool RingLane::serves(MemoryId region) const {
  const auto is_peers = [region](const std::unique_ptr<Job>& job) { return job != nullptr && is_of_peer(*job, region); };
  return std::any_of(jobs_.begin(), jobs_.end(), is_peers) ||
         std::any_of(unpinned_.begin(), unpinned_.end(), [&](const Unpinned& entry) { return is_peers(entry.job); });
}

std::string RingLane::flight_record() const {
  return concat("through shared memory, ", sends_ ? "sent: " : "received: ", jobs_.size() + unpinned_.size(), " transfers, ",
                copied_, " bytes so far, ", begun_ - copied_, " being copied");
}

}  // namespace tcpx
