// Bounds of the inbox. Notifications that find no room there wait in order, with what they hold back.
#include "endpoint/notify_inbox.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/messages.h"

namespace tcpx {
namespace {

constexpr size_t kTextBytes = 4096, kMiB = size_t{1} << 20;

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

TEST(NotifyInbox, ManyPeersTogetherLeaveRoomForOneMore) {
  NotifyInbox inbox(65536);
  const auto fill = [&inbox](uint64_t conn, size_t text_bytes = kTextBytes) {
    size_t bytes = 0;
    for (;;) {
      NotifyMsg message{.name = "", .msg = std::string(text_bytes, 't'), .conn = ConnId{conn}};
      if (!inbox.push(message)) return bytes;
      bytes += text_bytes;
    }
  };
  size_t total = 0;
  for (uint64_t conn = 1; conn <= 10; ++conn) {
    const size_t bytes = fill(conn);
    EXPECT_GT(bytes, 0u) << conn;
    EXPECT_LE(bytes, kMaxInboxShareBytes);
    total += bytes;
  }
  EXPECT_LE(total, kMaxInboxBytes);
  EXPECT_EQ(inbox.take_all().size(), total / kTextBytes);
  EXPECT_GT(fill(1), kMaxInboxShareBytes / 2);

  (void)inbox.take_all();
  for (uint64_t conn = 1; conn <= 20; ++conn) {
    const size_t bytes = fill(conn, kMaxNotifyTextBytes);
    EXPECT_LE(bytes, kMaxInboxShareBytes);
    EXPECT_TRUE(bytes > 0 || conn > 5) << conn;
  }
  EXPECT_GT(fill(21), kMiB / 4) << "the long ones of many leave some for short ones";
}

}  // namespace
}  // namespace tcpx
