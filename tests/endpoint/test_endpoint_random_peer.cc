// Peers that say anything, to an endpoint with threads and sockets of its own: one knows what is open there and lies about it
// (tests/support/knowing_peer.h), one says frames whose fields are plausible and make no sense together. In every case each
// operation ends once, memory that they were not given stays as it is and can be let go, and the other connection goes on.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "tests/support/hostile_peer.h"
#include "tests/support/knowing_peer.h"
#include "tests/support/verbs.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

constexpr size_t kOthers = 100'000;  // bytes that are moved over the other connection

class EndpointRandomPeer : public HostilePeerTest {
 protected:
  EndpointRandomPeer() : HostilePeerTest(config()) { allow_log("TCPX_E_"); }  // whichever error comes first
  static EndpointConfig config() {
    EndpointConfig config = loopback_config();
    config.inline_bytes = static_cast<uint32_t>(PeersEnd::kInline);
    return config;
  }
  void leave() {
    peer_.reset();
    EXPECT_TRUE(endpoint_->remove_connection(conn_).is_ok());
    EXPECT_TRUE(wait_until([&] { return endpoint_->stats().connections.size() == 1; })) << endpoint_->flight_record();
  }
};

/// On a link that is eager, or is not: lies.
class EndpointKnowingPeer : public EndpointRandomPeer, public ::testing::WithParamInterface<std::tuple<bool, size_t>> {
 protected:
  void talk(uint64_t seed, int truths, size_t lie) {
    const bool eager = std::get<0>(GetParam());
    meet(eager);
    Memory memory(*endpoint_, PeersEnd::kMemory), others(*endpoint_, kOthers), theirs(*good_, kOthers);
    memory.fill(seed);
    const LocalRange into = others.whole(), from = theirs.whole();
    const OperationId receive = endpoint_->recv_async(to_good_, {&into, 1}).value();
    const auto advertise = [&](ConnId to, size_t bytes) {
      return endpoint_->advertise(to, memory.range(PeersEnd::kAdvertised, bytes)).value();
    };
    PeersEnd side;
    side.memory = memory.bytes();
    side.slot = advertise(conn_, PeersEnd::kArea).id;
    side.little = advertise(conn_, PeersEnd::kLittle).id;
    side.foreign = advertise(to_good_, PeersEnd::kArea).id;
    {
      Memory gone(*endpoint_, PeersEnd::kArea);
      side.withdrawn = endpoint_->advertise(conn_, gone.whole()).value().id;
    }
    side.peer_inline = Peer::kInlineBytes;
    side.others_operation = static_cast<uint64_t>(receive);
    RemoteSlot there = advertise(conn_, PeersEnd::kLittle);  // as the peer would have made it
    there.id = PeersEnd::kThere;
    there.bytes = kOthers;
    side.start = [&](OperationKind kind, const std::vector<PeersEnd::Part>& parts) {
      std::vector<LocalRange> ranges;
      std::vector<RemoteRange> remote;
      uint64_t offset = 0;
      for (const PeersEnd::Part& part : parts) {
        ranges.push_back(memory.range(part.offset, part.bytes));
        remote.push_back({there, std::exchange(offset, offset + part.bytes + 1)});  // neighbours would be joined
      }
      return static_cast<uint64_t>(start(*endpoint_, kind, conn_, ranges, remote).value());
    };
    side.poll = [&](uint64_t number) { return endpoint_->poll(OperationId{number}); };
    side.cancel = [&](uint64_t number) { EXPECT_TRUE(endpoint_->cancel(OperationId{number}).is_ok()); };
    side.take_notifications = [&] { return endpoint_->get_notifs().size(); };
    side.say = [&](const FrameHeader& header, std::span<const std::byte> payload) { peer_->say_raw(header, payload); };
    side.settle = [&] { return settle(side.little); };
    side.alive = [&] { return alive(); };
    std::optional<PeersLanes> lanes;
    if (eager) side.lanes = &lanes.emplace(peer_->sends(), peer_->receives());

    KnowingPeer peer(side, seed);
    peer.talk(truths, lie);
    leave();
    peer.expect_over();
    EXPECT_TRUE(good_->send(good_conn_, {&from, 1}).is_ok()) << peer.said();
    EXPECT_TRUE(endpoint_->wait(receive, kCallTime).is_ok()) << peer.said();
    EXPECT_EQ(others.bytes(), theirs.bytes());
  }  // its memory can be let go

