// The four windows of a connection: messages take from them, and those not held any more come back as credit.
#include "wire/credit_windows.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

constexpr Window kAll[] = {Window::kSends, Window::kRest, Window::kSendOffers, Window::kRestOffers};

TEST(CreditWindows, EachHasItsOwnRoom) {
  CreditWindows windows;
  for (const Window window : kAll) {
    const Charge whole{window, bytes_of(window)};
    EXPECT_TRUE(windows.has_room(whole));
    EXPECT_FALSE(windows.has_room({window, whole.bytes + 1}));
    EXPECT_FALSE(windows.has_room(whole, 1)) << "with something kept";
    EXPECT_FALSE(windows.has_room({window, 1}, whole.bytes + 1)) << "with more kept than there is";
    windows.take(whole);
    EXPECT_FALSE(windows.has_room({window, 1}));
    EXPECT_TRUE(windows.has_room({window, 0}));
  }
}

TEST(CreditWindows, CreditOpensItsWindowAndNoOther) {
  CreditWindows windows;
  for (const Window window : kAll) windows.take({window, bytes_of(window)});
  EXPECT_TRUE(windows.refill({Window::kRest, 100}));
  EXPECT_TRUE(windows.has_room({Window::kRest, 100}));
  EXPECT_FALSE(windows.has_room({Window::kRest, 101}));
  EXPECT_FALSE(windows.has_room({Window::kSends, 1}));
}

TEST(CreditWindows, CreditThatIsNotOwedIsRefused) {
  for (const Window window : kAll) {
    CreditWindows windows;
    EXPECT_FALSE(windows.refill({window, 1}));
    windows.take({window, 50});
    EXPECT_FALSE(windows.refill({window, 51}));
    EXPECT_FALSE(windows.refill({window, ~uint64_t{0}}));
    EXPECT_TRUE(windows.refill({window, 50}));
    EXPECT_FALSE(windows.refill({window, 1}));
  }
}

TEST(CreditWindows, WhatWasNotSaidIsPutBack) {
  CreditWindows windows;
  const Charge whole{Window::kSends, kInlineWindowBytes};
  windows.take(whole);
  windows.put_back(whole);
  EXPECT_TRUE(windows.has_room(whole));
}

TEST(CreditWindows, ThePeerGetsNoMoreThanItsWindow) {
  for (const Window window : kAll) {
    CreditWindows windows;
    EXPECT_FALSE(windows.count({window, bytes_of(window) + 1}));
    EXPECT_TRUE(windows.count({window, bytes_of(window) - 10}));
    EXPECT_FALSE(windows.count({window, 11}));
    EXPECT_TRUE(windows.count({window, 10}));
    EXPECT_FALSE(windows.count({window, 1}));
  }
}

TEST(CreditWindows, CreditIsToldInStepsAndAllOfIt) {
  for (const Window window : kAll) {
    CreditWindows windows;
    const uint64_t step = credit_step(window);
    ASSERT_TRUE(windows.count({window, bytes_of(window)}));
    EXPECT_EQ(windows.give_back({window, step - 1}), 0u);
    EXPECT_FALSE(windows.count({window, 1})) << "what the peer has not been told is not its own";
    EXPECT_EQ(windows.give_back({window, 5}), step + 4);
    EXPECT_TRUE(windows.count({window, step + 4}));
    EXPECT_FALSE(windows.count({window, 1}));
    EXPECT_EQ(windows.give_back({window, 1}), 0u) << "counted from nothing again";
  }
}

TEST(CreditWindows, SmallOnesLetLessThrough) {
  for (const Window window : kAll) {
    CreditWindows windows(CreditWindows::Size::kSmall, CreditWindows::Size::kSmall);
    const Charge whole{window, kSmallWindowBytes};
    EXPECT_EQ(windows.peer_size(window), kSmallWindowBytes);
    EXPECT_TRUE(windows.has_room(whole));
    EXPECT_FALSE(windows.has_room({window, kSmallWindowBytes + 1}));
    EXPECT_FALSE(windows.count({window, kSmallWindowBytes + 1}));
    EXPECT_TRUE(windows.count(whole));
    EXPECT_EQ(windows.give_back(whole), kSmallWindowBytes) << "its steps are small, too";
  }
}

