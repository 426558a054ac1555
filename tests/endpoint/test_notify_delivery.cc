// Notifications that find no room in the inbox wait in order, with what they hold back.
#include "endpoint/notify_inbox.h"

#include <gtest/gtest.h>

#include <string>

namespace tcpx {
namespace {

Delivery delivery(const std::string& text, std::optional<uint64_t> answers = {}) {
  return {.notify = std::make_unique<NotifyMsg>(NotifyMsg{"n", text, ConnId{1}}),
          .charge = {Window::kRest, text.size()},
          .answers = answers};
}

bool deliver(NotifyDelivery& to, Delivery what) {
  return to.deliver(what);
}

TEST(NotifyDelivery, WithRoomItIsDeliveredAtOnce) {
  NotifyInbox inbox(2);
  NotifyDelivery deliveries(inbox);
  EXPECT_TRUE(deliver(deliveries, delivery("a")));
  EXPECT_TRUE(deliver(deliveries, {.notify = nullptr, .charge = {}, .answers = 5})) << "there is nothing to deliver";
  EXPECT_TRUE(deliveries.empty());
  ASSERT_EQ(inbox.size(), 1u);
}

TEST(NotifyDelivery, WithoutRoomItWaitsInOrderAndTellsWhatItHolds) {
  NotifyInbox inbox(1);
  NotifyDelivery deliveries(inbox);
  EXPECT_TRUE(deliver(deliveries, delivery("first")));
  EXPECT_FALSE(deliver(deliveries, delivery("second", 7)));
  EXPECT_FALSE(deliver(deliveries, delivery("third")));
  EXPECT_FALSE(deliveries.take_delivered().has_value());
  EXPECT_EQ(inbox.take_all().at(0).msg, "first");
  const auto second = deliveries.take_delivered();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->charge.bytes, 6u);
  EXPECT_EQ(second->answers, std::optional<uint64_t>(7));
  EXPECT_FALSE(deliveries.take_delivered().has_value()) << "no room for the third";
  EXPECT_EQ(inbox.take_all().at(0).msg, "second");
  EXPECT_TRUE(deliver(deliveries, {.notify = nullptr, .charge = {}, .answers = {}})) << "overtakes those with a text";
  EXPECT_FALSE(deliver(deliveries, delivery("fourth"))) << "does not, though there is room";
  EXPECT_TRUE(deliveries.take_delivered().has_value());
  EXPECT_EQ(inbox.take_all().at(0).msg, "third");
  EXPECT_TRUE(deliveries.take_delivered().has_value());
  EXPECT_TRUE(deliveries.empty());
}

}  // namespace
}  // namespace tcpx