 private:
  /// Reads two bytes, one after the other: operations started before the first answer have been looked at before the second.
  std::vector<Recorder::Frame> settle(const SlotId& slot) {
    std::vector<Recorder::Frame> frames;
    for (int i = 0; i < 2 && peer_; ++i) {
      OperationPayload payload;
      payload.ranges = {{slot, 0, 1}};
      peer_->say(FrameType::kRead, ++questions_, 0, 1, Packing::kWhole, &payload);
      bool answered = false;
      EXPECT_TRUE(wait_until([&] {
        for (Recorder::Frame& frame : peer_->take()) {
          const bool is_answer =
              frame.header.type == static_cast<uint8_t>(FrameType::kReadData) && frame.header.operation == questions_;
          answered |= is_answer;
          if (!is_answer) frames.push_back(std::move(frame));
        }
        return answered || peer_->has_ended();
      })) << "it does not answer";
    }
    return frames;
  }
  uint64_t questions_ = uint64_t{1} << 50;
};

TEST_P(EndpointKnowingPeer, IsBelievedWhereItMayBeAndNowhereElse) {
  const size_t lie = std::get<1>(GetParam());
  for (int i = 0; i < 5 && !HasFailure(); ++i) talk(lie * 5 + static_cast<uint64_t>(i), 5 + 10 * i, lie);
}

INSTANTIATE_TEST_SUITE_P(Lies, EndpointKnowingPeer,
                         ::testing::Combine(::testing::Values(false), ::testing::Range(size_t{0}, KnowingPeer::lies(false))));
INSTANTIATE_TEST_SUITE_P(EagerLies, EndpointKnowingPeer,
                         ::testing::Combine(::testing::Values(true), ::testing::Range(size_t{0}, KnowingPeer::lies(true))));

/// Says frames of any type, of operations that are there and of none.
class Anything {
 public:
  Anything(uint64_t seed, std::vector<uint64_t> operations, std::vector<SlotId> slots)
      : random_(seed), operations_(std::move(operations)), slots_(std::move(slots)) {}

  void say_one(Peer& peer) {
    const auto type = static_cast<FrameType>(1 + random_() % kLastFrameType);
    const auto packing = static_cast<Packing>(likely() ? 0 : random_() % 3);
    // Little comes after them.
    if ((type == FrameType::kBye || is_of_set_up(type)) && random_() % 64 != 0) return;
    const bool with_data = type == FrameType::kSendData || type == FrameType::kWriteData || type == FrameType::kReadData;
    const uint64_t operation = this->operation(), bytes = with_data ? this->bytes() % kMaxInlineBytes : this->bytes();
    const std::vector<std::byte> data(with_data ? bytes : 0, std::byte{0xdd});
    if (type == FrameType::kLane && likely()) return say_to_pipeline(peer);
    if (type == FrameType::kNotify) return peer.say_raw(make_header(type), payload_of(NotifyFrame{.notify = {"name", "text"}}));
    if (is_of_set_up(type) || type > FrameType::kRead) return peer.say_raw(make_header(type, operation, random_() % 6, bytes, packing), data);
    OperationPayload payload;
    payload.data = data;
    payload.has_notify = type != FrameType::kRead && random_() % 8 == 0;
    if (type == FrameType::kSend && packing == Packing::kRanges) payload.lengths = {bytes - bytes / 2, bytes / 2};
    if (type != FrameType::kSend && type != FrameType::kSendData)
      payload.ranges = ranges(bytes, packing == Packing::kWhole ? 1 : 1 + random_() % 3);
    peer.say(type, operation, random_() % 6, bytes, packing, &payload);
  }

