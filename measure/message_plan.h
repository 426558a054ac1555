// Cutting messages of one size into plugin requests, and the places of their bytes at both ends. Pure arithmetic.
//
// Requests are numbered through all messages. No two messages in a row hold the same bytes: each begins a page further into the
// sender's memory than the one before it, so that a late, repeated or misplaced message is seen. Message `m` lands in slot
// `m % slots()` of the receiver's memory; there are enough slots for all messages in flight to lie apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tcpx/types.h"

namespace tcpx {

/// From `min_bytes` to `max_bytes`, each size `factor` times the one before.
struct SizeSweep {
  uint64_t min_bytes = 0;  ///< 1 ... max_bytes
  uint64_t max_bytes = 0;  ///< at most kMaxBytes
  uint32_t factor = 2;     ///< at least 2
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
};
inline std::vector<uint64_t> sizes_of(const SizeSweep& sweep) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = sweep.min_bytes; bytes <= sweep.max_bytes; bytes *= sweep.factor) {
    sizes.push_back(bytes);
    if (bytes > sweep.max_bytes / sweep.factor) break;
  }
  return sizes;
}

/// Transfers of one round lie side by side, each in a slot of its own, and are filled and checked between rounds.
inline constexpr uint32_t kMaxSlots = 64;
/// From one slot to the next: `bytes` in whole pages.
inline uint64_t slot_stride(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
/// Different contents of messages in a row. A prime that divides no number of slots, so that a slot's content changes with each use.
inline constexpr uint64_t kContents = 17;
/// Number of slots of `bytes` bytes that fit into `room_bytes`: 1 ... kMaxSlots, one also when it does not fit.
inline uint32_t slots_in(uint64_t room_bytes, uint64_t bytes) {
  const auto slots = static_cast<uint32_t>(std::clamp<uint64_t>(room_bytes / slot_stride(bytes), 1, kMaxSlots));
  return slots % kContents == 0 ? slots - 1 : slots;
}

class MessagePlan {
 public:
  /// Below INT_MAX with all contents, which a plugin of version 7 registers at most; callers that split may go beyond.
  static constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 30;

  struct Part {
    uint64_t send_off;     ///< in the sender's memory
    uint64_t receive_off;  ///< in the receiver's memory
    uint32_t bytes;
  };

  /// For an end that posts the requests itself, one after the other to one comm: at most kQueueDepth in a row are in flight, even
  /// of one message.
  /// @param message_bytes from 1
  /// @param request_bytes 1 ... kMaxRequestBytes: most bytes of one request
  MessagePlan(uint64_t message_bytes, uint64_t request_bytes) : MessagePlan(message_bytes, request_bytes, kQueueDepth) {}

  /// For messages that are transfers over `channels` comms, whose requests end in any order: a slot is free when the whole
  /// message is done. While one that is cut ends bit by bit, the next ones fill the comms, so it takes a slot more.
  static MessagePlan of_transfers(uint64_t message_bytes, uint64_t request_bytes, uint32_t channels) {
    MessagePlan plan(message_bytes, request_bytes, uint64_t{kQueueDepth} * channels);
    if (plan.requests_per_message_ > 1) ++plan.slots_;
    if (plan.slots_ % kContents == 0) ++plan.slots_;
    return plan;
  }

  /// For messages of which `outstanding` are under way at once, each cut by somebody else.
  static MessagePlan of_operations(uint64_t message_bytes, uint64_t outstanding) {
    MessagePlan plan(message_bytes, message_bytes, outstanding);
    if (plan.slots_ % kContents == 0) ++plan.slots_;
    return plan;
  }

  /// For messages that each have a place and a content of their own, at both ends alike: message i lies in slot `i % slots`,
  /// and each slot begins `stride` bytes, at least `message_bytes`, behind the one before.
  static MessagePlan side_by_side(uint64_t message_bytes, uint64_t request_bytes, uint64_t stride, uint64_t slots) {
    MessagePlan plan(message_bytes, request_bytes);
    plan.slots_ = std::max<uint64_t>(slots, 1);
    plan.slot_bytes_ = stride;
    plan.is_side_by_side_ = true;
    return plan;
  }

  /// The same with at least `slots` slots.
  MessagePlan with_slots(uint64_t slots) const {
    MessagePlan plan = *this;
    if (slots > slots_) plan.slots_ = slots % kContents == 0 ? slots + 1 : slots;
    return plan;
  }

  uint64_t message_bytes() const { return message_bytes_; }
  /// Of as many requests as can be in flight.
  uint64_t bytes_under_way() const { return std::min(message_bytes_, request_bytes_) * requests_in_flight_; }
  uint64_t requests_per_message() const { return requests_per_message_; }
  uint64_t slots() const { return slots_; }
  /// No bytes of a message are those of another one, nor of a round before.
  bool is_side_by_side() const { return is_side_by_side_; }
  uint64_t send_memory_bytes() const {
    return is_side_by_side_ ? receive_memory_bytes() : message_bytes_ + (kContents - 1) * kPageBytes;
  }
  uint64_t receive_memory_bytes() const { return slots_ * slot_bytes_; }

  /// Offset of the bytes of `message` in the sender's memory, and so in the stream of its pattern.
  uint64_t content_off(uint64_t message) const { return is_side_by_side_ ? slot_off(message) : message % kContents * kPageBytes; }
  uint64_t slot_off(uint64_t message) const { return message % slots_ * slot_bytes_; }

  Part part(uint64_t request) const {
    const uint64_t message = request / requests_per_message_;
    const uint64_t off = request % requests_per_message_ * request_bytes_;
    return {.send_off = content_off(message) + off,
            .receive_off = slot_off(message) + off,
            .bytes = static_cast<uint32_t>(std::min(request_bytes_, message_bytes_ - off))};
  }

 private:
  MessagePlan(uint64_t message_bytes, uint64_t request_bytes, uint64_t requests_in_flight)
      : message_bytes_(message_bytes),
        request_bytes_(request_bytes),
        requests_in_flight_(requests_in_flight),
        requests_per_message_((message_bytes + request_bytes - 1) / request_bytes),
        slots_((requests_in_flight + requests_per_message_ - 1) / requests_per_message_),
        slot_bytes_(slot_stride(message_bytes)) {}

  uint64_t message_bytes_;
  uint64_t request_bytes_;
  uint64_t requests_in_flight_;
  uint64_t requests_per_message_;
  uint64_t slots_;
  uint64_t slot_bytes_;  // from the begin of one slot to the next
  bool is_side_by_side_ = false;
};

}  // namespace tcpx
