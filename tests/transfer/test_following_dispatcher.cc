// FollowingDispatcher: posts what has been granted and nothing else, each channel in the order of its grants.
#include "transfer/following_dispatcher.h"

#include <gtest/gtest.h>

#include "tests/support/dispatcher_fixture.h"

namespace tcpx {
namespace {

using testing::DispatcherFixture;

Status grant(DispatcherFixture& f, const GrantHeader& header, std::vector<uint8_t> over) {
  std::array<std::byte, kMaxPeerMessageBytes> room;
  return f.take(PeerMessage::kGrant, encode_grant(room, {.header = header, .channels = over}));
}

Status regrant(DispatcherFixture& f, uint64_t transfer, uint64_t bytes, uint64_t chunk, uint32_t channel) {
  std::array<std::byte, kMaxPeerMessageBytes> room;
  const Regrant message{.transfer = transfer, .transfer_bytes = bytes, .chunk = chunk, .channel = channel, .reserved = 0};
  return f.take(PeerMessage::kRegrant, encode_regrant(room, message));
}

constexpr GrantHeader first_chunks(uint64_t transfer, uint64_t bytes, uint32_t count) {
  return {.transfer = transfer, .transfer_bytes = bytes, .first_chunk = 0, .count = count, .reserved = 0};
}

TEST(FollowingDispatcher, PostsWhatWasGrantedWhereItWasGranted) {
  DispatcherFixture f(Direction::kSend, 2);
  EXPECT_TRUE(f.dispatcher->waits_for_peer());
  f.submit(3 * 4096);
  EXPECT_FALSE(f.post()) << "nothing was granted";
  EXPECT_TRUE(grant(f, first_chunks(1, 3 * 4096, 2), {1, 1}).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_EQ(f.channels[0].in_flight(), 0u);
  EXPECT_EQ(f.channels[1].in_flight(), 2u);
  EXPECT_TRUE(f.dispatcher->needs_peer()) << "the third chunk";
  EXPECT_TRUE(grant(f, {.transfer = 1, .transfer_bytes = 3 * 4096, .first_chunk = 2, .count = 1, .reserved = 0}, {0}).is_ok());
  EXPECT_FALSE(f.dispatcher->needs_peer());
  EXPECT_TRUE(f.post());
  EXPECT_TRUE(f.finish(1, 1, 2).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kPending);
  EXPECT_TRUE(f.finish(0, 1, 1).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kDone);
  EXPECT_TRUE(f.said().empty()) << "without failover a sender has nothing to say";
}

TEST(FollowingDispatcher, AReceiverMayBeAhead) {
  DispatcherFixture f(Direction::kSend, 2);
  EXPECT_TRUE(grant(f, first_chunks(1, 4096, 1), {0}).is_ok());
  EXPECT_FALSE(f.post());
  EXPECT_EQ(f.dispatcher->waiting_for(0), ", 1 chunks granted and not posted");
  f.submit(4096);
  EXPECT_TRUE(f.post());
  EXPECT_EQ(f.dispatcher->waiting_for(0), ", 0 chunks granted and not posted");
}

TEST(FollowingDispatcher, ASizeThatIsNotTheReceiversIsNotSent) {
  DispatcherFixture f(Direction::kSend, 2);
  f.submit(4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 8192, 1), {0}).is_ok());
  EXPECT_EQ(f.dispatcher->post({}).status().code(), Code::kMismatch);
  EXPECT_EQ(f.channels.in_flight(), 0u);
}

TEST(FollowingDispatcher, ChunksAreGrantedOnceAndInOrder) {
  DispatcherFixture f(Direction::kSend, 2);
  f.submit(3 * 4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 3 * 4096, 2), {0, 1}).is_ok());
  EXPECT_EQ(grant(f, first_chunks(1, 3 * 4096, 2), {0, 1}).code(), Code::kProtocol) << "again";
  EXPECT_EQ(grant(f, first_chunks(2, 4096, 1), {0}).code(), Code::kProtocol) << "the third is left out";
  EXPECT_EQ(regrant(f, 1, 3 * 4096, 0, 1).code(), Code::kProtocol) << "without failover";
}

TEST(FollowingDispatcher, WhatWaitsToBePostedIsBounded) {
  DispatcherFixture f(Direction::kSend, 2);
  constexpr uint64_t kBytes = 2 * kMaxPlacedChunks * DispatcherFixture::kChunkBytes;
  GrantHeader header{.transfer = 1, .transfer_bytes = kBytes, .first_chunk = 0, .count = kMaxGrantChunks, .reserved = 0};
  for (; header.first_chunk < kMaxPlacedChunks; header.first_chunk += header.count)
    EXPECT_TRUE(grant(f, header, std::vector<uint8_t>(header.count, header.first_chunk == 0 ? 0 : 1)).is_ok());
  header.count = 1;
  for (const uint8_t channel : {0, 1}) EXPECT_EQ(grant(f, header, {channel}).code(), Code::kProtocol);
}

// At a receiver.
class FollowingReceiver : public ::testing::Test {
 protected:
  DispatcherFixture f{Direction::kRecv, 2, false, kQueueDepth, true};

