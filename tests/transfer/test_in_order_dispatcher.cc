// InOrderDispatcher: the needs of one channel, and its choice for one.
#include <gtest/gtest.h>

#include "tests/support/dispatcher_fixture.h"
#include "transfer/chunk_dispatcher.h"
#include "transfer/placing_dispatcher.h"
#include "transfer/following_dispatcher.h"

namespace tcpx {
namespace {

using testing::DispatcherFixture;

TEST(InOrderDispatcher, PostsAsFarAsThereIsRoomAndWithoutAWord) {
  DispatcherFixture f(Direction::kRecv, 1, true, 3);
  f.submit(2 * 4096);
  f.submit(2 * 4096);
  EXPECT_TRUE(f.post());
  EXPECT_EQ(f.transfers[1].outstanding, 2u);
  EXPECT_EQ(f.transfers[2].outstanding, 1u);
  EXPECT_FALSE(f.post());
  EXPECT_TRUE(f.finish(0, 1, 2).is_ok());
  EXPECT_EQ(f.state(1), TransferState::kDone);
  EXPECT_EQ(f.state(2), TransferState::kPending);
  EXPECT_FALSE(f.dispatcher->needs_peer() || f.dispatcher->waits_for_peer());
  EXPECT_TRUE(f.said().empty());
}

TEST(InOrderDispatcher, TakesNoWordOfAPeer) {
  DispatcherFixture f(Direction::kSend, 1);
  EXPECT_EQ(f.take_number(PeerMessage::kReceived, 1).code(), Code::kProtocol);
}

TEST(ChunkDispatcher, IsChosenByTheChannelsAndTheirDirection) {
  const auto is = []<class T>(const DispatcherFixture& f, T*) { return dynamic_cast<T*>(f.dispatcher.get()) != nullptr; };
  for (const Direction direction : {Direction::kSend, Direction::kRecv}) {
    EXPECT_TRUE(is(DispatcherFixture(direction, 1), static_cast<InOrderDispatcher*>(nullptr)));
  }
  EXPECT_TRUE(is(DispatcherFixture(Direction::kSend, 2), static_cast<FollowingDispatcher*>(nullptr)));
  EXPECT_TRUE(is(DispatcherFixture(Direction::kRecv, 2), static_cast<PlacingDispatcher*>(nullptr)));
}

}  // namespace
}  // namespace tcpx