 private:
  bool likely() { return random_() % 8 != 0; }
  uint64_t operation() { return likely() ? operations_[random_() % operations_.size()] : random_() % 5000; }
  uint64_t bytes() {
    static constexpr uint64_t kSizes[] = {0, 1, 8, 512, 16384, 65536, 100'000};
    return kSizes[random_() % std::size(kSizes)];
  }
  std::vector<WireRange> ranges(uint64_t bytes, uint64_t count) {
    std::vector<WireRange> ranges;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t part = i + 1 == count ? bytes : bytes / 2;
      ranges.push_back({likely() ? slots_[random_() % slots_.size()] : SlotId{random_(), random_()}, random_() % 4096, part});
      bytes -= part;
    }
    return ranges;
  }
  void say_to_pipeline(Peer& peer) {
    std::vector<std::byte> payload(random_() % 2 == 0 ? 8 : random_() % kMaxPeerMessageBytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random_() % 4);
    peer.say_raw(make_header(FrameType::kLane, 0, random_() % 10, random_() % 2), payload);
  }

  std::mt19937_64 random_;
  std::vector<uint64_t> operations_;
  std::vector<SlotId> slots_;
};

TEST_F(EndpointRandomPeer, WhoSaysAnythingEndsEveryOperationAndTouchesNothingElse) {
  constexpr size_t kPart = 128 * 1024, kSent = 0, kReceived = kPart, kAdvertised = 2 * kPart, kPrivate = 3 * kPart;
  constexpr int kFrames = 400;
  for (uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    meet();
    Memory memory(*endpoint_, 4 * kPart);
    memory.fill(seed);
    const std::vector<std::byte> before = memory.bytes();
    const RemoteSlot slot = endpoint_->advertise(conn_, memory.range(kAdvertised, kPart)).value();
    const RemoteSlot little = endpoint_->advertise(conn_, memory.range(kAdvertised, 600)).value();
    const RemoteRange nowhere{slot, 0};  // of this endpoint: unknown to the peer
    std::vector<uint64_t> operations;
    for (const size_t bytes : {size_t{8}, size_t{512}, size_t{65536}, size_t{100'000}}) {
      const LocalRange out = memory.range(kSent, bytes), in = memory.range(kReceived, bytes);
      for (const auto& started :
           {endpoint_->send_async(conn_, {&out, 1}), endpoint_->recv_async(conn_, {&in, 1}),
            endpoint_->write_async(conn_, {&out, 1}, {&nowhere, 1}), endpoint_->read_async(conn_, {&in, 1}, {&nowhere, 1})})
        operations.push_back(static_cast<uint64_t>(*started));
    }
    Anything anything(seed, operations, {slot.id, little.id});
    for (int said = 0; said < kFrames && peer_->goes_on(); ++said) anything.say_one(*peer_);
    leave();
    for (const uint64_t id : operations) {
      (void)endpoint_->wait(OperationId{id}, kCallTime);
      EXPECT_EQ(endpoint_->poll(OperationId{id}).state, OperationState::kUnknown) << "seed " << seed << ": one did not end";
    }
    (void)endpoint_->get_notifs();
    const auto same = [&](size_t first, size_t end) {
      return std::equal(before.begin() + static_cast<ptrdiff_t>(first), before.begin() + static_cast<ptrdiff_t>(end),
                        memory.bytes().begin() + static_cast<ptrdiff_t>(first));
    };
    EXPECT_TRUE(same(kSent, kReceived)) << "seed " << seed << ": a source was written";
    EXPECT_TRUE(same(kPrivate, 4 * kPart)) << "seed " << seed << ": memory was written that the peer had no name for";
  }
}

}  // namespace
}  // namespace tcpx::testing
