// A peer that says anything, to an endpoint with threads and sockets of its own: frames whose fields are plausible and make no sense
// together. Each operation ends once, memory that the peer was not given stays as it is and can be let go, and the other connection
// goes on. Lies of a peer that knows what is open are tested at a link (test_link_random_peer.cc).
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/hostile_peer.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

class EndpointRandomPeer : public HostilePeerTest {
 protected:
  EndpointRandomPeer() { allow_log("TCPX_E_"); }  // whichever error comes first
  void leave() {
    peer_.reset();
    EXPECT_TRUE(endpoint_->remove_connection(conn_).is_ok());
    EXPECT_TRUE(wait_until([&] { return endpoint_->stats().connections.size() == 1; })) << endpoint_->flight_record();
  }
};

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
