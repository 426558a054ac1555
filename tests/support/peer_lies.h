// Sayings that no peer may say to an endpoint that is in the state its model tells, a little beside the truth. Each says one
// thing, or returns false where there is nothing to lie about.
#pragma once

#include "tests/support/peer_model.h"

namespace tcpx::testing::lies {

using Phase = PeerModel::Phase;
using Theirs = PeerModel::Theirs;

/// Says it of an operation of which `is` is true.
template <class Is>
bool say_of_any(PeerModel& peer, Is is, FrameType type, uint64_t value = 0, Packing packing = Packing::kWhole) {
  const Theirs* const theirs = peer.pick(is);
  if (theirs != nullptr) peer.say(type, theirs->number, value, 0, packing);
  return theirs != nullptr;
}
/// Read data and "ready" are for reads that were offered.
inline bool waits_for_no_data(const Theirs& t) {
  return !t.reads() || t.phase == Phase::kMoving;
}
inline bool moves_unanswered(const Theirs& t) {
  return t.phase == Phase::kMoving && !t.is(OperationKind::kWrite);
}

inline bool length_of_read(PeerModel& peer) {
  const Theirs* const theirs = peer.offered(OperationKind::kRead);
  if (theirs == nullptr) return false;
  const uint64_t around[] = {0, 1, theirs->bytes - 1, theirs->bytes + 1, theirs->bytes / 2, kMaxInlineBytes};
  const uint64_t bytes = around[peer.below(std::size(around))];
  if (bytes == theirs->bytes || bytes > kMaxInlineBytes) return false;
  peer.say_read_data(theirs->number, peer.random_bytes(bytes));
  return true;
}
inline bool read_data_for_another(PeerModel& peer) {
  const Theirs* const theirs = peer.pick(waits_for_no_data);
  if (theirs == nullptr || theirs->bytes > kMaxInlineBytes) return false;
  peer.say_read_data(theirs->number, peer.random_bytes(theirs->bytes));
  return true;
}
inline bool ready(PeerModel& peer) {
  return say_of_any(peer, waits_for_no_data, FrameType::kReady);
}
inline bool go(PeerModel& peer) {
  const auto offers_nothing = [](const Theirs& t) {
    return !t.begun && (t.is(OperationKind::kRecv) || t.reads() || t.phase != Phase::kOffered);
  };
  return say_of_any(peer, offers_nothing, FrameType::kGo, 0, Packing::kPacked);
}
inline bool go_of_nothing(PeerModel& peer) {
  const uint64_t value = peer.eager() ? 1 : peer.below(2);  // what was begun may have ended
  peer.say(FrameType::kGo, peer.coin() ? peer.end.others_operation : 0xdead0000, value, 0, Packing::kPacked);
  return true;
}
inline bool go_of_the_other_end(PeerModel& peer) {
  const Theirs* const theirs = peer.offered(peer.coin() ? OperationKind::kSend : OperationKind::kWrite);
  if (theirs == nullptr && peer.serving.empty()) return false;
  const uint64_t number = theirs != nullptr ? theirs->number : peer.serving.begin()->first;
  peer.say(FrameType::kGo, number, theirs != nullptr ? 1 : 0, 0, Packing::kPacked);
  return true;
}
inline bool vector_as_a_whole(PeerModel& peer) {
  const auto offers_vector = [](const Theirs& t) {
    return t.phase == Phase::kOffered && !t.reads() && !t.is(OperationKind::kRecv) && t.parts.size() > 1;
  };
  if (say_of_any(peer, offers_vector, FrameType::kGo)) return true;
  for (const auto& [number, parts] : peer.serving) {
    if (parts == 1) continue;
    peer.say(FrameType::kGo, number, 1);
    return true;
  }
  return false;
}
inline bool done(PeerModel& peer) {
  const auto waits_for_no_end = [](const Theirs& t) {
    return t.phase == Phase::kOffered || t.phase == Phase::kPosted || moves_unanswered(t);
  };
  return say_of_any(peer, waits_for_no_end, FrameType::kDone);
}
inline bool refused(PeerModel& peer) {
  const auto was_not_asked = [](const Theirs& t) { return t.phase == Phase::kPosted || moves_unanswered(t); };
  return say_of_any(peer, was_not_asked, FrameType::kDone, static_cast<uint64_t>(Code::kCancelled));
}
inline bool sequence_twice(PeerModel& peer) {
  if (peer.ours.empty()) return false;
  OperationPayload payload;
  peer.say(FrameType::kSend, ++peer.our_last, peer.ours.begin()->first, 100, Packing::kWhole, &payload);
  return true;
}
inline bool withdrawal(PeerModel& peer) {
  for (const auto& [sequence, send] : peer.ours) {
    if (send.cancelled) continue;
    const bool offered = peer.coin();
    peer.say(FrameType::kCancel, send.number + (offered && !send.with_data ? 1'000'000 : 0), sequence, offered ? 1 : 0);
    return true;
  }
  return false;
}
inline bool read_twice(PeerModel& peer) {
  if (peer.serving.empty()) return false;
  OperationPayload payload;
  (void)peer.good_ranges(PeersEnd::kInline + 5, payload.ranges);
  peer.say(FrameType::kRead, peer.serving.begin()->first, 0, PeersEnd::kInline + 5, Packing::kWhole, &payload);
  return true;
}
inline bool credit(PeerModel& peer) {
  constexpr uint64_t kNone = std::size(kWindowSizes);
  const uint64_t window = peer.below(kNone + 1);
  const uint64_t more = peer.coin() ? 1 : kWindowSizes[0];
  peer.say(FrameType::kCredit, window, 0, window == kNone ? 0 : peer.owed[window] + more);
  return true;
}
/// Ranges that are one byte less than it says.
inline bool sums(PeerModel& peer) {
  OperationPayload payload;
  (void)peer.good_ranges(100, payload.ranges);
  peer.say(peer.coin() ? FrameType::kRead : FrameType::kWrite, ++peer.our_last, 0, 101,
           payload.ranges.size() == 1 ? Packing::kWhole : Packing::kPacked, &payload);
  return true;
}
/// A send with data of another length.
inline bool data(PeerModel& peer) {
  const Bytes bytes = peer.random_bytes(100);
  OperationPayload payload;
  payload.data = bytes;
  peer.say(FrameType::kSendData, ++peer.our_last, peer.our_sends, peer.coin() ? 99 : 101, Packing::kWhole, &payload);
  return true;
}
/// An offer of nothing.
inline bool nothing_long(PeerModel& peer) {
  OperationPayload payload;
  const bool sends = peer.coin();
  if (!sends) payload.ranges = {{peer.end.slot, 0, 0}};
  peer.say(sends ? FrameType::kSend : FrameType::kWrite, ++peer.our_last, sends ? peer.our_sends : 0, 0, Packing::kWhole,
           &payload);
  return true;
}

// On a link that is not eager.
inline bool begin(PeerModel& peer) {
  constexpr uint64_t kLong = PeersEnd::kInline + 1;
  OperationPayload payload;
  const uint64_t number = ++peer.our_last;
  switch (peer.below(5)) {
    case 0:
      peer.say_begun(FrameType::kSend, number, peer.our_sends, kLong, Packing::kWhole, &payload);
      return true;
    case 1:
      (void)peer.good_ranges(kLong, payload.ranges);
      peer.say_begun(FrameType::kWrite, number, 0, kLong, Packing::kPacked, &payload);
      return true;
    case 2:
      peer.say_begun(FrameType::kReady, peer.end.others_operation, 0, kLong, Packing::kWhole);
      return true;
    case 3:
      peer.say(FrameType::kPosted, 0, peer.their_sends, kLong);
      return true;
    default:
      peer.say(FrameType::kBegin, number);
      return true;
  }
}

// On an eager link.
inline bool begin_of_nothing(PeerModel& peer) {
  const uint64_t numbers[] = {peer.end.others_operation, 0xdead0000, peer.our_last + 1, peer.gone};
  peer.say(FrameType::kBegin, numbers[peer.below(std::size(numbers))], peer.below(2));
  return true;
}
inline bool begin_of_the_other_end(PeerModel& peer) {
  if (peer.awaited.empty()) return false;
  peer.say(FrameType::kBegin, peer.awaited.front().number, peer.awaited.front().of_read ? 0 : 1);
  return true;
}
inline bool send_to_nobody(PeerModel& peer) {
  OperationPayload payload;
  peer.say_begun(FrameType::kSend, ++peer.our_last, peer.their_receives + peer.our_sends, PeersEnd::kInline + 1, Packing::kWhole,
                 &payload);
  return true;
}
inline bool send_otherwise_than_was_posted(PeerModel& peer) {
  const Theirs* const theirs = peer.pick([](const Theirs& t) { return t.is(OperationKind::kRecv) && t.phase == Phase::kPosted; });
  if (theirs == nullptr) return false;
  const bool other_bytes = theirs->told && peer.coin(), other_packing = theirs->told && !other_bytes;
  const uint64_t bytes = other_bytes ? theirs->bytes + 1 : theirs->bytes;
  const Packing other = theirs->packing() == Packing::kWhole ? Packing::kPacked : Packing::kWhole;
  OperationPayload payload;
  peer.say_begun(FrameType::kSend, ++peer.our_last, theirs->sequence, bytes, other_packing ? other : theirs->packing(), &payload);
  return true;
}
inline bool bytes_of_no_read(PeerModel& peer) {
  const Theirs* const theirs = peer.pick(waits_for_no_data);
  peer.say_begun(FrameType::kReady, theirs != nullptr ? theirs->number : peer.end.others_operation, 0, PeersEnd::kInline + 1,
                 Packing::kWhole);
  return true;
}
inline bool ranges_of_read(PeerModel& peer) {
  const Theirs* const theirs = peer.offered(OperationKind::kRead);
  if (theirs == nullptr) return false;
  peer.say_begun(FrameType::kReady, theirs->number, 0, theirs->bytes, Packing::kRanges);
  return true;
}
/// Nothing of it, or a send.
inline bool write_is_gone(PeerModel& peer) {
  uint64_t number = 0xdead0000;
  for (const auto& what : peer.awaited) {
    if (what.theirs != 0) number = what.number;
  }
  peer.say(FrameType::kCancel, number, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
  return true;
}
inline bool post_ranges(PeerModel& peer) {
  peer.say(FrameType::kPosted, 0, peer.their_sends, PeersEnd::kInline + 1, Packing::kRanges);
  return true;
}
inline bool begin_nothing(PeerModel& peer) {
  OperationPayload payload;
  const bool sends = peer.coin();
  if (!sends) payload.ranges = {{peer.end.slot, 0, 0}};
  peer.say_begun(sends ? FrameType::kSend : FrameType::kWrite, ++peer.our_last, sends ? peer.our_sends : 0, 0, Packing::kWhole,
                 &payload);
  return true;
}

inline constexpr bool (*kNotEager[])(PeerModel&) = {read_twice, begin};
inline constexpr bool (*kEager[])(PeerModel&) = {begin_of_nothing, begin_of_the_other_end, send_to_nobody,
                                                 send_otherwise_than_was_posted, bytes_of_no_read, ranges_of_read,
                                                 write_is_gone, post_ranges, begin_nothing};
/// On each link.
inline constexpr bool (*kAll[])(PeerModel&) = {length_of_read, read_data_for_another,
                                               ready,          go,
                                               go_of_nothing,  go_of_the_other_end,
                                               done,           vector_as_a_whole,
                                               refused,        sequence_twice,
                                               withdrawal,     credit,
                                               sums,           data,
                                               nothing_long};

}  // namespace tcpx::testing::lies
