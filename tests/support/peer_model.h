// Knowledge that a peer has of the endpoint it talks to: which operations are open there, their lengths and how far they have
// come, what it has offered and asked for itself, the room in all windows, and what every byte of the memory there must be.
// From that follow the frames that the endpoint must send next and the ends of its operations, and `settle` compares both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "endpoint/operation.h"
#include "tests/support/peers_lanes.h"
#include "tests/support/stream_pair.h"
#include "tests/support/window_model.h"

namespace tcpx::testing {

/// The end that the peer talks to, and the way there. They are the test's.
struct PeersEnd {
  static constexpr size_t kArea = 64 * 1024;
  static constexpr size_t kSources = 0, kAdvertised = kArea, kTargets = 2 * kArea, kPrivate = 10 * kArea, kMemory = 11 * kArea;
  static constexpr uint64_t kInline = 16384;      ///< longest inline message of the endpoint
  static constexpr size_t kLittle = 600;          ///< bytes of the second slot, at the begin of the advertised area
  static constexpr SlotId kThere{0x7e7e7e7e, 1};  ///< slot of the peer, as the endpoint knows it

  struct Part {
    size_t offset, bytes;  ///< of the memory
  };
  std::function<uint64_t(OperationKind, const std::vector<Part>&)> start;  ///< remote: `kThere`, apart from each other
  std::function<OperationAnswer(uint64_t)> poll;
  std::function<void(uint64_t)> cancel;
  std::function<size_t()> take_notifications;
  std::function<void(const FrameHeader&, std::span<const std::byte>)> say;
  std::function<std::vector<Recorder::Frame>()> settle;  ///< all that was said has been looked at; what came since
  std::function<bool()> alive;
  PeersLanes* lanes = nullptr;    ///< on an eager link, where bytes move; null: on another
  std::span<std::byte> memory;    ///< kMemory
  SlotId slot, little;            ///< of the advertised area, for this peer
  SlotId foreign, withdrawn;      ///< of another connection; of memory that is not registered any more
  uint64_t peer_inline = 0;       ///< as the peer has said of itself
  uint64_t others_operation = 0;  ///< a receive that is open on another connection
};

struct PeerModel {
  using Part = PeersEnd::Part;
  using Windows = std::array<uint64_t, std::size(kWindowSizes)>;
  enum class Phase { kPosted, kOffered, kMoving, kAnswer };
  /// An operation of the endpoint that has not ended.
  struct Theirs {
    OperationKind kind;
    uint64_t number, sequence, bytes;
    std::vector<Part> parts;
    Phase phase;
    bool given_up = false;
    bool told = false;   ///< a receive: its peer knows that it is posted
    bool begun = false;  ///< a write: without a Go

    Packing packing() const { return parts.size() == 1 ? Packing::kWhole : Packing::kPacked; }
    bool is(OperationKind asked) const { return kind == asked; }
    bool reads() const { return kind == OperationKind::kRead; }
  };
  /// A send of this peer that no receive has met.
  struct Ours {
    uint64_t number, bytes;
    bool with_data, cancelled;
    Bytes data;
  };
  struct Wanted {
    FrameType type;
    uint64_t operation, value;
    bool begun;
  };
  /// A transfer that the endpoint has said Go to, and that this peer has not begun.
  struct Awaited {
    uint64_t number;
    bool of_read;
    uint64_t theirs;  ///< operation of the endpoint; 0: a write of this peer
    std::vector<Part> places;
    uint64_t bytes;
  };
  /// A receive of this peer, as it has told the endpoint.
  struct Posted {
    uint64_t bytes;
    Packing packing;
  };

  PeerModel(PeersEnd peers_end, uint64_t seed)
      : end(std::move(peers_end)), random(seed), image(end.memory.begin(), end.memory.end()) {}

