#include "endpoint/shared_lane.h"

#include <algorithm>
#include <utility>

#include "base/shared_order.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Begun in one call of `progress`: other links wait while short pieces are copied, some tens of microseconds.
constexpr uint64_t kTurnBytes = 256 << 10;

}  // namespace

bool SharedLane::takes(const std::vector<HeldRange>& to, const WireArray<WireSource>& from) const {
  return ring_ != nullptr && status_.is_ok() && way_on_host(from) == Packing::kShared && !to.empty() &&
         is_of_host(to.front().region(), memory_);
}

bool SharedLane::progress(TimePoint now) {
  bool advanced = end_pieces();
  const uint64_t enough = begun_ + kTurnBytes;
  while (status_.is_ok() && next_cut_ < jobs_.size() && begun_ < enough && begin_piece()) {
    advanced = true;
    end_pieces();  // a short one is over at once, and the other end waits for it
  }
  while (!status_.is_ok() && pieces_.empty() && !jobs_.empty()) end_front_job();
  if (std::exchange(pushed_, false) || advanced) moved_at_ = now;
  return advanced;
}

// Bytes that may be begun now. @return nullopt: the peer's counter does not add up, and this has failed
std::optional<uint64_t> SharedLane::room() {
  const uint64_t held =
      sends_ ? begun_ - ring_->read.load(std::memory_order_acquire) : ring_->written.load(std::memory_order_acquire) - begun_;
  tell_read();
  if (held <= BulkRing::kBytes) return sends_ ? BulkRing::kBytes - held : held;
  fail(Status(Code::kProtocol, "use shared ring", "the peer's counters do not add up"));
  return std::nullopt;
}

// As much of one job as lies in one stretch of the ring. @return false: nothing can be begun
bool SharedLane::begin_piece() {
  const auto may = room();
  const size_t at = begun_ % BulkRing::kBytes;
  const uint64_t most = std::min<uint64_t>({may.value_or(0), piece_, BulkRing::kBytes - at});
  if (most == 0) return false;
  auto& ranges = jobs_[next_cut_]->ranges();
  Piece piece;
  segments_.clear();
  while (piece.bytes < most && range_ < ranges.size()) {
    const HeldRange& range = ranges[range_];
    const uint64_t part = std::min(range.bytes - offset_, most - piece.bytes);
    std::byte *const user = range.data + offset_, *const shared = ring_->bytes + at + piece.bytes;
    segments_.push_back(sends_ ? CopySegment{shared, user, part} : CopySegment{user, shared, part});
    piece.bytes += part;
    offset_ += part;
    if (offset_ < range.bytes) continue;
    offset_ = 0;
    ++range_;
  }
  piece.ends_job = range_ == ranges.size();
  if (piece.ends_job) {
    range_ = 0;
    ++next_cut_;
  }
  begun_ += piece.bytes;
  pieces_.push_back(std::move(piece));  // first: a copy that has begun must be waited for
  pieces_.back().copy = copier_.start(HostCopier::kThisProcess, segments_);
  return true;
}

bool SharedLane::end_pieces() {
  bool advanced = false;
  for (; !pieces_.empty() && pieces_.front().is_over(); pieces_.pop_front()) {
    advanced = true;
    const Piece& piece = pieces_.front();
    if (!status_.is_ok()) continue;
    copied_ += piece.bytes;
    tell_written();
    (sends_ ? ring_->written : ring_->read).store(copied_, std::memory_order_release);
    if (piece.ends_job) end_front_job();
  }
  return advanced;
}

void SharedLane::end_front_job() {
  jobs_.front()->status = status_;
  ended_.push_back(std::move(jobs_.front()));
  jobs_.pop_front();
  if (next_cut_ > 0) --next_cut_;
}

void SharedLane::fail(const Status& reason) {
  if (!status_.is_ok()) return;
  status_ = reason;
  for (const Piece& piece : pieces_) {
    if (piece.copy != nullptr) piece.copy->stop();
  }
}

bool SharedLane::serves(MemoryId region) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [region](const auto& job) { return job->operation == nullptr && uses(job->held, region); });
}

std::string SharedLane::flight_record() const {
  return concat("through shared memory, ", sends_ ? "sent: " : "received: ", jobs_.size(), " transfers, ", copied_,
                " bytes so far, ", begun_ - copied_, " being copied");
}

}  // namespace tcpx
