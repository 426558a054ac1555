// A peer that says anything: frames whose fields are plausible, one by one, and make no sense together. Whatever it says, every
// operation ends, memory that it was not given stays as it is, and the endpoint's other connections go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/hostile_peer.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {
namespace {

constexpr size_t kPart = 128 * 1024, kSent = 0, kReceived = kPart, kAdvertised = 2 * kPart, kPrivate = 3 * kPart;
constexpr int kFrames = 400;
constexpr size_t kFirstLong = 12;  // operation from which on they are too long to go inline

class Sayings {
 public:
  /// @param operations of the endpoint; @param offered those of them that it tells its peer of
  Sayings(uint64_t seed, std::vector<uint64_t> operations, std::vector<uint64_t> offered, std::vector<uint64_t> slots)
      : random_(seed), operations_(std::move(operations)), offered_(std::move(offered)), slots_(std::move(slots)) {}

  /// Mostly what a peer may say as things stand as far as it knows, else anything.
  void say_one(Peer& peer) {
    if (random_() % 16 == 0) return say_anything(peer);
    say_sensibly(peer);
  }

 private:
  void say_sensibly(Peer& peer) {
    OperationPayload payload;
    uint64_t bytes = this->bytes();
    if (random_() % 8 == 0) payload.has_notify = true, payload.notify_name = "name", payload.notify_text = "text";
    const std::vector<std::byte> data(bytes % kMaxInlineBytes, std::byte{0xdd});
    switch (random_() % 8) {
      case 0:
        payload.data = data;
        return peer.say(ControlType::kSendData, ++number_, sequence_++, data.size(), Packing::kWhole, &payload);
      case 1:
        return peer.say(ControlType::kSend, ++number_, sequence_++, bytes + 1, Packing::kWhole, &payload);
      case 2:
        payload.data = data;
        payload.ranges = ranges(data.size(), 1 + random_() % 3);
        return peer.say(ControlType::kWriteData, ++number_, 0, data.size(), Packing::kWhole, &payload);
      case 3:
        payload.ranges = ranges(bytes + 1, 1);
        return peer.say(ControlType::kWrite, ++number_, 0, bytes + 1, Packing::kWhole, &payload);
      case 4:
        payload = {.ranges = ranges(bytes, 1 + random_() % 3)};
        return peer.say(ControlType::kRead, ++number_, 0, bytes, Packing::kWhole, &payload);
      case 5:
        return peer.say_raw(make_header(ControlType::kNotify), encode_notify("name", "text"));
      case 6:  // of what was asked or offered before
        return peer.say(ControlType::kCancel, number_ - random_() % 3, sequence_ - 1, 1);
      default:
        return answer_one(peer);
    }
  }

  /// Each operation of the endpoint once: it refuses it, or lets it go.
  void answer_one(Peer& peer) {
    if (offered_.empty()) return;
    const uint64_t operation = offered_.back();
    offered_.pop_back();
    if (random_() % 2 == 0) return peer.say(ControlType::kGo, operation);
    const Status status(Code::kNotFound, "say", "nothing of the kind");
    peer.say_raw(make_header(ControlType::kDone, operation, static_cast<uint64_t>(status.code())), encode_status(status));
  }

  void say_anything(Peer& peer) {
    const auto type = static_cast<ControlType>(1 + random_() % kLastControlType);
    const auto packing = static_cast<Packing>(likely() ? 0 : random_() % 3);
    OperationPayload payload;
    std::vector<std::byte> data;
    uint64_t bytes = this->bytes();
    switch (type) {
      case ControlType::kSendData:
      case ControlType::kWriteData:
      case ControlType::kReadData:
        bytes %= kMaxInlineBytes;
        data.assign(bytes, std::byte{0xdd});
        payload.data = data;
        break;
      case ControlType::kBye:
        if (random_() % 64 != 0) return;  // little comes after it
        break;
      case ControlType::kPeer:
        return say_to_pipeline(peer);
      default:
        break;
    }
    if (type == ControlType::kWrite || type == ControlType::kWriteData || type == ControlType::kRead) {
      payload.ranges = ranges(bytes, type == ControlType::kWrite && packing == Packing::kWhole ? 1 : 1 + random_() % 3);
    }
    if (type == ControlType::kSend && packing == Packing::kRanges) payload.lengths = {bytes - bytes / 2, bytes / 2};
    const bool carries = type <= ControlType::kWriteData;
    if (carries && random_() % 8 == 0) payload.has_notify = true, payload.notify_name = "name", payload.notify_text = "text";
    if (type == ControlType::kDone || type == ControlType::kBye) {
      const Status status = likely() ? Status::ok() : Status(Code::kNotFound, "say", "nothing of the kind");
      const ControlHeader header = make_header(type, operation(), static_cast<uint64_t>(status.code()));
      return peer.say_raw(header, status.is_ok() ? std::vector<std::byte>{} : encode_status(status));
    }
    if (type == ControlType::kNotify) return peer.say_raw(make_header(type), encode_notify("name", "text"));
    const bool has_payload = type <= ControlType::kReadData;
    const ControlHeader header = make_header(type, operation(), random_() % 6, bytes, packing);
    if (type == ControlType::kReadData) return peer.say_raw(header, data);
    peer.say(type, header.operation, header.value, header.bytes, packing, has_payload ? &payload : nullptr);
  }

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
      ranges.push_back({likely() ? slots_[random_() % slots_.size()] : random_(), random_() % 4096, part});
      bytes -= part;
    }
    return ranges;
  }
  void say_to_pipeline(Peer& peer) {
    std::vector<std::byte> payload(random_() % 2 == 0 ? 8 : random_() % kMaxPeerMessageBytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random_() % 4);
    peer.say_raw(make_header(ControlType::kPeer, random_() % 3, random_() % 20), payload);
  }

  std::mt19937_64 random_;
  std::vector<uint64_t> operations_, offered_, slots_;
  uint64_t number_ = 1 << 20, sequence_ = 0;  // of the last operation of its own; of its next send
};