TEST(CreditWindows, AsksOnceForEachSizeThatIsNotEnough) {
  for (const Window window : kAll) {
    CreditWindows windows(CreditWindows::Size::kSmall);
    EXPECT_EQ(windows.take_ask(), std::nullopt);
    EXPECT_FALSE(windows.has_room({window, kSmallWindowBytes + 1}));
    EXPECT_EQ(windows.take_ask(), window);
    EXPECT_FALSE(windows.has_room({window, kSmallWindowBytes + 1}));
    EXPECT_EQ(windows.take_ask(), std::nullopt) << "it has been told";
    EXPECT_TRUE(windows.refill({window, 100}, kSmallWindowBytes + 100));
    EXPECT_TRUE(windows.has_room({window, kSmallWindowBytes + 100}));
    EXPECT_FALSE(windows.has_room({window, kSmallWindowBytes + 101}));
    EXPECT_EQ(windows.take_ask(), window);
    EXPECT_TRUE(windows.refill({window, bytes_of(window) - kSmallWindowBytes - 100}, bytes_of(window)));
    EXPECT_FALSE(windows.has_room({window, bytes_of(window) + 1}));
    EXPECT_EQ(windows.take_ask(), std::nullopt) << "there is no larger one";
  }
}

TEST(CreditWindows, SizesThatNoWindowHasAreRefused) {
  for (const Window window : kAll) {
    CreditWindows windows(CreditWindows::Size::kSmall);
    for (const uint64_t size : {uint64_t{1}, kSmallWindowBytes - 1, bytes_of(window) + 1, ~uint64_t{0}})
      EXPECT_FALSE(windows.refill({window, 0}, size)) << size;
    EXPECT_FALSE(windows.refill({window, 2}, kSmallWindowBytes + 1)) << "more than the window is larger";
    EXPECT_TRUE(windows.refill({window, 1000}, kSmallWindowBytes + 1000));
    EXPECT_FALSE(windows.refill({window, 0}, kSmallWindowBytes)) << "there is more left than that";
    EXPECT_EQ(windows.peer_size(window), kSmallWindowBytes + 1000);
  }
}

// Both ends of a window: whatever is kept back, the peer has never more than fits.
TEST(CreditWindows, OneThatIsCutIsSmallerByTheCreditThatIsKept) {
  for (const Window window : kAll) {
    CreditWindows receiver, sender;
    const Charge most{window, bytes_of(window) / 2};
    ASSERT_TRUE(receiver.count(most));
    sender.take(most);
    const uint64_t credit = receiver.give_back(most);
    ASSERT_EQ(credit, most.bytes);
    EXPECT_EQ(receiver.cut(window, credit), credit);
    EXPECT_EQ(receiver.size(window), bytes_of(window) - credit);
    ASSERT_TRUE(sender.refill({window, 0}, receiver.size(window)));
    EXPECT_TRUE(sender.has_room(most));
    EXPECT_FALSE(sender.has_room({window, most.bytes + 1}));
    EXPECT_EQ(receiver.cut(window, ~uint64_t{0}), most.bytes - kSmallWindowBytes) << "never below a small one";
    receiver.enlarge(window, most.bytes);
    EXPECT_TRUE(receiver.count(most));
  }
}

TEST(CreditWindows, WhatIsOwedIsToldLater) {
  CreditWindows windows;
  ASSERT_TRUE(windows.count({Window::kRest, kInlineWindowBytes}));
  EXPECT_FALSE(windows.owes(Window::kRest));
  windows.owe({Window::kRest, kInlineWindowBytes});
  EXPECT_TRUE(windows.owes(Window::kRest));
  EXPECT_EQ(windows.held(Window::kRest), 0u);
  EXPECT_FALSE(windows.count({Window::kRest, 1}));
  EXPECT_EQ(windows.give_back({Window::kRest, 0}), kInlineWindowBytes);
  EXPECT_FALSE(windows.owes(Window::kRest));
}

TEST(CreditWindows, WhatAMessageCosts) {
  EXPECT_EQ(window_cost(0), 64u);
  EXPECT_EQ(window_cost(Window::kSends, 100, 0, 0, 7), 171u);
  EXPECT_EQ(window_cost(Window::kSendOffers, 0, 3, 0, 7), 256u + 24 + 7);
  EXPECT_EQ(window_cost(Window::kRestOffers, 0, 0, 2, 0), 256u + 64);
}

}  // namespace
}  // namespace tcpx
