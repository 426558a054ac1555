// Peers that set a connection up properly and then say what no endpoint says: the endpoint refuses it or ends that connection,
// every operation on it ends, and the other connections go on.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <tuple>
#include <vector>

#include "endpoint/credit_windows.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/hostile_peer.h"

namespace tcpx::testing {
namespace {

constexpr size_t kBulk = 256 * 1024;

/// An endpoint with two connections: one to a well-behaved endpoint, one to a peer that is not.
class EndpointHostile : public ::testing::Test {
 protected:
  EndpointHostile() : good_(make_endpoint()), endpoint_(make_endpoint()), memory_(*endpoint_, 4 * kBulk) {
    memory_.fill(3);
    std::tie(good_conn_, to_good_) = connect_pair(*good_, *endpoint_);
    auto accepted = std::async(std::launch::async, [&] { return endpoint_->accept(kCallTime); });
    peer_.emplace(port_of(*endpoint_));
    conn_ = accepted.get().value().conn;
    allow_log("has ended: ");
    allow_log("TCPX_E_PEER_GONE");  // of the plugin, which may see it first
  }
  ~EndpointHostile() override {
    EXPECT_TRUE(moves(*good_, good_conn_, *endpoint_, to_good_, 100)) << "the other connection";
    EXPECT_TRUE(moves(*endpoint_, to_good_, *good_, good_conn_, kBulk)) << "the other connection";
  }

  OperationId start_send(std::vector<LocalRange> ranges) { return endpoint_->send_async(conn_, ranges).value(); }
  OperationId start_recv(std::vector<LocalRange> ranges) { return endpoint_->recv_async(conn_, ranges).value(); }
  /// A slot of this endpoint, for the peer.
  RemoteSlot advertised(size_t offset, size_t bytes) { return endpoint_->advertise(conn_, memory_.range(offset, bytes)).value(); }
  /// The connection has ended for what the peer did, which it sees, and so has every operation.
  void expect_ended(const std::vector<OperationId>& operations, Code code = Code::kProtocol) {
    for (const OperationId id : operations) {
      const Status status = endpoint_->wait(id, kCallTime);
      EXPECT_EQ(status.code(), code) << status.to_string();
      EXPECT_EQ(endpoint_->poll(id).state, OperationState::kUnknown);
    }
    EXPECT_TRUE(wait_until([&] { return !is_alive(); }));
    EXPECT_TRUE(peer_->hears_the_end());
    const auto late = endpoint_->send_async(conn_, std::span<const LocalRange>());
    ASSERT_TRUE(late.is_ok());
    EXPECT_EQ(endpoint_->wait(*late, kCallTime).code(), code);
  }
  /// Still of use: a message goes through in each direction.
  void expect_alive() {
    const OperationId received = start_recv({memory_.range(0, 8)});
    const std::vector<std::byte> bytes(8, std::byte{0x5a});
    OperationPayload payload;
    payload.data = bytes;
    peer_->say(ControlType::kSendData, 900, receives_++, 8, Packing::kWhole, &payload);
    const Status status = endpoint_->wait(received, kCallTime);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(memory_.bytes()[7], std::byte{0x5a});
    EXPECT_TRUE(endpoint_->wait(start_send({memory_.range(0, 8)}), kCallTime).is_ok());
    EXPECT_TRUE(peer_->hear(ControlType::kSendData).has_value());
    EXPECT_TRUE(is_alive());
  }
  uint64_t pending() {
    for (const ConnectionStats& stats : endpoint_->stats().connections) {
      if (stats.conn == conn_) return stats.operations_pending;
    }
    return 0;
  }
  bool is_alive() {
    for (const ConnectionStats& stats : endpoint_->stats().connections) {
      if (stats.conn == conn_) return stats.alive;
    }
    return false;
  }