class EndpointRandomPeer : public ::testing::TestWithParam<uint64_t> {
 protected:
  EndpointRandomPeer() {
    allow_log("has ended: ");
    allow_log("TCPX_E_");  // whatever the first thing is that makes no sense
    std::tie(good_conn_, to_good_) = connect_pair(*good_, *endpoint_);
  }
  ~EndpointRandomPeer() override {
    EXPECT_TRUE(moves(*good_, good_conn_, *endpoint_, to_good_, 100)) << "the other connection";
    EXPECT_TRUE(moves(*endpoint_, to_good_, *good_, good_conn_, kPart)) << "the other connection";
  }

  /// One connection, from its set-up to its end. @return frames that were said before the endpoint ended it
  int talk(uint64_t seed) {
    Memory memory(*endpoint_, 4 * kPart);
    memory.fill(seed);
    const std::vector<std::byte> before = memory.bytes();
    auto accepted = std::async(std::launch::async, [&] { return endpoint_->accept(kCallTime); });
    std::optional<Peer> peer(port_of(*endpoint_));
    const ConnId conn = accepted.get().value().conn;
    const RemoteSlot slot = endpoint_->advertise(conn, memory.range(kAdvertised, kPart)).value();
    const RemoteSlot little = endpoint_->advertise(conn, memory.range(kAdvertised, 600)).value();
    const RemoteRange nowhere{slot, 0};  // of this endpoint: unknown to the peer, whose refusal it makes up

    std::vector<OperationId> operations;
    for (const size_t bytes : {size_t{8}, size_t{512}, size_t{16384}, size_t{65536}, size_t{100'000}}) {
      const LocalRange out = memory.range(kSent, bytes), in = memory.range(kReceived, bytes);
      operations.push_back(endpoint_->send_async(conn, {&out, 1}).value());
      operations.push_back(endpoint_->recv_async(conn, {&in, 1}).value());
      operations.push_back(endpoint_->write_async(conn, {&out, 1}, {&nowhere, 1}).value());
      operations.push_back(endpoint_->read_async(conn, {&in, 1}, {&nowhere, 1}).value());
    }
    std::vector<uint64_t> ids, offered;
    for (size_t i = 0; i < operations.size(); ++i) {
      ids.push_back(static_cast<uint64_t>(operations[i]));
      const bool goes_out = i >= kFirstLong && i % 4 != 1;  // short sends and writes are not offered, nor are receives
      if (goes_out) offered.push_back(ids.back());
    }
    Sayings sayings(seed, ids, offered, {slot.id, little.id});
    int said = 0;
    while (said < kFrames && peer->goes_on()) sayings.say_one(*peer), ++said;
    peer.reset();

    for (const OperationId id : operations) {
      (void)endpoint_->wait(id, kCallTime);
      EXPECT_EQ(endpoint_->poll(id).state, OperationState::kUnknown) << "seed " << seed << ": an operation did not end";
    }
    EXPECT_TRUE(endpoint_->remove_connection(conn).is_ok());
    EXPECT_TRUE(wait_until([&] { return endpoint_->stats().connections.size() == 1; })) << endpoint_->flight_record();
    (void)endpoint_->get_notifs();
    const auto same = [&](size_t first, size_t end) {
      return std::equal(before.begin() + static_cast<ptrdiff_t>(first), before.begin() + static_cast<ptrdiff_t>(end),
                        memory.bytes().begin() + static_cast<ptrdiff_t>(first));
    };
    EXPECT_TRUE(same(kSent, kReceived)) << "seed " << seed << ": a source was written";
    EXPECT_TRUE(same(kPrivate, 4 * kPart)) << "seed " << seed << ": memory was written that the peer had no name for";
    return said;
  }

  std::unique_ptr<Endpoint> good_ = make_endpoint(), endpoint_ = make_endpoint();
  ConnId good_conn_{}, to_good_{};
};

TEST_P(EndpointRandomPeer, EndsEveryOperationAndTouchesNothingElse) {
  int said = 0;
  constexpr uint64_t kTalks = 10;
  for (uint64_t i = 0; i < kTalks && !HasFailure(); ++i) said += talk(GetParam() * kTalks + i);
  RecordProperty("frames", said);
  EXPECT_GT(said, static_cast<int>(kTalks)) << "the first frame ends every talk: they are not plausible";
}

INSTANTIATE_TEST_SUITE_P(Seeds, EndpointRandomPeer, ::testing::Range(uint64_t{0}, uint64_t{6}));

}  // namespace
}  // namespace tcpx::testing
