// PlacingDispatcher: places chunks, posts them and says so; with failover it waits for the sender and asks again for what was
// lost.
#include "transfer/placing_dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/dispatcher_fixture.h"

namespace tcpx {
namespace {

using testing::DispatcherFixture;

/// The channels named in a grant of `transfer` that begins with chunk `first`.
std::vector<uint8_t> granted(const std::pair<PeerMessage, std::vector<std::byte>>& message, uint64_t transfer, uint64_t first) {
  EXPECT_EQ(message.first, PeerMessage::kGrant);
  const auto grant = decode_grant(message.second, 2);
  EXPECT_TRUE(grant.is_ok()) << grant.status().to_string();
  EXPECT_EQ(grant->header.transfer, transfer);
  EXPECT_EQ(grant->header.first_chunk, first);
  return {grant->channels.begin(), grant->channels.end()};
}

TEST(PlacingDispatcher, GrantsWhatItHasPostedAndNoMore) {
  DispatcherFixture f(Direction::kRecv, 2, false, 2);
  f.submit(7 * 4096);
  EXPECT_TRUE(f.dispatcher->needs_peer());
  EXPECT_FALSE(f.dispatcher->waits_for_peer());
  EXPECT_TRUE(f.post());
  const auto said = f.said();
  ASSERT_EQ(said.size(), 1u);
  const auto channels = granted(said[0], 1, 0);
  EXPECT_EQ(channels.size(), 4u) << "two windows";
  EXPECT_EQ(std::count(channels.begin(), channels.end(), 0), 2);
  EXPECT_EQ(f.channels.in_flight(), 4u);
  EXPECT_FALSE(f.post());
  EXPECT_EQ(f.dispatcher->waiting(), "\ntransfer 1: 4 of 7 chunks granted");
}

TEST(PlacingDispatcher, EachTransferIsGrantedOnItsOwn) {
  DispatcherFixture f(Direction::kRecv, 2);
  f.submit(4096);
  f.submit(8192);
  EXPECT_TRUE(f.post());
  const auto said = f.said();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(granted(said[0], 1, 0).size(), 1u);
  EXPECT_EQ(granted(said[1], 2, 0).size(), 2u);
  EXPECT_FALSE(f.dispatcher->needs_peer());
  EXPECT_TRUE(f.finish(0, 2, 2).is_ok());
  EXPECT_EQ(f.state(2), TransferState::kDone);
  EXPECT_EQ(f.state(1), TransferState::kPending);
  EXPECT_TRUE(f.said().empty()) << "only with failover the sender wants to know";
}

TEST(PlacingDispatcher, AChannelThatTakesNothingIsPassedOver) {
  DispatcherFixture f(Direction::kRecv, 2, false, 2);
  f.fake.answer_not_yet(testing::Call::kRecv, 1);
  f.submit(2 * 4096);
  EXPECT_TRUE(f.post());
  const auto channels = granted(f.said().at(0), 1, 0);
  EXPECT_EQ(std::set<uint8_t>(channels.begin(), channels.end()).size(), 1u);
}

Status delivered(DispatcherFixture& f, uint32_t channel, uint64_t chunks) {
  std::array<std::byte, kMaxPeerMessageBytes> room;
  return f.take(PeerMessage::kDelivered, encode_delivered(room, {.chunks = chunks, .channel = channel, .reserved = 0}));
}

// At a sender.
TEST(PlacingDispatcher, ASenderSendsAtOnceAndHearsOfWhatIsDelivered) {
  DispatcherFixture f(Direction::kSend, 2, false, 8, true);
  f.submit(20 * 4096);
  EXPECT_TRUE(f.post());
  const size_t first = granted(f.said().at(0), 1, 0).size();
  EXPECT_EQ(first, 2 * ChunkRouter::kFirstChunks) << "until it is known how fast the channels are";
  EXPECT_TRUE(f.dispatcher->waits_for_peer());
  EXPECT_TRUE(f.finish(0, 1, 4).is_ok());
  EXPECT_FALSE(f.post()) << "that the plugin has taken them says nothing";
  f.clock.advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(delivered(f, 0, 4).is_ok());
  EXPECT_TRUE(f.post());
  const auto second = granted(f.said().at(0), 1, first);
  EXPECT_EQ(std::count(second.begin(), second.end(), 1), 0) << "of channel 1 nothing is known yet";
}

TEST(PlacingDispatcher, DeliveriesThatCannotBeAreRefused) {
  DispatcherFixture f(Direction::kSend, 2, false, 8, true);
  f.submit(2 * 4096);
  EXPECT_TRUE(f.post());
  EXPECT_EQ(f.channels.in_flight(), 2u);
  EXPECT_EQ(delivered(f, 0, 2).code(), Code::kProtocol) << "more than are under way";
  EXPECT_EQ(delivered(f, 0, 0).code(), Code::kProtocol) << "nothing new";
  EXPECT_EQ(delivered(f, 2, 1).code(), Code::kProtocol) << "no such channel";
  EXPECT_TRUE(delivered(f, 1, 1).is_ok());
  EXPECT_EQ(delivered(f, 1, 1).code(), Code::kProtocol) << "again";
  DispatcherFixture receiver(Direction::kRecv, 2);
  EXPECT_EQ(delivered(receiver, 0, 1).code(), Code::kProtocol);
}

TEST(PlacingDispatcher, ALinkThatIsBrokenIsTheConnectionsError) {
  DispatcherFixture f(Direction::kRecv, 2, true);
  EXPECT_TRUE(f.take_number(PeerMessage::kSubmitted, 1).is_ok());
  f.submit(4096);
  f.to_peer->broken = Status(Code::kPeerGone, "test", "gone");
  EXPECT_EQ(f.dispatcher->post({}).status().code(), Code::kPeerGone);
  EXPECT_EQ(f.finish(0, 1, 1).code(), Code::kPeerGone);
  EXPECT_EQ(f.state(1), TransferState::kDone) << "it is in place, whoever knows";
}

TEST(PlacingDispatcher, WithFailoverNothingIsGrantedBeforeTheSenderHasIt) {
  DispatcherFixture f(Direction::kRecv, 2, true);
  f.submit(4096);
  EXPECT_FALSE(f.post());
  EXPECT_TRUE(f.dispatcher->waits_for_peer());
  EXPECT_EQ(f.take_number(PeerMessage::kSubmitted, 2).code(), Code::kProtocol) << "not the next one";
  EXPECT_TRUE(f.take_number(PeerMessage::kSubmitted, 1).is_ok());
  EXPECT_TRUE(f.post());
  EXPECT_EQ(granted(f.said().at(0), 1, 0).size(), 1u);
  EXPECT_TRUE(f.finish(0, 1, 1).is_ok());
  const auto said = f.said();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].first, PeerMessage::kReceived);
  EXPECT_EQ(f.state(1), TransferState::kDone);
}

