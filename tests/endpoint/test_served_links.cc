// Links as the one that makes progress serves them: which connection they belong to, and when they go.
#include "endpoint/served_links.h"

#include <vector>

#include "tests/support/link_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

class ServedLinksTest : public LinkTest {
 protected:
  void SetUp() override { ASSERT_TRUE(events_.open().is_ok()); }
  uint64_t add(bool unclaimed = false) { return links_.add(std::move(link_), unclaimed); }
  /// An operation for the link of that number. @return its end
  Status end_of_one_for(uint64_t number) {
    Operation& operation = *operations_.acquire().value();
    const OperationId id = operation.id;
    operation.conn = kConn;
    operation.link = number;
    operation.deadline = clock_.now() + std::chrono::seconds(1);
    links_.submit(operation);
    if (pending(id)) links_.retire(kConn, false);
    return end_of(id);
  }
  void turn() {
    const TimePoint now = Clock::steady().now();
    EXPECT_FALSE(links_.look_at_sockets(now, true)) << "no plugin's are watched";
    (void)links_.turn(now);
  }
  bool turn_until_empty() {
    return wait_until([&] {
      clock_.advance(std::chrono::milliseconds(10));
      turn();
      return links_.empty();
    });
  }

  EndpointConfig config_{.max_idle_connections = 1, .idle_time = std::chrono::hours(1)};
  WakeableEpoll events_;
  std::vector<ConnId> forgotten_;
  ServedLinks links_{config_, operations_, events_, [this](ConnId conn) { forgotten_.push_back(conn); }};
};

TEST_F(ServedLinksTest, IdsAreNewAndNumbersToo) {
  EXPECT_EQ(links_.new_id(), ConnId{1});
  const uint64_t first = add();
  EXPECT_EQ(links_.new_id(), ConnId{8}) << "after connection 7";
  renew();
  EXPECT_NE(add(), first) << "the same connection, made anew";
  EXPECT_EQ(links_.stats().size(), 1u);
}

TEST_F(ServedLinksTest, AnOperationOfALinkThatIsGoneEnds) {
  const uint64_t first = add();
  renew();
  const uint64_t second = add();
  EXPECT_EQ(end_of_one_for(first).code(), Code::kPeerGone);
  EXPECT_EQ(end_of_one_for(second).code(), Code::kCancelled) << "its link had it until that was closed";
}

TEST_F(ServedLinksTest, CountsOutliveTheirLinks) {
  const uint64_t first = add();
  renew();
  cancel(receive(host(0, kLong)));
  const uint64_t second = add();
  renew();
  add();
  EXPECT_EQ(links_.ended().operations_failed, 1u) << "of the link that was made anew";
  (void)end_of_one_for(first);
  (void)end_of_one_for(second);
  EXPECT_EQ(links_.ended().operations_failed, 3u) << "of those that found no link";
  renew();
  cancel(receive(host(0, kLong)));
  add();
  links_.retire(kConn, false);
  peer_.reset();
  ASSERT_TRUE(turn_until_empty());
  EXPECT_EQ(links_.ended().operations_failed, 4u) << "of the link that was closed";
}

TEST_F(ServedLinksTest, AConnectionThatNobodyUsesIsKeptAndRevived) {
  add();
  links_.retire(kConn, true);
  turn();
  EXPECT_TRUE(links_.revive(kConn));
  links_.retire(kConn, false);
  EXPECT_FALSE(links_.revive(kConn)) << "it is closing";
  EXPECT_EQ(links_.why_ended(kConn).code(), Code::kCancelled);
  peer_.reset();
  EXPECT_TRUE(turn_until_empty());
  EXPECT_EQ(links_.why_ended(kConn).code(), Code::kPeerGone);
  EXPECT_TRUE(forgotten_.empty()) << "whoever retires a connection forgets it";
}

TEST_F(ServedLinksTest, NoneIsKeptForLongerThanItMay) {
  config_.idle_time = std::chrono::milliseconds(0);
  add();
  links_.retire(kConn, true);
  peer_.reset();
  EXPECT_TRUE(turn_until_empty());
}

TEST_F(ServedLinksTest, OneThatNobodyHasClaimedGoesByItself) {
  add(true);
  peer_.reset();
  EXPECT_TRUE(turn_until_empty());
  EXPECT_EQ(forgotten_, std::vector<ConnId>{kConn});
  EXPECT_EQ(links_.claim(kConn), nullptr);
}

TEST_F(ServedLinksTest, AClaimedOneStaysUntilItIsRetired) {
  add(true);
  ASSERT_NE(links_.claim(kConn), nullptr);
  peer_.reset();
  EXPECT_TRUE(wait_until([&] {
    turn();
    return !links_.is_alive(kConn) && !links_.needs_polling();
  }));
  EXPECT_FALSE(links_.empty());
  links_.retire(kConn, true);
  EXPECT_TRUE(turn_until_empty());
  EXPECT_TRUE(forgotten_.empty());
}

// The application asks for the memory back, and the peer may hold it for ever.
TEST_F(ServedLinksTest, OneThatServesARegionFails) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, 100'000)};
  say(FrameType::kWrite, 5, 0, 100'000, Packing::kWhole, &payload);
  step();
  ASSERT_TRUE(hear(FrameType::kGo).has_value());
  add();
  EXPECT_FALSE(links_.fail_those_that_serve(device_id_));
  EXPECT_TRUE(links_.is_alive(kConn));
  const TimePoint before = Clock::steady().now();
  const auto failed_at = links_.fail_those_that_serve(host_id_);
  ASSERT_TRUE(failed_at.has_value());
  EXPECT_GE(*failed_at, before);
  EXPECT_FALSE(links_.is_alive(kConn));
  while (Clock::steady().now() == *failed_at) {
  }
  EXPECT_EQ(links_.fail_those_that_serve(host_id_), failed_at) << "one that stays is waited for once";
}

}  // namespace
}  // namespace tcpx::testing
