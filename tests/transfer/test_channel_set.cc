// ChannelSet: its answers for all its channels together.
#include "transfer/channel_set.h"

#include <gtest/gtest.h>

#include "tests/support/dispatcher_fixture.h"

namespace tcpx {
namespace {

using testing::DispatcherFixture;

TEST(ChannelSet, RoomAndOpenAreThoseOfItsChannels) {
  DispatcherFixture f(Direction::kRecv, 3, false, 1);
  EXPECT_EQ(f.channels.room(), 0b111u);
  const uint64_t number = f.submit(3 * 4096);
  EXPECT_TRUE(f.channels.try_post(1, f.transfers[number], 0));
  EXPECT_FALSE(f.channels.try_post(1, f.transfers[number], 1)) << "its window is full";
  EXPECT_EQ(f.transfers[number].outstanding, 1u);
  EXPECT_EQ(f.channels.room(), 0b101u);
  EXPECT_EQ(f.channels.in_flight(), 1u);
  f.channels[0].fail(Status(Code::kSystem, "test", "lost"));
  EXPECT_EQ(f.channels.room(), 0b100u);
  EXPECT_EQ(f.channels.open(), 2u);
  EXPECT_FALSE(f.channels.counters()[0].open);
  EXPECT_TRUE(f.channels.counters()[1].open);
}

TEST(ChannelSet, TheFirstErrorOfClosingIsKeptAndAllAreClosed) {
  DispatcherFixture f(Direction::kSend, 3);
  f.fake.fail_call(testing::Call::kClose, 2, Status(Code::kPlugin, "close", "no"), 1);
  EXPECT_EQ(f.channels.close().code(), Code::kPlugin);
  EXPECT_TRUE(f.channels.all_closed());
  EXPECT_FALSE(f.channels.counters()[0].open);
}

TEST(ChannelSet, AnErrorNamesItsChannel) {
  testing::FakeNetPlugin fake;
  testing::FakeUnpacker unpacker;
  testing::ManualClock clock;
  const Status reason(Code::kSystem, "test", "lost", Domain::kErrno, 5);
  ChannelSet two(testing::parts_of_channels(fake, unpacker, Direction::kSend, 2), clock, {});
  EXPECT_EQ(two.labelled(1, reason).detail(), "channel 1 (nic1): lost");
  EXPECT_EQ(two.labelled(1, reason).native(), 5);
  std::vector<ChannelParts> parts = testing::parts_of_channels(fake, unpacker, Direction::kSend, 1);
  parts[0].nic.clear();
  ChannelSet one(std::move(parts), clock, {});
  EXPECT_EQ(one.labelled(0, reason).detail(), "lost");
}

}  // namespace
}  // namespace tcpx
