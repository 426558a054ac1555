// A peer that knows: which operations are open at the endpoint it talks to, their lengths and how far they have come, what it has
// offered and asked for itself, and what every byte of the memory there must be. It says what a peer may say, compares all that
// becomes of it, and lies in the end about one of the things it knows.
//
// The way to the endpoint, and starting operations there, are the test's (Side); after each saying everything has settled,
// so there is one right answer to all of it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "endpoint/credit_windows.h"
#include "endpoint/operation.h"
#include "tests/support/stream_pair.h"
#include "tests/support/window_model.h"

namespace tcpx::testing {

class KnowingPeer {
 public:
  static constexpr size_t kArea = 64 * 1024;
  static constexpr size_t kSources = 0, kAdvertised = kArea, kTargets = 2 * kArea, kPrivate = 10 * kArea, kMemory = 11 * kArea;
  static constexpr uint64_t kInline = 8192;  ///< longest inline message of the endpoint
  static constexpr size_t kLittle = 600;     ///< bytes of the second slot, at the begin of the advertised area

  struct Part {
    size_t offset, bytes;  ///< of the memory
  };
  /// The end that must not believe it.
  struct Side {
    std::function<uint64_t(OperationKind, const std::vector<Part>&)> start;  ///< remote: `kThere`, from offset 0 on
    std::function<OperationAnswer(uint64_t)> poll;
    std::function<void(uint64_t)> cancel;
    std::function<size_t()> take_notifications;
    std::function<void(const ControlHeader&, std::span<const std::byte>)> say;
    std::function<std::vector<Recorder::Frame>()> settle;  ///< all that was said has been looked at; what came since
    std::function<bool()> alive;
    std::span<std::byte> memory;          ///< kMemory
    uint64_t slot = 0, little = 0;        ///< of the advertised area, for this peer
    uint64_t foreign = 0, withdrawn = 0;  ///< of another connection; of memory that is not registered any more
    uint64_t peer_inline = 0;             ///< as the peer has said of itself
    uint64_t others_operation = 0;        ///< a receive that is open on another connection
  };
  static constexpr uint64_t kThere = 0x7e7e7e7e;  ///< slot of this peer, as the endpoint knows it

  KnowingPeer(Side side, uint64_t seed)
      : side_(std::move(side)), random_(seed), image_(side_.memory.begin(), side_.memory.end()) {}

  /// Lies that it knows.
  static size_t lies() { return std::size(kLies); }
  /// @param truths that it says before, and more until there is something to lie about. @param lie 0 ... lies() - 1
  void talk(int truths, size_t lie) {
    const auto tell = kLies[lie];
    for (; truths > 0 && !::testing::Test::HasFailure(); --truths) say_something();
    for (int more = 1000; more > 0 && !::testing::Test::HasFailure() && !(this->*tell)(); --more) {
      ASSERT_GT(more, 1) << "there is never anything to lie about";
      say_something();
    }
    if (::testing::Test::HasFailure()) return;
    (void)side_.settle();
    EXPECT_TRUE(wait_until([&] { return !side_.alive(); }, std::chrono::seconds(5))) << "believed; " << said();
  }
  /// When the connection is over: every operation has ended once, badly, and no byte has changed that should not have.
  void expect_over() {
    for (const Theirs& theirs : let_go_) {
      EXPECT_TRUE(wait_until([&] {
        (void)side_.settle();
        return side_.poll(theirs.number).state != OperationState::kPending;
      })) << theirs.number
          << " did not end; " << said();
    }
    for (const Theirs& theirs : open_) {
      OperationAnswer answer;
      const bool ended = wait_until([&] {
        (void)side_.settle();
        answer = side_.poll(theirs.number);
        return answer.state != OperationState::kPending;
      });
      EXPECT_TRUE(ended) << theirs.number << " did not end; " << said();
      EXPECT_EQ(answer.state, OperationState::kFailed) << theirs.number << ": " << said();
      EXPECT_TRUE(answer.status.code() == Code::kProtocol || (theirs.given_up && answer.status.code() == Code::kCancelled))
          << answer.status.to_string() << "; " << said();
      EXPECT_EQ(side_.poll(theirs.number).state, OperationState::kUnknown);
    }
    expect_memory();
  }
  std::string said() const {
    std::string text = "said:";
    for (const std::string& what : history_) text += "\n  " + what;
    return text;
  }

