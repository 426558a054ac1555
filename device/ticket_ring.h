// Bookkeeping of work in flight: a ring of slots with two monotone cursors, and the error that ends it. No CUDA here.
//
// Ticket t uses slot t % depth from push until it is retired. Work finishes in order of submission, so only the oldest slot is
// ever queried, and a slot's event always belongs to the ticket that holds it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "rx/unpacker.h"
#include "tcpx/status.h"

namespace tcpx {

/// kInvalidArgument for a number of blocks that Unpacker::submit does not take.
inline Status check_batch(size_t block_count) {
  if (block_count != 0 && block_count <= kMaxBatchBlocks) return Status::ok();
  return Status(Code::kInvalidArgument, "submit unpack", concat(block_count, " blocks; 1 to ", kMaxBatchBlocks, " are possible"));
}

/// One thread at a time.
class TicketRing {
 public:
  /// @param work its name in errors; a literal.
  explicit TicketRing(size_t depth, const char* work = "unpack") : depth_(depth), work_(work) {}

  /// First check of Unpacker::submit: ok when a slot is free; the error that stuck; kInvalidArgument for an invalid number of
  /// blocks; kExhausted when all slots are in flight.
  Status ready(size_t block_count) const {
    if (error_.is_ok()) TCPX_RETURN_IF_ERROR(check_batch(block_count));
    return ready();
  }
  /// The same for any number of blocks.
  Status ready() const {
    if (!error_.is_ok()) return error_;
    if (next_ - oldest_ < depth_) return Status::ok();
    return Status(Code::kExhausted, concat("submit ", work_), concat("all ", depth_, " slots are in flight"));
  }

  /// The slot that the next ticket will hold. Only when ready.
  size_t next_slot() const { return static_cast<size_t>(next_ % depth_); }
  UnpackTicket push() {
    assert(next_ - oldest_ < depth_);
    return UnpackTicket{next_++};
  }
  bool in_flight() const { return oldest_ != next_; }
  bool failed() const { return !error_.is_ok(); }

  /// The first error sticks; every ready and query from now on reports it. The caller has made sure that no submitted work
  /// still touches memory.
  Status fail(Status error) {
    if (error_.is_ok()) error_ = std::move(error);
    return error_;
  }

  /// Retires finished slots, up to `ticket`.
  /// @param slot_done `Result<bool>(size_t slot)`: true if the work of that slot has finished. An error of it sticks.
  /// @return true if `ticket` has finished; kInvalidArgument for one that was never issued (does not stick); the error that
  /// stuck.
  template <class SlotDone>
  Result<bool> query(UnpackTicket ticket, SlotDone&& slot_done) {
    if (!error_.is_ok()) return error_;
    const auto wanted = static_cast<uint64_t>(ticket);
    if (wanted >= next_) {
      return Status(Code::kInvalidArgument, concat("query ", work_),
                    concat("no ticket ", wanted, ": ", next_, " were given out"));
    }
    for (; oldest_ <= wanted; ++oldest_) {
      const Result<bool> done = slot_done(static_cast<size_t>(oldest_ % depth_));
      if (!done.is_ok()) return fail(done.status());
      if (!*done) return false;
    }
    return true;
  }

 private:
  const size_t depth_;
  const char* const work_;
  uint64_t next_ = 0;    // next ticket to issue
  uint64_t oldest_ = 0;  // oldest ticket not retired
  Status error_;
};

}  // namespace tcpx