TEST(PlacingDispatcher, WhatALostChannelDidNotDeliverIsGrantedAnewBeforeAnythingElse) {
  DispatcherFixture f(Direction::kRecv, 2, true, 2);
  f.submit(2 * 4096);
  f.submit(4096);
  for (const uint64_t number : {1, 2}) EXPECT_TRUE(f.take_number(PeerMessage::kSubmitted, number).is_ok());
  EXPECT_TRUE(f.post());
  const auto channels = granted(f.said().at(0), 1, 0);
  ASSERT_EQ(channels, (std::vector<uint8_t>{0, 1}));
  f.lose(0);
  EXPECT_NE(f.dispatcher->waiting().find(" chunks of failed channels wait for another one"), std::string::npos);
  EXPECT_TRUE(f.post());
  const auto said = f.said();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].first, PeerMessage::kRegrant);
  const auto regrant = decode_regrant(said[0].second, 2);
  EXPECT_EQ(regrant->transfer, 1u);
  EXPECT_EQ(regrant->chunk, 0u);
  EXPECT_EQ(regrant->channel, 1u);
}

TEST(PlacingDispatcher, ASendersMessagesAreNotForIt) {
  DispatcherFixture f(Direction::kRecv, 2);
  EXPECT_EQ(f.take_number(PeerMessage::kReceived, 1).code(), Code::kProtocol);
  EXPECT_EQ(f.take_number(PeerMessage::kSubmitted, 1).code(), Code::kProtocol) << "without failover";
}

}  // namespace
}  // namespace tcpx
