// Peers that set a connection up properly and then say what no endpoint says: the endpoint refuses it or ends that connection,
// every operation on it ends, and the other connections go on. False frames one by one are tested at a link (test_link_frames.cc),
// and in the state of a long talk by a peer that knows what is open (test_endpoint_random_peer.cc).
#include <gtest/gtest.h>

#include <vector>

#include "wire/credit_windows.h"
#include "tests/support/hostile_peer.h"

namespace tcpx::testing {
namespace {

class EndpointHostile : public HostilePeerTest {
 protected:
  EndpointHostile() : memory_(*endpoint_, 4 * kBulk) {
    memory_.fill(3);
    meet();
  }
  OperationId start_send(size_t bytes) { return endpoint_->send_async(conn_, memory_.range(0, bytes)).value(); }
  OperationId start_recv(size_t bytes) { return endpoint_->recv_async(conn_, memory_.range(0, bytes)).value(); }
  /// The connection has ended for what the peer did, which it sees, and so has every operation.
  void expect_ended(const std::vector<OperationId>& operations, Code code = Code::kProtocol) {
    for (const OperationId id : operations) {
      const Status status = endpoint_->wait(id, kCallTime);
      EXPECT_EQ(status.code(), code) << status.to_string();
      EXPECT_EQ(endpoint_->poll(id).state, OperationState::kUnknown);
    }
    EXPECT_TRUE(wait_until([&] { return !alive(); }));
    EXPECT_TRUE(peer_->hears_the_end());
    const auto late = endpoint_->send_async(conn_, std::span<const LocalRange>());
    ASSERT_TRUE(late.is_ok());
    EXPECT_EQ(endpoint_->wait(*late, kCallTime).code(), code);
  }
  /// Still of use: a message goes through in each direction.
  void expect_alive() {
    const OperationId received = start_recv(8);
    const std::vector<std::byte> bytes(8, std::byte{0x5a});
    OperationPayload payload;
    payload.data = bytes;
    peer_->say(FrameType::kSendData, 900, receives_++, 8, Packing::kWhole, &payload);
    const Status status = endpoint_->wait(received, kCallTime);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(memory_.bytes()[7], std::byte{0x5a});
    EXPECT_TRUE(endpoint_->wait(start_send(8), kCallTime).is_ok());
    EXPECT_TRUE(peer_->hear(FrameType::kSendData).has_value());
    EXPECT_TRUE(alive());
  }