  // Chance.
  uint64_t below(uint64_t limit) { return random() % limit; }
  bool coin() { return below(2) == 0; }
  uint64_t short_size() {
    static constexpr uint64_t kSizes[] = {1, 8, 512, 599, 4096, PeersEnd::kInline};
    return kSizes[below(std::size(kSizes))];
  }
  uint64_t size() { return below(3) == 0 ? PeersEnd::kInline + 1 + below(4000) : short_size(); }
  Bytes random_bytes(size_t bytes) {
    Bytes made(bytes);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random());
    return made;
  }
  /// The bytes in one part, or in two.
  std::vector<Part> parts(size_t offset, size_t bytes) {
    if (bytes < 2 || below(3) != 0) return {{offset, bytes}};
    const size_t first = 1 + below(bytes - 1);
    return {{offset, first}, {offset + first, bytes - first}};
  }
  /// Ranges of what was advertised to this peer. @return where in the memory they are
  std::vector<Part> good_ranges(uint64_t bytes, std::vector<WireRange>& ranges) {
    const bool little = bytes <= PeersEnd::kLittle && coin();
    const uint64_t offset = below((little ? PeersEnd::kLittle : PeersEnd::kArea) - bytes + 1);
    const std::vector<Part> places = parts(PeersEnd::kAdvertised + offset, bytes);
    for (const Part& place : places)
      ranges.push_back({little ? end.little : end.slot, place.offset - PeersEnd::kAdvertised, place.bytes});
    return places;
  }
  /// One range that this peer may not touch. @return what it is told
  Code bad_range(uint64_t bytes, std::vector<WireRange>& ranges) {
    constexpr uint64_t kLittle = PeersEnd::kLittle;
    const std::pair<WireRange, Code> bad[] = {
        {{end.slot, PeersEnd::kArea - bytes + 1, bytes}, Code::kInvalidArgument},
        {{end.slot, (uint64_t{1} << 63) + below(100), bytes}, Code::kInvalidArgument},
        {{end.little, bytes > kLittle ? 0 : kLittle + 1 - bytes, bytes}, Code::kInvalidArgument},
        {{end.little, kLittle + below(4096) + 1, bytes}, Code::kInvalidArgument},
        {{end.foreign, 0, bytes}, Code::kNotFound},
        {{end.withdrawn, 0, bytes}, Code::kNotFound},
        {{{end.slot.high, end.slot.low + 1 + below(1000)}, 0, bytes}, Code::kNotFound}};
    const auto& [range, code] = bad[below(std::size(bad))];
    ranges = {range};
    return code;
  }
  /// Any operation of the endpoint of which `is` is true; null when there is none.
  template <class Is>
  Theirs* pick(Is is) {
    std::vector<Theirs*> found;
    for (Theirs& theirs : open) {
      if (is(theirs)) found.push_back(&theirs);
    }
    return found.empty() ? nullptr : found[below(found.size())];
  }
  Theirs* offered(OperationKind kind) {
    return pick([&](const Theirs& t) { return t.is(kind) && t.phase == Phase::kOffered; });
  }

  // Frames of this peer.
  void say_raw(const FrameHeader& header, std::span<const std::byte> payload = {}) {
    note("say ", name_of(static_cast<FrameType>(header.type)), " of ", header.operation, ", value ", header.value, ", ",
         header.bytes, " bytes, packing ", header.packing, header.flags == kBegunFlag ? ", begun" : "");
    end.say(header, payload);
  }
  void say(FrameType type, uint64_t operation, uint64_t value = 0, uint64_t bytes = 0, Packing packing = Packing::kWhole,
           const OperationPayload* payload = nullptr, bool begun = false) {
    Bytes encoded;
    if (payload != nullptr) {
      append_operation_payload(encoded, *payload);
      const WindowUse use = use_of(type, bytes, *payload, PeersEnd::kInline);
      taken[use.window] += use.bytes;
    }
    FrameHeader header = make_header(type, operation, value, bytes, packing);
    if (begun) header.flags = kBegunFlag;
    say_raw(header, encoded);
  }
  void say_begun(FrameType type, uint64_t operation, uint64_t value, uint64_t bytes, Packing packing,
                 const OperationPayload* payload = nullptr) {
    say(type, operation, value, bytes, packing, payload, true);
  }
  void say_done(uint64_t operation, Code code) { say(FrameType::kDone, operation, static_cast<uint64_t>(code)); }
  void say_read_data(uint64_t operation, const Bytes& data) {
    say_raw(make_header(FrameType::kReadData, operation, 0, data.size()), data);
  }
  /// The next short message might not fit.
  static bool is_full(const Windows& used, size_t window) { return used[window] + 2 * PeersEnd::kInline > kWindowSizes[window]; }

