// Sayings that a peer may say to an endpoint that is in the state its model tells, and what the endpoint may start meanwhile.
// Each says one thing, or returns false where there is nothing to say it of.
#pragma once

#include <utility>
#include <vector>

#include "tests/support/peer_model.h"

namespace tcpx::testing::truths {

using Phase = PeerModel::Phase;
using Theirs = PeerModel::Theirs;

// Operations that the endpoint starts, and the frames it must send for them.
template <OperationKind kind>
bool they_start(PeerModel& peer) {
  uint64_t bytes = peer.size();
  const bool sends = kind == OperationKind::kSend, receives = kind == OperationKind::kRecv;
  const bool fills = receives || kind == OperationKind::kRead;  // memory of its own
  const auto fills_some = [](const Theirs& t) { return t.is(OperationKind::kRecv) || t.reads(); };
  if (peer.pick(fills_some) == nullptr) peer.targets = 0;
  if (peer.open.size() >= 12 || (fills && peer.targets + bytes > PeersEnd::kPrivate - PeersEnd::kTargets)) return false;
  if (!fills && PeerModel::is_full(peer.owed, sends ? 0 : 1)) return false;
  if (const auto posted = peer.posted.find(peer.their_sends); sends && posted != peer.posted.end() && peer.coin())
    bytes = posted->second.bytes;
  const size_t at =
      fills ? PeersEnd::kTargets + std::exchange(peer.targets, peer.targets + bytes + 16) : PeersEnd::kSources + peer.below(100);
  Theirs theirs{.kind = kind,
                .number = 0,
                .sequence = sends      ? peer.their_sends++
                            : receives ? peer.their_receives++
                                       : 0,
                .bytes = bytes,
                .parts = peer.parts(at, bytes),
                .phase = receives ? Phase::kPosted : Phase::kOffered};
  theirs.number = peer.end.start(kind, theirs.parts);
  peer.note("they ", name_of(kind), " ", bytes, " bytes in ", theirs.parts.size(), " as ", theirs.number);
  const bool with_data = !fills && bytes <= PeersEnd::kInline;
  theirs.begun = !fills && !with_data && peer.may_begin(theirs);
  if (kind == OperationKind::kRead) peer.want(FrameType::kRead, theirs.number);
  if (kind == OperationKind::kWrite)
    peer.want(with_data ? FrameType::kWriteData : FrameType::kWrite, theirs.number, 0, theirs.begun);
  if (sends) peer.want(with_data ? FrameType::kSendData : FrameType::kSend, theirs.number, theirs.sequence, theirs.begun);
  if (with_data || theirs.begun) theirs.phase = Phase::kAnswer;
  if (theirs.begun) peer.want_bytes(theirs.parts);
  theirs.told = peer.eager() && receives && bytes > peer.end.peer_inline && !peer.ours.contains(theirs.sequence);
  if (theirs.told) peer.want(FrameType::kPosted, 0, theirs.sequence);
  peer.open.push_back(theirs);
  if (sends && theirs.phase == Phase::kAnswer) peer.ends(theirs, Code::kOk);
  if (receives) peer.meet(theirs.sequence);
  return true;
}
inline bool they_give_up(PeerModel& peer) {
  Theirs* const theirs = peer.pick([&](const Theirs& t) {
    if (t.is(OperationKind::kWrite)) return peer.eager() && t.phase == Phase::kAnswer;
    return !t.given_up && (t.phase == Phase::kPosted || t.phase == Phase::kOffered);
  });
  if (theirs == nullptr) return false;
  peer.note("they give up ", theirs->number);
  peer.end.cancel(theirs->number);
  if (theirs->is(OperationKind::kSend)) {
    peer.want(FrameType::kCancel, theirs->number, theirs->sequence);
    theirs->given_up = true;  // until the answer
    return true;
  }
  if (theirs->told) peer.want(FrameType::kPosted, 0, theirs->sequence);
  if (theirs->is(OperationKind::kRecv)) peer.given_up.push_back(theirs->sequence);
  if (theirs->reads() && peer.eager()) peer.given_up_reads.push_back(*theirs);
  peer.ends(*theirs, Code::kCancelled);
  return true;
}

// Operations of this peer.
/// On an eager link receives should come before their sends, which may begin then.
inline bool has_many_sends(const PeerModel& peer) {
  return peer.ours.size() > (peer.eager() ? 2 : 8);
}
/// With its data, or offered.
inline bool send(PeerModel& peer) {
  const bool with_data = peer.coin();
  if (has_many_sends(peer) || (with_data && PeerModel::is_full(peer.taken, 0))) return false;
  const uint64_t sequence = peer.our_sends++, bytes = with_data ? peer.short_size() : 1 + peer.size();
  const Bytes data = with_data ? peer.random_bytes(bytes) : Bytes();
  OperationPayload payload;
  payload.data = data;
  peer.say(with_data ? FrameType::kSendData : FrameType::kSend, ++peer.our_last, sequence, bytes, Packing::kWhole, &payload);
  peer.arrive(sequence, {peer.our_last, bytes, with_data, false, data});
  return true;
}
inline bool cancel_what_was_not_offered(PeerModel& peer) {
  if (has_many_sends(peer)) return false;
  const uint64_t sequence = peer.our_sends++;
  peer.say(FrameType::kCancel, ++peer.our_last, sequence, 0);
  peer.arrive(sequence, {peer.our_last, 0, true, true, {}});
  return true;
}
inline bool withdraw_send(PeerModel& peer) {
  for (auto& [sequence, send] : peer.ours) {
    if (send.with_data || send.cancelled) continue;
    peer.say(FrameType::kCancel, send.number, sequence, 1);
    peer.want_done(send.number, Code::kCancelled);
    send.cancelled = true;
    return true;
  }
  return false;
}
inline bool write_data(PeerModel& peer) {
  const uint64_t bytes = peer.short_size();
  if (PeerModel::is_full(peer.taken, 1)) return false;
  const Bytes data = peer.random_bytes(bytes);
  OperationPayload payload;
  payload.data = data;
  const auto places = peer.good_ranges(bytes, payload.ranges);
  peer.say(FrameType::kWriteData, ++peer.our_last, 0, bytes, Packing::kWhole, &payload);
  peer.put(places, data);
  peer.want_done(peer.our_last, Code::kOk);
  return true;
}
inline bool read(PeerModel& peer) {
  const bool is_long = peer.coin();
  if (is_long && peer.serving.size() >= 4) return false;
  const uint64_t bytes = is_long ? PeersEnd::kInline + 1 + peer.below(10'000) : peer.short_size();
  OperationPayload payload;
  const auto places = peer.good_ranges(bytes, payload.ranges);
  peer.say(FrameType::kRead, ++peer.our_last, 0, bytes, Packing::kWhole, &payload);
  peer.want(is_long ? FrameType::kReady : FrameType::kReadData, peer.our_last, 0, is_long && peer.eager());
  if (is_long && peer.eager()) {
    peer.want_bytes(places);
  } else if (is_long) {
    peer.serving[peer.our_last] = places.size();
  } else {
    peer.wanted_data[peer.our_last] = peer.bytes_at(places);
  }
  return true;
}
inline bool withdraw_read(PeerModel& peer) {
  if (peer.serving.empty()) return false;
  peer.say(FrameType::kCancel, peer.serving.begin()->first);
  peer.serving.erase(peer.serving.begin());
  return true;
}
/// A write or a read of what it may not touch.
template <FrameType type>
bool ask_elsewhere(PeerModel& peer) {
  const bool with_data = type == FrameType::kWriteData;
  if (with_data && PeerModel::is_full(peer.taken, 1)) return false;
  const uint64_t bytes = 1 + (with_data ? peer.short_size() : peer.size());
  const Bytes data = with_data ? peer.random_bytes(bytes) : Bytes();
  OperationPayload payload;
  payload.data = data;
  const Code refused = peer.bad_range(bytes, payload.ranges);
  peer.say(type, ++peer.our_last, 0, bytes, Packing::kWhole, &payload);
  peer.want_done(peer.our_last, refused);
  return true;
}
inline bool notify(PeerModel& peer) {
  if (PeerModel::is_full(peer.taken, 1)) return false;
  peer.taken[1] += use_of(FrameType::kNotify, 8, {}, PeersEnd::kInline).bytes;
  peer.say_raw(make_header(FrameType::kNotify), payload_of(NotifyFrame{.notify = {"name", "text"}}));
  ++peer.notifications;
  return true;
}

// Answers to the endpoint.
inline bool answer_read(PeerModel& peer) {
  Theirs* const theirs = peer.offered(OperationKind::kRead);
  if (theirs == nullptr || theirs->bytes > kMaxInlineBytes) return false;
  const Bytes data = peer.random_bytes(theirs->bytes);
  peer.say_read_data(theirs->number, data);
  peer.put(theirs->parts, data);
  peer.ends(*theirs, Code::kOk);
  return true;
}
inline bool refuse(PeerModel& peer) {
  Theirs* const theirs = peer.pick([](const Theirs& t) { return t.phase == Phase::kOffered || t.phase == Phase::kAnswer; });
  if (theirs == nullptr) return false;
  const Code code = peer.coin() ? Code::kNotFound : Code::kMismatch;
  peer.say_done(theirs->number, code);
  peer.ends(*theirs, theirs->given_up ? Code::kCancelled : code);
  return true;
}
inline bool confirm_write(PeerModel& peer) {
  Theirs* const theirs = peer.pick([](const Theirs& t) { return t.phase == Phase::kAnswer; });
  if (theirs == nullptr) return false;
  peer.say_done(theirs->number, Code::kOk);
  peer.ends(*theirs, Code::kOk);
  return true;
}
inline bool let_go(PeerModel& peer) {
  Theirs* const theirs = peer.pick(
      [](const Theirs& t) { return t.phase == Phase::kOffered && (t.is(OperationKind::kSend) || t.is(OperationKind::kWrite)); });
  if (theirs == nullptr) return false;
  peer.say(FrameType::kGo, theirs->number, 0, 0, theirs->packing());
  if (peer.eager()) {
    peer.want(FrameType::kBegin, theirs->number);
    peer.want_bytes(theirs->parts);
    theirs->phase = Phase::kAnswer;
    if (theirs->is(OperationKind::kSend)) peer.ends(*theirs, theirs->given_up ? Code::kCancelled : Code::kOk);
    return true;
  }
  theirs->phase = Phase::kMoving;
  if (theirs->is(OperationKind::kSend)) {  // it ends when the plugin has taken its bytes
    peer.let_go.push_back(*theirs);
    std::erase_if(peer.open, [number = theirs->number](const Theirs& t) { return t.number == number; });
  }
  return true;
}
inline bool be_ready(PeerModel& peer) {
  Theirs* const theirs = peer.offered(OperationKind::kRead);
  if (theirs == nullptr) return false;
  peer.say(FrameType::kReady, theirs->number);
  peer.want(FrameType::kGo, theirs->number, 1);
  theirs->phase = Phase::kMoving;
  if (peer.eager()) peer.awaited.push_back({theirs->number, true, theirs->number, theirs->parts, theirs->bytes});
  return true;
}
inline bool give_credit(PeerModel& peer) {
  const uint64_t window = peer.below(std::size(kWindowSizes));
  if (peer.owed[window] == 0) return false;
  const uint64_t bytes = 1 + peer.below(peer.owed[window]);
  peer.say(FrameType::kCredit, window, 0, bytes);
  peer.owed[window] -= bytes;
  return true;
}
/// Of what has ended, or never was, or belongs to another connection: a peer may not know yet.
inline bool speak_of_nothing(PeerModel& peer) {
  const uint64_t numbers[] = {peer.end.others_operation, 0xdead'0000 + peer.below(1000), peer.gone};
  const uint64_t number = numbers[peer.below(std::size(numbers))];
  const auto forget_read = [&] { std::erase_if(peer.given_up_reads, [=](const Theirs& t) { return t.number == number; }); };
  switch (peer.below(peer.eager() ? 5 : 4)) {
    case 4:  // which it would have had to begin once more
      peer.say(FrameType::kGo, number, 0, 0, Packing::kPacked);
      peer.want(FrameType::kCancel, number);
      break;
    case 0:
      forget_read();
      peer.say_done(number, peer.coin() ? Code::kOk : Code::kTimeout);
      break;
    case 1:
      forget_read();
      peer.say_read_data(number, peer.random_bytes(8));
      break;
    case 2:
      forget_read();
      peer.say(FrameType::kReady, number);
      peer.want(FrameType::kCancel, number);
      break;
    default:
      peer.say(FrameType::kCancel, number, 1'000'000 + peer.our_sends, 1);
  }
  return true;
}

// On an eager link.
/// A write to what was advertised, or to what this peer may not touch; begun, or offered.
inline bool write_long(PeerModel& peer) {
  const bool begun = peer.coin(), good = peer.coin();
  if (good && !begun && peer.awaited.size() > 4) return false;
  const uint64_t bytes = PeersEnd::kInline + 1 + peer.below(10'000);
  OperationPayload payload;
  std::vector<PeerModel::Part> places;
  Code answer = Code::kOk;
  if (good) {
    places = peer.good_ranges(bytes, payload.ranges);
  } else {
    answer = peer.bad_range(bytes, payload.ranges);
  }
  const Packing packing = payload.ranges.size() == 1 && peer.coin() ? Packing::kWhole : Packing::kPacked;
  peer.say(FrameType::kWrite, ++peer.our_last, 0, bytes, packing, &payload, begun);
  if (begun || !good) peer.want_done(peer.our_last, answer);
  if (begun) peer.put(places, peer.move(bytes));
  if (begun || !good) return true;
  peer.want(FrameType::kGo, peer.our_last);
  peer.awaited.push_back({peer.our_last, false, 0, places, bytes});
  return true;
}
/// To a receive that is posted, or was given up.
inline bool begin_send(PeerModel& peer) {
  const uint64_t sequence = peer.our_sends;
  const Theirs* const theirs =
      peer.pick([&](const Theirs& t) { return t.told && t.phase == Phase::kPosted && t.sequence == sequence; });
  if (theirs == nullptr && std::erase(peer.given_up, sequence) == 0) return false;
  const uint64_t bytes = theirs != nullptr ? theirs->bytes : PeersEnd::kInline + 1 + peer.below(4000);
  OperationPayload payload;
  peer.say_begun(FrameType::kSend, ++peer.our_last, sequence, bytes, theirs != nullptr ? theirs->packing() : Packing::kWhole,
                 &payload);
  ++peer.our_sends;
  const Bytes data = peer.move(bytes);
  if (theirs == nullptr) {
    peer.want_done(peer.our_last, Code::kCancelled);
    return true;
  }
  peer.put(theirs->parts, data);
  peer.ends(*theirs, Code::kOk);
  return true;
}
inline bool begin_what_waits(PeerModel& peer) {
  if (peer.awaited.empty()) return false;
  const auto at = peer.awaited.begin() + static_cast<ptrdiff_t>(peer.below(peer.awaited.size()));
  const PeerModel::Awaited what = *at;
  peer.awaited.erase(at);
  peer.say(FrameType::kBegin, what.number, what.of_read ? 1 : 0);
  peer.put(what.places, peer.move(what.bytes));
  if (what.theirs == 0) {
    peer.want_done(what.number, Code::kOk);
  } else {
    peer.ends(*peer.pick([&](const Theirs& t) { return t.number == what.theirs; }), Code::kOk);
  }
  return true;
}
inline bool let_write_go(PeerModel& peer) {
  for (auto what = peer.awaited.begin(); what != peer.awaited.end(); ++what) {
    if (what->theirs != 0) continue;
    peer.say(FrameType::kCancel, what->number, 0, static_cast<uint64_t>(CancelFrame::What::kGone));
    peer.want_done(what->number, Code::kCancelled);
    peer.awaited.erase(what);
    return true;
  }
  return false;
}
inline bool begin_read(PeerModel& peer) {
  Theirs* const theirs = peer.offered(OperationKind::kRead);
  if (theirs == nullptr) return false;
  peer.say_begun(FrameType::kReady, theirs->number, 0, theirs->bytes, peer.coin() ? theirs->packing() : Packing::kPacked);
  peer.put(theirs->parts, peer.move(theirs->bytes));
  peer.ends(*theirs, Code::kOk);
  return true;
}
inline bool begin_read_that_was_given_up(PeerModel& peer) {
  if (peer.given_up_reads.empty()) return false;
  const Theirs theirs = peer.given_up_reads.back();
  peer.given_up_reads.pop_back();
  peer.say_begun(FrameType::kReady, theirs.number, 0, theirs.bytes, theirs.packing());
  (void)peer.move(theirs.bytes);
  return true;
}
inline bool want_write_once_more(PeerModel& peer) {
  Theirs* const theirs = peer.pick([](const Theirs& t) { return t.begun && t.phase == Phase::kAnswer; });
  if (theirs == nullptr || peer.below(3) != 0) return false;  // for no write begins any more
  peer.say(FrameType::kGo, theirs->number, 0, 0, theirs->packing());
  peer.want(FrameType::kBegin, theirs->number);
  peer.want_bytes(theirs->parts);
  theirs->begun = peer.begins_writes = false;
  return true;
}
/// Of a send to come; or takes that back.
inline bool post(PeerModel& peer) {
  const uint64_t sequence = peer.their_sends + peer.below(3);
  if (peer.below(4) == 0) {
    peer.posted.erase(sequence);
    peer.say(FrameType::kPosted, 0, sequence);
    return true;
  }
  const PeerModel::Posted receive{PeersEnd::kInline + 1 + peer.below(4000), peer.coin() ? Packing::kWhole : Packing::kPacked};
  peer.posted[sequence] = receive;
  peer.say(FrameType::kPosted, 0, sequence, receive.bytes, receive.packing);
  return true;
}

inline constexpr bool (*kEager[])(PeerModel&) = {write_long, write_long, begin_send, begin_send, begin_send, begin_what_waits,
                                                 let_write_go, begin_read, post, post, begin_read_that_was_given_up,
                                                 want_write_once_more, they_start<OperationKind::kRecv>,
                                                 they_start<OperationKind::kRecv>};
/// On each link.
inline constexpr bool (*kAll[])(PeerModel&) = {they_start<OperationKind::kSend>,
                                               they_start<OperationKind::kWrite>,
                                               they_start<OperationKind::kRead>,
                                               they_start<OperationKind::kRecv>,
                                               they_start<OperationKind::kRecv>,
                                               they_give_up,
                                               send,
                                               send,
                                               cancel_what_was_not_offered,
                                               withdraw_send,
                                               write_data,
                                               read,
                                               read,
                                               withdraw_read,
                                               ask_elsewhere<FrameType::kWriteData>,
                                               ask_elsewhere<FrameType::kWrite>,
                                               ask_elsewhere<FrameType::kRead>,
                                               notify,
                                               answer_read,
                                               refuse,
                                               confirm_write,
                                               let_go,
                                               be_ready,
                                               give_credit,
                                               speak_of_nothing};

}  // namespace tcpx::testing::truths