  Memory memory_;
  uint64_t receives_ = 0;  // sequence of the next one
};

// It ends nothing there: operations of other connections are no operations here.
TEST_F(EndpointHostile, ADoneForAnOperationOfAnotherConnection) {
  const LocalRange range = memory_.range(0, kBulk);
  const OperationId other = endpoint_->recv_async(to_good_, {&range, 1}).value();
  peer_->say(FrameType::kDone, static_cast<uint64_t>(other), static_cast<uint64_t>(Code::kCancelled));
  peer_->say(FrameType::kCancel, static_cast<uint64_t>(other), 1'000'000, 1);
  peer_->say(FrameType::kReady, static_cast<uint64_t>(other));
  ASSERT_TRUE(peer_->hear(FrameType::kCancel).has_value());
  EXPECT_EQ(endpoint_->poll(other).state, OperationState::kPending);
  expect_alive();
  Memory source(*good_, kBulk);
  const LocalRange out = source.whole();
  EXPECT_TRUE(good_->send(good_conn_, {&out, 1}).is_ok());
  EXPECT_TRUE(endpoint_->wait(other, kCallTime).is_ok());
}

TEST_F(EndpointHostile, SlotsThatAreNone) {
  const LocalRange range = memory_.range(0, 4096);
  const SlotId real = endpoint_->advertise(conn_, memory_.range(kBulk, 4096)).value().id;
  const SlotId others = endpoint_->advertise(to_good_, range).value().id;  // of another connection
  const std::vector<std::byte> bytes(8, std::byte{0xee});
  const std::vector<std::byte> before = memory_.bytes();
  for (const WireRange& forged :
       {WireRange{{}, 0, 8}, WireRange{{real.high, real.low + 1}, 0, 8}, WireRange{{real.high ^ 1, real.low}, 0, 8},
        WireRange{real, 4089, 8}, WireRange{real, uint64_t{1} << 63, 8}, WireRange{others, 0, 8}}) {
    for (const FrameType type : {FrameType::kRead, FrameType::kWrite, FrameType::kWriteData}) {
      OperationPayload payload;
      payload.ranges = {forged};
      if (type == FrameType::kWriteData) payload.data = bytes;
      peer_->say(type, 5, 0, 8, Packing::kWhole, &payload);
      const auto answer = peer_->hear(FrameType::kDone);
      ASSERT_TRUE(answer.has_value());
      EXPECT_NE(answer->value, 0u);
    }
  }
  EXPECT_EQ(memory_.bytes(), before);
  expect_alive();
}

TEST_F(EndpointHostile, ASendLargerThanMemory) {
  const OperationId receive = start_recv(8);
  OperationPayload payload;
  peer_->say(FrameType::kSend, 1, receives_++, uint64_t{1} << 60, Packing::kWhole, &payload);
  const Status status = endpoint_->wait(receive, kCallTime);
  EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  expect_alive();
}

TEST_F(EndpointHostile, CancelOfEverything) {
  std::vector<OperationId> receives;
  for (int i = 0; i < 10; ++i) receives.push_back(start_recv(8));
  for (uint64_t sequence = 0; sequence < 1000; ++sequence) peer_->say(FrameType::kCancel, 1, sequence);
  for (const OperationId id : receives) EXPECT_EQ(endpoint_->wait(id, kCallTime).code(), Code::kCancelled);
  EXPECT_EQ(endpoint_->wait(start_recv(8), kCallTime).code(), Code::kCancelled);
  EXPECT_TRUE(alive());
  peer_->say(FrameType::kCancel, 1, 500);
  expect_ended({});
}

TEST_F(EndpointHostile, DataAfterTheEnd) {
  const OperationId receive = start_recv(kBulk);
  const OperationId send = start_send(kBulk);
  ASSERT_TRUE(peer_->hear(FrameType::kSend).has_value());
  peer_->say(FrameType::kBye);
  OperationPayload payload;
  for (uint64_t i = 0; i < 100; ++i) peer_->say(FrameType::kSend, i, 10 + i, kBulk, Packing::kWhole, &payload);
  expect_ended({receive, send}, Code::kPeerGone);
}

// More than the window lets a peer have under way is memory that only its good will would bound.
TEST_F(EndpointHostile, MoreInlineDataThanTheWindow) {
  const std::vector<std::byte> bytes(kMaxInlineBytes);
  OperationPayload payload;
  payload.data = bytes;
  for (uint64_t i = 0; i <= kInlineWindowBytes / window_cost(kMaxInlineBytes); ++i)
    peer_->say(FrameType::kSendData, 1, 1000 + i, bytes.size(), Packing::kWhole, &payload);
  EXPECT_TRUE(peer_->hears_the_end()) << "as soon as all of it has left";
  expect_ended({});
}

TEST_F(EndpointHostile, WhatIsNoFrame) {
  const OperationId receive = start_recv(8);
  ASSERT_TRUE(wait_until([&] { return stats_of(*endpoint_, conn_).operations_pending == 1; }));
  FrameHeader header = make_header(FrameType::kSend);
  header.magic = 0x1234;
  peer_->say_raw(header, {});
  expect_ended({receive});
}

// It has the right to write there, and takes its time: the memory stays until the connection ends.
TEST_F(EndpointHostile, AWriteThatNeverComes) {
  Memory target(*endpoint_, kBulk);
  const RemoteSlot slot = endpoint_->advertise(conn_, target.whole()).value();
  OperationPayload payload;
  payload.ranges = {{slot.id, 0, kBulk}};
  peer_->say(FrameType::kWrite, 3, 0, kBulk, Packing::kWhole, &payload);
  ASSERT_TRUE(peer_->hear(FrameType::kGo).has_value());
  peer_.reset();
  EXPECT_TRUE(wait_until([&] { return !alive(); }));
}

}  // namespace
}  // namespace tcpx::testing