  // Consequences of what was said.
  void want(FrameType type, uint64_t operation, uint64_t value = 0, bool begun = false) {
    wanted.push_back({type, operation, value, begun});
  }
  /// Behind what this peer has said, or the endpoint must say, of a transfer on an eager link.
  Bytes move(uint64_t bytes) {
    Bytes data = random_bytes(bytes);
    end.lanes->send(data);
    return data;
  }
  void want_bytes(const std::vector<Part>& places) {
    wanted_bytes = bytes_at(places);
    end.lanes->receive(wanted_bytes.size());
  }
  /// The endpoint need not ask.
  bool may_begin(const Theirs& theirs) {
    if (!eager() || theirs.is(OperationKind::kWrite)) return eager() && begins_writes;
    const auto found = posted.find(theirs.sequence);
    if (found == posted.end()) return false;
    const Posted receive = found->second;
    posted.erase(found);
    return receive.bytes == theirs.bytes && (receive.packing == theirs.packing() || receive.packing == Packing::kPacked);
  }
  bool eager() const { return end.lanes != nullptr; }
  void want_done(uint64_t operation, Code code) { want(FrameType::kDone, operation, static_cast<uint64_t>(code)); }
  void ends(const Theirs& theirs, Code code) {
    ended.push_back({theirs.number, code});
    std::erase_if(open, [number = theirs.number](const Theirs& t) { return t.number == number; });
  }
  void put(const std::vector<Part>& places, const Bytes& data) {
    size_t done = 0;
    for (const Part& place : places) {
      std::memcpy(image.data() + place.offset, data.data() + done, place.bytes);
      done += place.bytes;
    }
  }
  Bytes bytes_at(const std::vector<Part>& places) const {
    Bytes data;
    for (const Part& place : places)
      data.insert(data.end(), image.data() + place.offset, image.data() + place.offset + place.bytes);
    return data;
  }
  void arrive(uint64_t sequence, Ours send) {
    if (std::erase(given_up, sequence) > 0) {
      if (!send.with_data) want_done(send.number, Code::kCancelled);
      return;
    }
    ours.emplace(sequence, std::move(send));
    meet(sequence);
  }
  /// A receive and its send, when both are there.
  void meet(uint64_t sequence) {
    const auto found = ours.find(sequence);
    Theirs* const theirs =
        pick([&](const Theirs& t) { return t.is(OperationKind::kRecv) && t.phase == Phase::kPosted && t.sequence == sequence; });
    if (found == ours.end() || theirs == nullptr) return;
    const Ours send = std::move(found->second);
    ours.erase(found);
    if (send.cancelled) return ends(*theirs, Code::kCancelled);
    if (send.bytes != theirs->bytes) {
      if (!send.with_data) want_done(send.number, Code::kMismatch);
      return ends(*theirs, Code::kMismatch);
    }
    if (send.with_data) {
      put(theirs->parts, send.data);
      return ends(*theirs, Code::kOk);
    }
    want(FrameType::kGo, send.number);
    theirs->phase = Phase::kMoving;
    if (eager()) awaited.push_back({send.number, false, theirs->number, theirs->parts, theirs->bytes});
  }