  std::unique_ptr<Endpoint> good_, endpoint_;
  Memory memory_;
  ConnId good_conn_{}, to_good_{}, conn_{};
  std::optional<Peer> peer_;
  uint64_t receives_ = 0;  // sequence of the next one
};

TEST_F(EndpointHostile, AGoForNothing) {
  peer_->say(ControlType::kGo, 12345);
  expect_ended({});
}

TEST_F(EndpointHostile, AGoForAReadThatNobodyAsked) {
  peer_->say(ControlType::kGo, 1, 1);
  expect_ended({});
}

TEST_F(EndpointHostile, AGoTwice) {
  const OperationId send = start_send({memory_.range(0, kBulk)});
  const auto offer = peer_->hear(ControlType::kSend);
  ASSERT_TRUE(offer.has_value());
  peer_->say(ControlType::kGo, offer->operation);
  peer_->say(ControlType::kGo, offer->operation);
  (void)endpoint_->wait(send, kCallTime);  // the plugin may have taken everything before the second one came
  EXPECT_EQ(endpoint_->poll(send).state, OperationState::kUnknown);
  expect_ended({});
}

// The operation had no phase left in which anything would have ended it.
TEST_F(EndpointHostile, AVectorThatIsToTravelAsAWhole) {
  const OperationId send = start_send({memory_.range(0, kBulk), memory_.range(2 * kBulk, kBulk)});
  const auto offer = peer_->hear(ControlType::kSend);
  ASSERT_TRUE(offer.has_value());
  peer_->say(ControlType::kGo, offer->operation, 0, 0, Packing::kWhole);
  expect_ended({send});
}

// The ids of operations are numbers that a peer may guess.
TEST_F(EndpointHostile, ADoneForAReceive) {
  const OperationId receive = start_recv({memory_.range(0, kBulk)});
  ASSERT_TRUE(wait_until([&] { return pending() == 1; }));
  peer_->say(ControlType::kDone, static_cast<uint64_t>(receive));
  expect_ended({receive});
}

TEST_F(EndpointHostile, ADoneForASendThatWasOnlyOffered) {
  const OperationId send = start_send({memory_.range(0, kBulk)});
  const auto offer = peer_->hear(ControlType::kSend);
  ASSERT_TRUE(offer.has_value());
  peer_->say(ControlType::kDone, offer->operation);
  expect_ended({send});
}

// It ends nothing there: operations of other connections are no operations here.
TEST_F(EndpointHostile, ADoneForAnOperationOfAnotherConnection) {
  const LocalRange range = memory_.range(0, kBulk);
  const OperationId other = endpoint_->recv_async(to_good_, {&range, 1}).value();
  peer_->say(ControlType::kDone, static_cast<uint64_t>(other), static_cast<uint64_t>(Code::kCancelled));
  peer_->say(ControlType::kCancel, static_cast<uint64_t>(other), 1'000'000, 1);
  peer_->say(ControlType::kReady, static_cast<uint64_t>(other));
  ASSERT_TRUE(peer_->hear(ControlType::kCancel).has_value());
  EXPECT_EQ(endpoint_->poll(other).state, OperationState::kPending);
  expect_alive();
  Memory source(*good_, kBulk);
  const LocalRange out = source.whole();
  EXPECT_TRUE(good_->send(good_conn_, {&out, 1}).is_ok());
  EXPECT_TRUE(endpoint_->wait(other, kCallTime).is_ok());
}

TEST_F(EndpointHostile, CreditThatIsNotOwed) {
  peer_->say(ControlType::kCredit, 0, 0, 1);
  expect_ended({});
}

TEST_F(EndpointHostile, CreditForAWindowThatIsNone) {
  peer_->say(ControlType::kCredit, kWindows, 0, 0);
  expect_ended({});
}

TEST_F(EndpointHostile, TheSameSequenceTwice) {
  OperationPayload payload;
  for (int i = 0; i < 2; ++i) peer_->say(ControlType::kSendData, 1, 77, 0, Packing::kWhole, &payload);
  expect_ended({});
}

TEST_F(EndpointHostile, SlotsThatAreNone) {
  const RemoteSlot real = advertised(kBulk, 4096);
  const LocalRange range = memory_.range(0, 4096);
  const RemoteSlot others = endpoint_->advertise(to_good_, range).value();  // of another connection
  const std::vector<std::byte> bytes(8, std::byte{0xee});
  const std::vector<std::byte> before = memory_.bytes();
  for (const WireRange& forged : {WireRange{0, 0, 8}, WireRange{real.id + 1, 0, 8}, WireRange{real.id, 4089, 8},
                                  WireRange{real.id, uint64_t{1} << 63, 8}, WireRange{others.id, 0, 8}}) {
    OperationPayload payload;
    payload.ranges = {forged};
    peer_->say(ControlType::kRead, 5, 0, 8, Packing::kWhole, &payload);
    auto answer = peer_->hear(ControlType::kDone);
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(answer->value, 0u);
    peer_->say(ControlType::kWrite, 6, 0, 8, Packing::kWhole, &payload);
    answer = peer_->hear(ControlType::kDone);
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(answer->value, 0u);
    payload.data = bytes;
    peer_->say(ControlType::kWriteData, 7, 0, 8, Packing::kWhole, &payload);
    answer = peer_->hear(ControlType::kDone);
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(answer->value, 0u);
  }
  EXPECT_EQ(memory_.bytes(), before);
  expect_alive();
}

TEST_F(EndpointHostile, ReadyForASend) {
  const OperationId send = start_send({memory_.range(0, kBulk)});
  const auto offer = peer_->hear(ControlType::kSend);
  ASSERT_TRUE(offer.has_value());
  peer_->say(ControlType::kReady, offer->operation);
  expect_ended({send});
}

TEST_F(EndpointHostile, ReadDataThatNobodyAskedFor) {
  const OperationId receive = start_recv({memory_.range(0, 8)});
  ASSERT_TRUE(wait_until([&] { return pending() == 1; }));
  const std::vector<std::byte> bytes(8);
  peer_->say_raw(make_header(ControlType::kReadData, static_cast<uint64_t>(receive), 0, 8), bytes);
  expect_ended({receive});
}

// The excess over the answer was once read from behind it: memory of this process, which the reader then has.
TEST_F(EndpointHostile, AReadAnsweredWithAnotherNumberOfBytes) {
  const std::vector<std::byte> before = memory_.bytes();
  const LocalRange range = memory_.range(0, kBulk);
  RemoteSlot slot = advertised(kBulk, kBulk);  // its own, which the peer is asked for as if it were the peer's
  const RemoteRange remote{slot, 0};
  const OperationId read = endpoint_->read_async(conn_, {&range, 1}, {&remote, 1}).value();
  const auto asked = peer_->hear(ControlType::kRead);
  ASSERT_TRUE(asked.has_value());
  const std::vector<std::byte> bytes(8);
  peer_->say_raw(make_header(ControlType::kReadData, asked->operation, 0, bytes.size()), bytes);
  expect_ended({read});
  EXPECT_EQ(memory_.bytes(), before);
}

TEST_F(EndpointHostile, HugeCounts) {
  const OperationCounts counts{.lengths = 0xffffffff,
                               .ranges = 0xffffffff,
                               .notify_count = 0xffff,
                               .notify_name_bytes = 0xffff,
                               .notify_text_bytes = 0xffff,
                               .reserved = 0};
  peer_->say_raw(make_header(ControlType::kWrite, 1, 0, ~uint64_t{0}), std::as_bytes(std::span(&counts, 1)));
  expect_ended({});
}

TEST_F(EndpointHostile, ASendLargerThanMemory) {
  const OperationId receive = start_recv({memory_.range(0, 8)});
  OperationPayload payload;
  peer_->say(ControlType::kSend, 1, receives_++, uint64_t{1} << 60, Packing::kWhole, &payload);
  const Status status = endpoint_->wait(receive, kCallTime);
  EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  expect_alive();
}

// A transfer of no bytes has no ranges to cut.
TEST_F(EndpointHostile, ASendOfNothingThatIsNotInline) {
  const OperationId receive = start_recv({});
  ASSERT_TRUE(wait_until([&] { return pending() == 1; }));
  OperationPayload payload;
  peer_->say(ControlType::kSend, 1, 0, 0, Packing::kPacked, &payload);
  expect_ended({receive});
}

TEST_F(EndpointHostile, CancelOfEverything) {
  std::vector<OperationId> receives;
  for (int i = 0; i < 10; ++i) receives.push_back(start_recv({memory_.range(0, 8)}));
  for (uint64_t sequence = 0; sequence < 1000; ++sequence) peer_->say(ControlType::kCancel, 1, sequence);
  for (const OperationId id : receives) EXPECT_EQ(endpoint_->wait(id, kCallTime).code(), Code::kCancelled);
  EXPECT_EQ(endpoint_->wait(start_recv({memory_.range(0, 8)}), kCallTime).code(), Code::kCancelled);
  EXPECT_TRUE(is_alive());
  peer_->say(ControlType::kCancel, 1, 500);
  expect_ended({});
}

TEST_F(EndpointHostile, DataAfterTheEnd) {
  const OperationId receive = start_recv({memory_.range(0, kBulk)});
  const OperationId send = start_send({memory_.range(0, kBulk)});
  ASSERT_TRUE(peer_->hear(ControlType::kSend).has_value());
  peer_->say(ControlType::kBye);
  OperationPayload payload;
  for (uint64_t i = 0; i < 100; ++i) peer_->say(ControlType::kSend, i, 10 + i, kBulk, Packing::kWhole, &payload);
  expect_ended({receive, send}, Code::kPeerGone);
}

// More than the window lets a peer have under way is memory that only its good will would bound.
TEST_F(EndpointHostile, MoreInlineDataThanTheWindow) {
  const std::vector<std::byte> bytes(kMaxInlineBytes);
  OperationPayload payload;
  payload.data = bytes;
  for (uint64_t i = 0; i <= kInlineWindowBytes / window_cost(kMaxInlineBytes); ++i)
    peer_->say(ControlType::kSendData, 1, 1000 + i, bytes.size(), Packing::kWhole, &payload);
  expect_ended({});
}

TEST_F(EndpointHostile, WhatIsNoFrame) {
  const OperationId receive = start_recv({memory_.range(0, 8)});
  ASSERT_TRUE(wait_until([&] { return pending() == 1; }));
  ControlHeader header = make_header(ControlType::kSend);
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
  peer_->say(ControlType::kWrite, 3, 0, kBulk, Packing::kWhole, &payload);
  ASSERT_TRUE(peer_->hear(ControlType::kGo).has_value());
  peer_.reset();
  EXPECT_TRUE(wait_until([&] { return !is_alive(); }));
}

}  // namespace
}  // namespace tcpx::testing