 private:
  enum class Phase { kPosted, kOffered, kMoving, kAnswer };
  /// An operation of the endpoint that has not ended.
  struct Theirs {
    OperationKind kind;
    uint64_t number, sequence, bytes;
    std::vector<Part> parts;
    Phase phase;
    bool given_up = false;
  };
  /// A send of this peer that no receive has met.
  struct Ours {
    uint64_t number, bytes;
    bool with_data, cancelled;
    Bytes data;
  };
  struct Wanted {
    ControlType type;
    uint64_t operation, value;
  };
  using Saying = bool (KnowingPeer::*)();
  using Windows = std::array<uint64_t, std::size(kWindowSizes)>;

  // Operations that the endpoint starts, and the frames it must send for them.
  bool they_send() { return they_start(OperationKind::kSend); }
  bool they_write() { return they_start(OperationKind::kWrite); }
  bool they_read() { return they_start(OperationKind::kRead); }
  bool they_start(OperationKind kind) {
    const uint64_t bytes = size();
    const bool reads = kind == OperationKind::kRead;
    if (open_.size() >= 12 || bytes == 0 || (reads && targets_ + bytes > kPrivate - kTargets)) return false;
    if (!reads && is_full(owed_, kind == OperationKind::kSend ? 0 : 1)) return false;
    Theirs theirs{.kind = kind,
                  .number = 0,
                  .sequence = kind == OperationKind::kSend ? their_sends_++ : 0,
                  .bytes = bytes,
                  .parts = parts(reads ? take_target(bytes) : kSources + random_() % 100, bytes),
                  .phase = Phase::kOffered};
    theirs.number = side_.start(kind, theirs.parts);
    note(concat("they ", name_of(kind), " ", bytes, " bytes in ", theirs.parts.size(), " as ", theirs.number));
    if (reads) {
      wanted_.push_back({ControlType::kRead, theirs.number, 0});
    } else if (bytes > kInline) {
      const bool sends = kind == OperationKind::kSend;
      wanted_.push_back({sends ? ControlType::kSend : ControlType::kWrite, theirs.number, theirs.sequence});
    } else if (kind == OperationKind::kWrite) {
      wanted_.push_back({ControlType::kWriteData, theirs.number, 0});
      theirs.phase = Phase::kAnswer;
    } else {
      wanted_.push_back({ControlType::kSendData, theirs.number, theirs.sequence});
      ended_.push_back({theirs.number, Code::kOk});
      return true;
    }
    open_.push_back(std::move(theirs));
    return true;
  }
  bool they_receive() {
    const uint64_t bytes = size();
    if (open_.size() >= 12 || bytes == 0 || targets_ + bytes > kPrivate - kTargets) return false;
    Theirs theirs{.kind = OperationKind::kRecv,
                  .number = 0,
                  .sequence = their_receives_++,
                  .bytes = bytes,
                  .parts = parts(take_target(bytes), bytes),
                  .phase = Phase::kPosted};
    theirs.number = side_.start(theirs.kind, theirs.parts);
    note(concat("they receive ", bytes, " bytes in ", theirs.parts.size(), " as ", theirs.number, ", the ", theirs.sequence));
    open_.push_back(std::move(theirs));
    meet(open_.back().sequence);
    return true;
  }
  bool they_give_up() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return !t.given_up && (t.phase == Phase::kPosted || (t.phase == Phase::kOffered && t.kind != OperationKind::kWrite));
    });
    if (theirs == nullptr) return false;
    note(concat("they give up ", theirs->number));
    side_.cancel(theirs->number);
    if (theirs->kind == OperationKind::kSend) {
      wanted_.push_back({ControlType::kCancel, theirs->number, theirs->sequence});
      theirs->given_up = true;  // until the answer
      return true;
    }
    if (theirs->kind == OperationKind::kRecv) given_up_.push_back(theirs->sequence);
    end(*theirs, Code::kCancelled);
    return true;
  }

  // Frames that this peer may send.
  bool send_data() {
    const uint64_t bytes = short_size();
    if (is_full(taken_, 0) || ours_.size() > 8) return false;
    const Bytes data = random_bytes(bytes);
    const uint64_t sequence = our_sends_++;
    note(concat("send ", sequence, " with ", bytes, " bytes"));
    OperationPayload payload;
    payload.data = data;
    say(ControlType::kSendData, ++number_, sequence, bytes, Packing::kWhole, &payload);
    arrive(sequence, {number_, bytes, true, false, data});
    return true;
  }
  bool send_offer() {
    if (ours_.size() > 8) return false;
    const uint64_t sequence = our_sends_++, bytes = 1 + size();
    note(concat("offer send ", sequence, " of ", bytes, " bytes as ", number_ + 1));
    OperationPayload payload;
    say(ControlType::kSend, ++number_, sequence, bytes, Packing::kWhole, &payload);
    arrive(sequence, {number_, bytes, false, false, {}});
    return true;
  }
  bool cancel_what_was_not_offered() {
    const uint64_t sequence = our_sends_++;
    note(concat("send ", sequence, " will not come"));
    say(ControlType::kCancel, ++number_, sequence, 0);
    arrive(sequence, {number_, 0, true, true, {}});
    return true;
  }
  bool withdraw_send() {
    for (auto& [sequence, ours] : ours_) {
      if (ours.with_data || ours.cancelled) continue;
      note(concat("withdraw send ", sequence));
      say(ControlType::kCancel, ours.number, sequence, 1);
      wanted_.push_back({ControlType::kDone, ours.number, static_cast<uint64_t>(Code::kCancelled)});
      ours.cancelled = true;
      return true;
    }
    return false;
  }
  bool write_data() {
    const uint64_t bytes = short_size();
    if (is_full(taken_, 1)) return false;
    const Bytes data = random_bytes(bytes);
    OperationPayload payload;
    payload.data = data;
    const auto places = good_ranges(bytes, payload.ranges);
    note(concat("write ", bytes, " bytes in ", payload.ranges.size()));
    say(ControlType::kWriteData, ++number_, 0, bytes, Packing::kWhole, &payload);
    size_t done = 0;
    for (const Part& place : places) {
      std::copy_n(data.begin() + static_cast<ptrdiff_t>(done), place.bytes,
                  image_.begin() + static_cast<ptrdiff_t>(place.offset));
      done += place.bytes;
    }
    wanted_.push_back({ControlType::kDone, number_, 0});
    return true;
  }
  bool write_data_elsewhere() {
    const uint64_t bytes = 1 + short_size();
    if (is_full(taken_, 1)) return false;
    const Bytes data = random_bytes(bytes);
    OperationPayload payload;
    payload.data = data;
    const Code refused = bad_range(bytes, payload.ranges);
    note(concat("write ", bytes, " bytes where it may not"));
    say(ControlType::kWriteData, ++number_, 0, bytes, Packing::kWhole, &payload);
    wanted_.push_back({ControlType::kDone, number_, static_cast<uint64_t>(refused)});
    return true;
  }
  bool offer_write_elsewhere() {
    OperationPayload payload;
    const uint64_t bytes = 1 + size();
    const Code refused = bad_range(bytes, payload.ranges);
    note(concat("offer a write of ", bytes, " bytes where it may not"));
    say(ControlType::kWrite, ++number_, 0, bytes, Packing::kWhole, &payload);
    wanted_.push_back({ControlType::kDone, number_, static_cast<uint64_t>(refused)});
    return true;
  }
  bool read_short() {
    const uint64_t bytes = short_size();
    OperationPayload payload;
    const auto places = good_ranges(bytes, payload.ranges);
    note(concat("read ", bytes, " bytes in ", payload.ranges.size()));
    say(ControlType::kRead, ++number_, 0, bytes, Packing::kWhole, &payload);
    Bytes data;
    for (const Part& place : places) {
      const auto begin = image_.begin() + static_cast<ptrdiff_t>(place.offset);
      data.insert(data.end(), begin, begin + static_cast<ptrdiff_t>(place.bytes));
    }
    wanted_.push_back({ControlType::kReadData, number_, 0});
    wanted_data_[number_] = std::move(data);
    return true;
  }
  bool read_elsewhere() {
    OperationPayload payload;
    const uint64_t bytes = 1 + size();
    const Code refused = bad_range(bytes, payload.ranges);
    note(concat("read ", bytes, " bytes where it may not"));
    say(ControlType::kRead, ++number_, 0, bytes, Packing::kWhole, &payload);
    wanted_.push_back({ControlType::kDone, number_, static_cast<uint64_t>(refused)});
    return true;
  }
  bool read_long() {
    if (serving_.size() >= 4) return false;
    OperationPayload payload;
    const uint64_t bytes = kInline + 1 + random_() % 10'000;
    const auto places = good_ranges(bytes, payload.ranges);
    note(concat("read ", bytes, " bytes in ", places.size(), " as ", number_ + 1));
    say(ControlType::kRead, ++number_, 0, bytes, Packing::kWhole, &payload);
    wanted_.push_back({ControlType::kReady, number_, 0});
    serving_[number_] = places.size();
    return true;
  }
  bool withdraw_read() {
    if (serving_.empty()) return false;
    note(concat("withdraw read ", serving_.begin()->first));
    say(ControlType::kCancel, serving_.begin()->first);
    serving_.erase(serving_.begin());
    return true;
  }
  bool answer_read() {
    Theirs* const theirs = offered(OperationKind::kRead);
    if (theirs == nullptr || theirs->bytes > kMaxInlineBytes) return false;
    const Bytes data = random_bytes(theirs->bytes);
    note(concat("answer read ", theirs->number));
    side_.say(make_header(ControlType::kReadData, theirs->number, 0, data.size()), data);
    put(*theirs, data);
    end(*theirs, Code::kOk);
    return true;
  }
  bool refuse() {
    Theirs* const theirs = pick([](const Theirs& t) { return t.phase == Phase::kOffered || t.phase == Phase::kAnswer; });
    if (theirs == nullptr) return false;
    const Code code = random_() % 2 == 0 ? Code::kNotFound : Code::kMismatch;
    note(concat("refuse ", theirs->number));
    say_done(theirs->number, code);
    end(*theirs, theirs->given_up ? Code::kCancelled : code);
    return true;
  }
  bool confirm_write() {
    Theirs* const theirs = pick([](const Theirs& t) { return t.phase == Phase::kAnswer; });
    if (theirs == nullptr) return false;
    note(concat("confirm write ", theirs->number));
    say_done(theirs->number, Code::kOk);
    end(*theirs, Code::kOk);
    return true;
  }
  bool give_credit() {
    const uint64_t window = random_() % std::size(kWindowSizes);
    if (owed_[window] == 0) return false;
    const uint64_t bytes = 1 + random_() % owed_[window];
    note(concat("credit of ", bytes, " for ", window));
    say(ControlType::kCredit, window, 0, bytes);
    owed_[window] -= bytes;
    return true;
  }
  bool notify() {
    if (is_full(taken_, 1)) return false;
    note("notify");
    taken_[1] += use_of(ControlType::kNotify, 8, {}, kInline).bytes;
    side_.say(make_header(ControlType::kNotify), payload_of(NotifyFrame{.notify = {"name", "text"}}));
    ++notifications_;
    return true;
  }
  /// Of what has ended, or never was, or belongs to another connection: a peer may not know yet.
  bool speak_of_nothing() {
    const uint64_t numbers[] = {side_.others_operation, 0xdead'0000 + random_() % 1000, gone_};
    const uint64_t number = numbers[random_() % std::size(numbers)];
    note(concat("speak of ", number, ", which is none here"));
    switch (random_() % 4) {
      case 0:
        say_done(number, random_() % 2 == 0 ? Code::kOk : Code::kTimeout);
        break;
      case 1:
        side_.say(make_header(ControlType::kReadData, number, 0, 8), random_bytes(8));
        break;
      case 2:
        say(ControlType::kReady, number);
        wanted_.push_back({ControlType::kCancel, number, 0});
        break;
      default:
        say(ControlType::kCancel, number, 1'000'000 + our_sends_, 1);
    }
    return true;
  }
  bool let_go() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return t.phase == Phase::kOffered && (t.kind == OperationKind::kSend || t.kind == OperationKind::kWrite);
    });
    if (theirs == nullptr) return false;
    note(concat("let ", theirs->number, " go"));
    say(ControlType::kGo, theirs->number, 0, 0, theirs->parts.size() == 1 ? Packing::kWhole : Packing::kPacked);
    theirs->phase = Phase::kMoving;
    if (theirs->kind == OperationKind::kSend) {  // it ends when the plugin has taken its bytes
      let_go_.push_back(*theirs);
      std::erase_if(open_, [number = let_go_.back().number](const Theirs& t) { return t.number == number; });
    }
    return true;
  }
  bool be_ready() {
    Theirs* const theirs = offered(OperationKind::kRead);
    if (theirs == nullptr) return false;
    note(concat("be ready for ", theirs->number));
    say(ControlType::kReady, theirs->number);
    wanted_.push_back({ControlType::kGo, theirs->number, 1});
    theirs->phase = Phase::kMoving;
    return true;
  }

  // Frames that no peer may send.
  bool lie_length_of_read() {
    Theirs* const theirs = offered(OperationKind::kRead);
    if (theirs == nullptr) return false;
    const uint64_t around[] = {0, 1, theirs->bytes - 1, theirs->bytes + 1, theirs->bytes / 2, kMaxInlineBytes};
    const uint64_t bytes = around[random_() % std::size(around)];
    if (bytes == theirs->bytes || bytes > kMaxInlineBytes) return false;
    return lie(concat("lie: answer read ", theirs->number, " of ", theirs->bytes, " with ", bytes),
               [&] { side_.say(make_header(ControlType::kReadData, theirs->number, 0, bytes), random_bytes(bytes)); });
  }
  bool lie_read_data_for_another() {
    Theirs* const theirs = pick([](const Theirs& t) { return t.kind != OperationKind::kRead || t.phase == Phase::kMoving; });
    if (theirs == nullptr || theirs->bytes > kMaxInlineBytes) return false;
    return lie(concat("lie: read data for ", theirs->number), [&] {
      side_.say(make_header(ControlType::kReadData, theirs->number, 0, theirs->bytes), random_bytes(theirs->bytes));
    });
  }
  bool lie_ready() {
    Theirs* const theirs = pick([](const Theirs& t) { return t.kind != OperationKind::kRead || t.phase == Phase::kMoving; });
    if (theirs == nullptr) return false;
    return lie(concat("lie: ready for ", theirs->number), [&] { say(ControlType::kReady, theirs->number); });
  }
  bool lie_go() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return t.kind == OperationKind::kRecv || t.kind == OperationKind::kRead || t.phase != Phase::kOffered;
    });
    if (theirs == nullptr) return false;
    return lie(concat("lie: let ", theirs->number, " go"),
               [&] { say(ControlType::kGo, theirs->number, 0, 0, Packing::kPacked); });
  }
  bool lie_go_of_nothing() {
    const uint64_t value = random_() % 2;
    const uint64_t number = random_() % 2 == 0 ? side_.others_operation : 0xdead0000;
    return lie(concat("lie: let ", number, " go, ", value), [&] { say(ControlType::kGo, number, value, 0, Packing::kPacked); });
  }
  bool lie_go_of_the_other_end() {
    Theirs* const theirs = offered(random_() % 2 == 0 ? OperationKind::kSend : OperationKind::kWrite);
    if (theirs == nullptr && serving_.empty()) return false;
    const uint64_t number = theirs != nullptr ? theirs->number : serving_.begin()->first;
    return lie(concat("lie: let ", number, " go as if another end's"),
               [&] { say(ControlType::kGo, number, theirs != nullptr ? 1 : 0, 0, Packing::kPacked); });
  }
  bool lie_vector_as_a_whole() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return t.phase == Phase::kOffered && t.kind != OperationKind::kRead && t.kind != OperationKind::kRecv && t.parts.size() > 1;
    });
    if (theirs != nullptr)
      return lie(concat("lie: ", theirs->number, " as a whole"), [&] { say(ControlType::kGo, theirs->number); });
    for (const auto& [number, parts] : serving_) {
      if (parts > 1) return lie(concat("lie: read ", number, " as a whole"), [&, id = number] { say(ControlType::kGo, id, 1); });
    }
    return false;
  }
  bool lie_done() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return t.phase == Phase::kOffered || t.phase == Phase::kPosted ||
             (t.phase == Phase::kMoving && t.kind != OperationKind::kWrite);
    });
    if (theirs == nullptr) return false;
    return lie(concat("lie: ", theirs->number, " is done"), [&] { say_done(theirs->number, Code::kOk); });
  }
  bool lie_refused() {
    Theirs* const theirs = pick([](const Theirs& t) {
      return t.phase == Phase::kPosted || (t.phase == Phase::kMoving && t.kind != OperationKind::kWrite);
    });
    if (theirs == nullptr) return false;
    return lie(concat("lie: ", theirs->number, " is refused"), [&] { say_done(theirs->number, Code::kCancelled); });
  }
  bool lie_sequence_twice() {
    for (const auto& [sequence, ours] : ours_) {
      return lie(concat("lie: send ", sequence, " again"), [&, at = sequence] {
        OperationPayload payload;
        say(ControlType::kSend, ++number_, at, 100, Packing::kWhole, &payload);
      });
    }
    return false;
  }
  bool lie_withdrawal() {
    for (const auto& [sequence, ours] : ours_) {
      if (ours.cancelled) continue;
      const bool offered = random_() % 2 == 0;
      const uint64_t number = ours.number + (offered && !ours.with_data ? 1'000'000 : 0);
      return lie(concat("lie: withdraw send ", sequence, " as ", number, ", ", offered),
                 [&, at = sequence] { say(ControlType::kCancel, number, at, offered ? 1 : 0); });
    }
    return false;
  }
  bool lie_read_twice() {
    if (serving_.empty()) return false;
    OperationPayload payload;
    (void)good_ranges(kInline + 5, payload.ranges);
    return lie(concat("lie: read ", serving_.begin()->first, " again"),
               [&] { say(ControlType::kRead, serving_.begin()->first, 0, kInline + 5, Packing::kWhole, &payload); });
  }
  bool lie_credit() {
    constexpr uint64_t kNone = std::size(kWindowSizes);
    const uint64_t window = random_() % (kNone + 1);
    const uint64_t more = random_() % 2 == 0 ? 1 : kWindowSizes[0];
    return lie(concat("lie: credit for ", window),
               [&] { say(ControlType::kCredit, window, 0, window == kNone ? 0 : owed_[window] + more); });
  }
  bool lie_sums() {
    OperationPayload payload;
    (void)good_ranges(100, payload.ranges);
    const bool reads = random_() % 2 == 0;
    return lie("lie: ranges that are no 101 bytes", [&] {
      say(reads ? ControlType::kRead : ControlType::kWrite, ++number_, 0, 101,
          payload.ranges.size() == 1 ? Packing::kWhole : Packing::kPacked, &payload);
    });
  }
  bool lie_data() {
    OperationPayload payload;
    const Bytes data = random_bytes(100);
    payload.data = data;
    const bool more = random_() % 2 == 0;
    return lie("lie: a send with data of another length",
               [&] { say(ControlType::kSendData, ++number_, our_sends_, more ? 99 : 101, Packing::kWhole, &payload); });
  }
  bool lie_nothing_long() {
    OperationPayload payload;
    const bool sends = random_() % 2 == 0;
    if (!sends) payload.ranges = {{side_.slot, 0, 0}};
    return lie("lie: an offer of nothing", [&] {
      say(sends ? ControlType::kSend : ControlType::kWrite, ++number_, sends ? our_sends_ : 0, 0, Packing::kWhole, &payload);
    });
  }

  static constexpr Saying kTruths[] = {
      &KnowingPeer::they_send,        &KnowingPeer::they_write,
      &KnowingPeer::they_read,        &KnowingPeer::they_receive,
      &KnowingPeer::they_receive,     &KnowingPeer::they_give_up,
      &KnowingPeer::send_data,        &KnowingPeer::send_offer,
      &KnowingPeer::withdraw_send,    &KnowingPeer::cancel_what_was_not_offered,
      &KnowingPeer::write_data,       &KnowingPeer::write_data_elsewhere,
      &KnowingPeer::read_short,       &KnowingPeer::offer_write_elsewhere,
      &KnowingPeer::read_elsewhere,   &KnowingPeer::read_long,
      &KnowingPeer::withdraw_read,    &KnowingPeer::answer_read,
      &KnowingPeer::refuse,           &KnowingPeer::confirm_write,
      &KnowingPeer::give_credit,      &KnowingPeer::notify,
      &KnowingPeer::speak_of_nothing, &KnowingPeer::let_go,
      &KnowingPeer::be_ready,
  };
  static constexpr Saying kLies[] = {
      &KnowingPeer::lie_length_of_read, &KnowingPeer::lie_read_data_for_another,
      &KnowingPeer::lie_ready,          &KnowingPeer::lie_go,
      &KnowingPeer::lie_go_of_nothing,  &KnowingPeer::lie_go_of_the_other_end,
      &KnowingPeer::lie_done,           &KnowingPeer::lie_vector_as_a_whole,
      &KnowingPeer::lie_refused,        &KnowingPeer::lie_sequence_twice,
      &KnowingPeer::lie_withdrawal,     &KnowingPeer::lie_read_twice,
      &KnowingPeer::lie_credit,         &KnowingPeer::lie_sums,
      &KnowingPeer::lie_data,           &KnowingPeer::lie_nothing_long,
  };

  void say_something() {
    while (!(this->*kTruths[random_() % std::size(kTruths)])()) continue;
    settle();
  }
  void note(std::string what) { history_.push_back(std::move(what)); }
  template <class Say>
  bool lie(std::string what, Say say_it) {
    note(std::move(what));
    say_it();
    return true;
  }
  void say(ControlType type, uint64_t operation, uint64_t value = 0, uint64_t bytes = 0, Packing packing = Packing::kWhole,
           const OperationPayload* payload = nullptr) {
    Bytes encoded;
    if (payload != nullptr) {
      append_operation_payload(encoded, *payload);
      const WindowUse use = use_of(type, bytes, *payload, kInline);
      taken_[use.window] += use.bytes;
    }
    side_.say(make_header(type, operation, value, bytes, packing), encoded);
  }
  void say_done(uint64_t number, Code code) {
    side_.say(make_header(ControlType::kDone, number, static_cast<uint64_t>(code)), {});
  }

  /// The next short message might not fit.
  static bool is_full(const Windows& used, size_t window) { return used[window] + 2 * kInline > kWindowSizes[window]; }
  uint64_t short_size() {
    static constexpr uint64_t kSizes[] = {1, 8, 512, 599, 4096, kInline};
    return kSizes[random_() % std::size(kSizes)];
  }
  uint64_t size() { return random_() % 3 == 0 ? kInline + 1 + random_() % 4000 : short_size(); }
  Bytes random_bytes(size_t bytes) {
    Bytes made(bytes);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random_());
    return made;
  }
  size_t take_target(size_t bytes) { return kTargets + std::exchange(targets_, targets_ + bytes + 16); }
  /// The bytes in one part, or in two.
  std::vector<Part> parts(size_t offset, size_t bytes) {
    if (bytes < 2 || random_() % 3 != 0) return {{offset, bytes}};
    const size_t first = 1 + random_() % (bytes - 1);
    return {{offset, first}, {offset + first, bytes - first}};
  }
  /// Ranges of what was advertised to this peer. @return where in the memory they are
  std::vector<Part> good_ranges(uint64_t bytes, std::vector<WireRange>& ranges) {
    const bool little = bytes <= kLittle && random_() % 2 == 0;
    const uint64_t offset = random_() % ((little ? kLittle : kArea) - bytes + 1);
    const std::vector<Part> places = parts(kAdvertised + offset, bytes);
    for (const Part& place : places)
      ranges.push_back({little ? side_.little : side_.slot, place.offset - kAdvertised, place.bytes});
    return places;
  }
  /// One range that this peer may not touch. @return what it is told
  Code bad_range(uint64_t bytes, std::vector<WireRange>& ranges) {
    switch (random_() % 7) {
      case 0:
        ranges = {{side_.slot, kArea - bytes + 1, bytes}};
        return Code::kInvalidArgument;
      case 1:
        ranges = {{side_.slot, (uint64_t{1} << 63) + random_() % 100, bytes}};
        return Code::kInvalidArgument;
      case 2:
        ranges = {{side_.little, bytes > kLittle ? 0 : kLittle + 1 - bytes, bytes}};
        return Code::kInvalidArgument;
      case 3:
        ranges = {{side_.foreign, 0, bytes}};
        return Code::kNotFound;
      case 4:
        ranges = {{side_.withdrawn, 0, bytes}};
        return Code::kNotFound;
      case 5:
        ranges = {{side_.little, kLittle + random_() % 4096 + 1, bytes}};
        return Code::kInvalidArgument;
      default:
        ranges = {{side_.slot + 1 + random_() % 1000, 0, bytes}};
        return Code::kNotFound;
    }
  }

  template <class Is>
  Theirs* pick(Is is) {
    std::vector<Theirs*> found;
    for (Theirs& theirs : open_) {
      if (is(theirs)) found.push_back(&theirs);
    }
    return found.empty() ? nullptr : found[random_() % found.size()];
  }
  Theirs* offered(OperationKind kind) {
    return pick([&](const Theirs& t) { return t.kind == kind && t.phase == Phase::kOffered; });
  }
  void end(const Theirs& theirs, Code code) {
    ended_.push_back({theirs.number, code});
    std::erase_if(open_, [number = theirs.number](const Theirs& t) { return t.number == number; });
  }
  void put(const Theirs& theirs, const Bytes& data) {
    size_t done = 0;
    for (const Part& part : theirs.parts) {
      std::copy_n(data.begin() + static_cast<ptrdiff_t>(done), part.bytes, image_.begin() + static_cast<ptrdiff_t>(part.offset));
      done += part.bytes;
    }
  }
  void arrive(uint64_t sequence, Ours ours) {
    if (std::erase(given_up_, sequence) > 0) {
      if (!ours.with_data) wanted_.push_back({ControlType::kDone, ours.number, static_cast<uint64_t>(Code::kCancelled)});
      return;
    }
    ours_.emplace(sequence, std::move(ours));
    meet(sequence);
  }
  /// A receive and its send, when both are there.
  void meet(uint64_t sequence) {
    const auto found = ours_.find(sequence);
    Theirs* const theirs = pick(
        [&](const Theirs& t) { return t.kind == OperationKind::kRecv && t.phase == Phase::kPosted && t.sequence == sequence; });
    if (found == ours_.end() || theirs == nullptr) return;
    const Ours ours = std::move(found->second);
    ours_.erase(found);
    if (ours.cancelled) return end(*theirs, Code::kCancelled);
    if (ours.bytes != theirs->bytes) {
      if (!ours.with_data) wanted_.push_back({ControlType::kDone, ours.number, static_cast<uint64_t>(Code::kMismatch)});
      return end(*theirs, Code::kMismatch);
    }
    if (!ours.with_data) {
      wanted_.push_back({ControlType::kGo, ours.number, 0});
      theirs->phase = Phase::kMoving;
      return;
    }
    put(*theirs, ours.data);
    end(*theirs, Code::kOk);
  }

  /// Everything has been looked at: the endpoint has said what it must and nothing else, and what should have ended has.
  void settle() {
    take_all();
    ASSERT_TRUE(side_.alive()) << "ended without a cause; " << said();
    EXPECT_TRUE(wanted_.empty()) << wanted_.size() << " answers are missing, the first is \"" << name_of(wanted_.front().type)
                                 << "\" of " << wanted_.front().operation << "; " << said();
    for (const auto& [number, code] : ended_) {
      OperationAnswer answer;
      EXPECT_TRUE(wait_until(
          [&, id = number] {
            take_all();
            answer = side_.poll(id);
            return answer.state != OperationState::kPending;
          },
          std::chrono::seconds(5)))
          << number << " did not end; " << said();
      gone_ = number;
      EXPECT_EQ(answer.status.code(), code) << number << ": " << answer.status.to_string() << "; " << said();
    }
    ended_.clear();
    for (const Theirs& theirs : open_)
      ASSERT_EQ(side_.poll(theirs.number).state, OperationState::kPending) << theirs.number << "; " << said();
    const size_t notified = side_.take_notifications();
    EXPECT_EQ(notified, std::exchange(notifications_, 0)) << said();
    expect_memory();
  }
  void take_all() {
    for (const Recorder::Frame& frame : side_.settle()) take(frame);
  }
  void take(const Recorder::Frame& frame) {
    const auto type = static_cast<ControlType>(frame.header.type);
    if (type == ControlType::kCredit) {
      ASSERT_LT(frame.header.operation, std::size(kWindowSizes));
      ASSERT_LE(frame.header.bytes, taken_[frame.header.operation]) << "credit for what was not sent";
      taken_[frame.header.operation] -= frame.header.bytes;
      return;
    }
    if (type == ControlType::kPeer) return;
    if (type <= ControlType::kRead) {
      OperationPayload payload;
      const Status status = decode_operation_payload(frame.header, frame.payload, payload);
      ASSERT_TRUE(status.is_ok()) << status.to_string() << "; " << said();
      const WindowUse use = use_of(type, frame.header.bytes, payload, side_.peer_inline);
      owed_[use.window] += use.bytes;
      ASSERT_LE(owed_[use.window], kWindowSizes[use.window]) << "more than the window; " << said();
    }
    ASSERT_FALSE(wanted_.empty()) << "an unexpected \"" << name_of(type) << "\" of " << frame.header.operation << "; " << said();
    const Wanted wanted = wanted_.front();
    wanted_.pop_front();
    EXPECT_EQ(name_of(type), name_of(wanted.type)) << said();
    EXPECT_EQ(frame.header.operation, wanted.operation) << said();
    EXPECT_EQ(frame.header.value, wanted.value) << name_of(type) << "; " << said();
    if (type != ControlType::kReadData) return;
    EXPECT_TRUE(frame.payload == wanted_data_[frame.header.operation]) << "other bytes were read; " << said();
    wanted_data_.erase(frame.header.operation);
  }
  void expect_memory() {
    if (std::memcmp(image_.data(), side_.memory.data(), image_.size()) == 0) return;
    const auto [wrong, there] = std::mismatch(image_.begin(), image_.end(), side_.memory.begin());
    ADD_FAILURE() << "byte " << wrong - image_.begin() << " of the memory has changed, or has not; " << said();
  }

  Side side_;
  std::mt19937_64 random_;
  Bytes image_;  ///< expected contents of the memory
  std::vector<Theirs> open_, let_go_;
  std::map<uint64_t, Ours> ours_;       ///< by sequence
  std::map<uint64_t, size_t> serving_;  ///< long reads of this peer that were made ready, and their ranges
  std::vector<uint64_t> given_up_;      ///< places of receives that were given up before a send came
  std::deque<Wanted> wanted_;           ///< expected frames, in order
  std::map<uint64_t, Bytes> wanted_data_;
  std::vector<std::pair<uint64_t, Code>> ended_;  ///< expected ends
  Windows owed_{};                                ///< that the endpoint has used of this peer's windows
  Windows taken_{};                               ///< that this peer has used of the endpoint's
  uint64_t number_ = uint64_t{1} << 40, our_sends_ = 0, their_sends_ = 0, their_receives_ = 0;
  uint64_t gone_ = 0;  ///< of the endpoint, and ended
  size_t targets_ = 0, notifications_ = 0;
  std::vector<std::string> history_;
};

}  // namespace tcpx::testing