  /// Chunks of each channel that the sender was told of since the last call.
  std::vector<std::pair<uint32_t, uint64_t>> told() {
    std::vector<std::pair<uint32_t, uint64_t>> all;
    for (const auto& [type, payload] : f.said()) {
      EXPECT_EQ(type, PeerMessage::kDelivered);
      const auto delivered = decode_delivered(payload, 2);
      EXPECT_TRUE(delivered.is_ok()) << delivered.status().to_string();
      all.emplace_back(delivered->channel, delivered->chunks);
    }
    return all;
  }
};

TEST_F(FollowingReceiver, TellsOfAFewDeliveriesAtATime) {
  f.submit(8 * 4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 8 * 4096, 8), {0, 0, 0, 0, 0, 0, 0, 1}).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_TRUE(f.finish(0, 1, 3).is_ok());
  EXPECT_TRUE(told().empty());
  EXPECT_TRUE(f.finish(0, 1, 1).is_ok());
  EXPECT_EQ(told(), (std::vector<std::pair<uint32_t, uint64_t>>{{0, 4}}));
  EXPECT_TRUE(f.finish(0, 1, 3).is_ok());
  EXPECT_TRUE(told().empty());
  EXPECT_TRUE(f.finish(1, 1, 1).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kDone);
}

TEST_F(FollowingReceiver, TellsOfTheLastOnesAtOnce) {
  f.submit(2 * 4096);
  EXPECT_TRUE(f.dispatcher->needs_peer());
  EXPECT_TRUE(grant(f, first_chunks(1, 2 * 4096, 1), {1}).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_TRUE(f.finish(0, 1, 1).is_ok()) << "nothing waits or is under way on channel 0";
  EXPECT_EQ(told(), (std::vector<std::pair<uint32_t, uint64_t>>{{0, 1}}));
  EXPECT_TRUE(f.finish(1, 1, 1).is_ok()) << "of a fake: one is still under way";
  EXPECT_TRUE(told().empty());
}

TEST_F(FollowingReceiver, ASizeThatIsNotTheSendersIsNamedAsSuch) {
  f.submit(4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 8192, 1), {0}).is_ok());
  const Status status = f.dispatcher->post({}).status();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.detail().find("8192 bytes at the sender and 4096 at the receiver"), std::string::npos) << status.to_string();
}

TEST(FollowingDispatcher, WithFailoverATransferEndsWithTheAcknowledgement) {
  DispatcherFixture f(Direction::kSend, 2, true);
  f.submit(4096);
  const auto said = f.said();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].first, PeerMessage::kSubmitted);
  EXPECT_EQ(decode_transfer_number(said[0].second).value(), 1u);
  EXPECT_EQ(f.take_number(PeerMessage::kReceived, 1).code(), Code::kProtocol) << "it was not granted yet";
  EXPECT_TRUE(grant(f, first_chunks(1, 4096, 1), {0}).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_TRUE(f.finish(0, 1, 1).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kPending) << "the plugin has the bytes, the peer may not";
  EXPECT_TRUE(f.dispatcher->needs_peer());
  EXPECT_TRUE(f.take_number(PeerMessage::kReceived, 1).is_ok());
  EXPECT_FALSE(f.dispatcher->needs_peer());
  EXPECT_EQ(f.state(1), TransferState::kDone);
  EXPECT_EQ(f.take_number(PeerMessage::kReceived, 1).code(), Code::kProtocol) << "twice";
}

TEST(FollowingDispatcher, AnAcknowledgedTransferWaitsForThePluginToLetGoOfItsMemory) {
  DispatcherFixture f(Direction::kSend, 2, true);
  f.submit(4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 4096, 1), {0}).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_TRUE(f.take_number(PeerMessage::kReceived, 1).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kPending);
  f.lose(0);
  EXPECT_EQ(f.state(1), TransferState::kDone);
}

TEST(FollowingDispatcher, ALostChannelsChunksAreSentWhenTheyAreAskedForAgain) {
  DispatcherFixture f(Direction::kSend, 2, true);
  f.submit(3 * 4096);
  EXPECT_TRUE(grant(f, first_chunks(1, 3 * 4096, 2), {0, 0}).is_ok());
  EXPECT_TRUE(f.post());
  f.lose(0);
  EXPECT_EQ(f.transfers[1].outstanding, 0u);
  EXPECT_FALSE(f.post());
  EXPECT_TRUE(regrant(f, 1, 3 * 4096, 0, 1).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_EQ(f.channels[1].in_flight(), 1u);
  EXPECT_EQ(regrant(f, 1, 3 * 4096, 2, 1).code(), Code::kProtocol) << "this was not granted before";
  EXPECT_TRUE(grant(f, {.transfer = 1, .transfer_bytes = 3 * 4096, .first_chunk = 2, .count = 1, .reserved = 0}, {0}).is_ok())
      << "the receiver does not know yet that the channel is gone";
  EXPECT_EQ(f.dispatcher->waiting_for(0), ", 0 chunks granted and not posted");
}

TEST(FollowingDispatcher, AReceiversMessagesAreNotForIt) {
  DispatcherFixture f(Direction::kSend, 2, true);
  EXPECT_EQ(f.take_number(PeerMessage::kSubmitted, 1).code(), Code::kProtocol);
}

}  // namespace
}  // namespace tcpx
