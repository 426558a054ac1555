// The four windows of a connection: messages take from them, and those not held any more come back as credit.
#include "endpoint/credit_windows.h"

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

TEST(CreditWindows, WhatAMessageCosts) {
  EXPECT_EQ(window_cost(0), 64u);
  EXPECT_EQ(window_cost(Window::kSends, 100, 0, 0, 7), 171u);
  EXPECT_EQ(window_cost(Window::kSendOffers, 0, 3, 0, 7), 256u + 24 + 7);
  EXPECT_EQ(window_cost(Window::kRestOffers, 0, 0, 2, 0), 256u + 64);
}

}  // namespace
}  // namespace tcpx