  // Comparing.
  /// Everything has been looked at: the endpoint has said what it must and nothing else, and what should have ended has.
  void settle() {
    take_all();
    if (eager()) settle_bytes();
    ASSERT_TRUE(end.alive()) << "ended without a cause; " << said();
    EXPECT_TRUE(wanted.empty()) << wanted.size() << " answers are missing, the first is \"" << name_of(wanted.front().type)
                                << "\" of " << wanted.front().operation << "; " << said();
    for (const auto& [number, code] : ended) {
      const Status status = end_of(number).status;
      EXPECT_EQ(status.code(), code) << number << ": " << status.to_string() << "; " << said();
      gone = number;
    }
    ended.clear();
    for (const Theirs& theirs : open)
      ASSERT_EQ(end.poll(theirs.number).state, OperationState::kPending) << theirs.number << "; " << said();
    const size_t notified = end.take_notifications();
    EXPECT_EQ(notified, std::exchange(notifications, 0)) << said();
    expect_memory();
  }
  void settle_bytes() {
    EXPECT_TRUE(wait_until([&] {
      const bool rests = end.lanes->rests();
      take_all();
      return (rests && wanted.empty()) || !end.alive();
    })) << "bytes do not move; "
        << said();
    EXPECT_TRUE(std::equal(wanted_bytes.begin(), wanted_bytes.end(), end.lanes->received().begin()))
        << "other bytes came; " << said();
    wanted_bytes.clear();
    take_all();
  }
  /// The end of an operation, for which it waits.
  OperationAnswer end_of(uint64_t number) {
    OperationAnswer answer;
    EXPECT_TRUE(wait_until([&] {
      take_all();
      answer = end.poll(number);
      return answer.state != OperationState::kPending;
    })) << number
        << " did not end; " << said();
    return answer;
  }
  void take_all() {
    for (const Recorder::Frame& frame : end.settle()) {
      if (!over) take(frame);
    }
  }
  void take(const Recorder::Frame& frame) {
    const auto type = static_cast<FrameType>(frame.header.type);
    if (type == FrameType::kCredit) {
      ASSERT_LT(frame.header.operation, std::size(kWindowSizes));
      ASSERT_LE(frame.header.bytes, taken[frame.header.operation]) << "credit for what was not sent";
      taken[frame.header.operation] -= frame.header.bytes;
      return;
    }
    if (type == FrameType::kLane) return;
    if (type <= FrameType::kRead) {
      OperationPayload payload;
      const Status status = decode_operation_payload(frame.header, frame.payload, payload);
      ASSERT_TRUE(status.is_ok()) << status.to_string() << "; " << said();
      const WindowUse use = use_of(type, frame.header.bytes, payload, end.peer_inline);
      owed[use.window] += use.bytes;
      ASSERT_LE(owed[use.window], kWindowSizes[use.window]) << "more than the window; " << said();
    }
    ASSERT_FALSE(wanted.empty()) << "an unexpected \"" << name_of(type) << "\" of " << frame.header.operation << "; " << said();
    const Wanted next = wanted.front();
    wanted.pop_front();
    EXPECT_EQ(name_of(type), name_of(next.type)) << said();
    EXPECT_EQ(frame.header.operation, next.operation) << said();
    EXPECT_EQ(frame.header.value, next.value) << name_of(type) << "; " << said();
    EXPECT_EQ(frame.header.flags == kBegunFlag, next.begun) << name_of(type) << "; " << said();
    if (type != FrameType::kReadData) return;
    EXPECT_TRUE(frame.payload == wanted_data[frame.header.operation]) << "other bytes were read; " << said();
    wanted_data.erase(frame.header.operation);
  }
  void expect_memory() {
    if (std::memcmp(image.data(), end.memory.data(), image.size()) == 0) return;
    const auto [wrong, there] = std::mismatch(image.begin(), image.end(), end.memory.begin());
    ADD_FAILURE() << "byte " << wrong - image.begin() << " of the memory has changed, or has not; " << said();
  }
  template <class... Texts>
  void note(const Texts&... texts) {
    history.push_back(concat(texts...));
  }
  std::string said() const {
    std::string text = "said:";
    for (const std::string& what : history) text += "\n  " + what;
    return text;
  }

  PeersEnd end;
  std::mt19937_64 random;
  Bytes image;  ///< expected contents of the memory
  std::vector<Theirs> open, let_go;
  std::vector<Theirs> given_up_reads;  ///< on an eager link: whose bytes may come all the same
  std::vector<Awaited> awaited;
  std::map<uint64_t, Posted> posted;  ///< by sequence: receives of this peer for sends to come
  std::map<uint64_t, Ours> ours;       ///< by sequence
  std::map<uint64_t, size_t> serving;  ///< long reads of this peer that were made ready, and their ranges
  std::vector<uint64_t> given_up;      ///< places of receives that were given up before a send came
  std::deque<Wanted> wanted;           ///< expected frames, in order
  std::map<uint64_t, Bytes> wanted_data;
  std::vector<std::pair<uint64_t, Code>> ended;  ///< expected ends
  Bytes wanted_bytes;                            ///< expected of the transfer that is under way
  Windows owed{};                                ///< that the endpoint has used of this peer's windows
  Windows taken{};                               ///< that this peer has used of the endpoint's
  uint64_t our_last = uint64_t{1} << 40;         ///< of this peer's last operation
  uint64_t our_sends = 0, their_sends = 0, their_receives = 0;
  uint64_t gone = 0;  ///< of the endpoint, and ended
  size_t targets = 0, notifications = 0;
  bool over = false;          ///< frames are not compared any more
  bool begins_writes = true;  ///< the endpoint, on an eager link
  std::vector<std::string> history;
};

}  // namespace tcpx::testing
