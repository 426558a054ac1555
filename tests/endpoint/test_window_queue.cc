// Waiting for the peer's windows, and the order of going on.
#include "endpoint/window_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace tcpx {
namespace {

class WindowQueueTest : public ::testing::Test {
 protected:
  bool enter(uint64_t operation, Window window, uint64_t bytes, std::optional<uint64_t> sequence = {}) {
    return queue_.enter({.operation = operation, .charge = {window, bytes}, .sequence = sequence, .since = now_});
  }
  /// As many short ones as may be ahead of the peer.
  void fill_sends() {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(enter(1, Window::kSends, WindowQueue::kAheadBytes / 4, 0));
  }
  /// The operations whose turn it is, negative those that are to be offered.
  std::vector<int64_t> turns(uint64_t gone = 0, uint64_t not_offered = 0) {
    std::vector<int64_t> out;
    const auto is_not = [](uint64_t number) { return [number](uint64_t operation) { return operation != number; }; };
    while (const auto turn = queue_.next(now_, is_not(gone), is_not(not_offered)))
      out.push_back(turn->passes ? static_cast<int64_t>(turn->operation) : -static_cast<int64_t>(turn->operation));
    return out;
  }
  using Turns = std::vector<int64_t>;

  CreditWindows windows_;
  ControlStream stream_;
  WindowQueue queue_{windows_, stream_};
  TimePoint now_{};
};

TEST_F(WindowQueueTest, InOrderAsTheWindowOpens) {
  EXPECT_TRUE(enter(1, Window::kRest, kInlineWindowBytes));
  EXPECT_FALSE(enter(2, Window::kRest, 100));
  EXPECT_FALSE(enter(3, Window::kRest, 1));
  EXPECT_TRUE(enter(4, Window::kRestOffers, 100)) << "another window";
  EXPECT_EQ(turns(), Turns{});
  EXPECT_TRUE(windows_.refill({Window::kRest, 50}));
  EXPECT_EQ(turns(), Turns{}) << "a short one does not overtake";
  EXPECT_TRUE(windows_.refill({Window::kRest, 51}));
  EXPECT_EQ(turns(), (Turns{2, 3}));
  EXPECT_FALSE(windows_.has_room({Window::kRest, 1})) << "they have taken their parts";
}

TEST_F(WindowQueueTest, WhoEndsMeanwhileIsForgotten) {
  EXPECT_TRUE(enter(1, Window::kRest, kInlineWindowBytes));
  EXPECT_FALSE(enter(2, Window::kRest, 100));
  EXPECT_FALSE(enter(3, Window::kRest, 100));
  EXPECT_TRUE(windows_.refill({Window::kRest, 100}));
  EXPECT_EQ(turns(2), Turns{3});
  EXPECT_FALSE(enter(4, Window::kRest, 100));
  queue_.clear();
  EXPECT_TRUE(windows_.refill({Window::kRest, 100}));
  EXPECT_EQ(turns(), Turns{});
}

TEST_F(WindowQueueTest, AShortSendThatWaitsTooLongIsOffered) {
  fill_sends();
  EXPECT_TRUE(enter(2, Window::kRest, kInlineWindowBytes));
  EXPECT_FALSE(enter(3, Window::kSends, 100, 1));
  EXPECT_FALSE(enter(4, Window::kRest, 100));
  EXPECT_FALSE(enter(5, Window::kSends, 64, 2));
  now_ += WindowQueue::kWindowPatience - Duration(1);
  EXPECT_EQ(turns(), Turns{});
  now_ += Duration(1);
  EXPECT_EQ(turns(0, 5), Turns{-3}) << "writes wait, and so does a send that cannot be offered";
  EXPECT_EQ(turns(), Turns{-5}) << "now it can";
}

TEST_F(WindowQueueTest, ALongNotificationHasTheRoomThatShortSendsLeave) {
  const uint64_t longest = window_cost(kMaxNotifyTextBytes);
  fill_sends();
  EXPECT_TRUE(enter(2, Window::kSends, longest, 1));
  EXPECT_FALSE(enter(3, Window::kSends, 100, 2));
  EXPECT_TRUE(windows_.refill({Window::kSends, longest}));
  EXPECT_EQ(turns(), Turns{}) << "the short ones are still there";
  EXPECT_TRUE(windows_.refill({Window::kSends, 100}));
  EXPECT_EQ(turns(), Turns{3});
}

TEST_F(WindowQueueTest, ALateSendGoesFirstAndHasRoomKeptForIt) {
  const uint64_t usable = kOfferWindowBytes - WindowQueue::kLateSendBytes;
  EXPECT_TRUE(enter(1, Window::kSendOffers, usable, 7));
  EXPECT_FALSE(enter(2, Window::kSendOffers, 100, 8));
  EXPECT_TRUE(enter(3, Window::kSendOffers, 100, 6)) << "its place is before one that was announced";
  EXPECT_TRUE(windows_.refill({Window::kSendOffers, 200}));
  EXPECT_EQ(turns(), Turns{2});
}

// With long texts, in the order of their receives: those before have ended, and credit for them comes in large parts.
TEST_F(WindowQueueTest, EachLateSendHasRoomWhenThoseBeforeHaveEnded) {
  constexpr uint64_t kEarlyBytes = 1024;
  uint64_t early = 1000;
  for (; enter(early, Window::kSendOffers, kEarlyBytes, early); ++early) {
  }
  CreditWindows peer;
  ASSERT_TRUE(peer.count({Window::kSendOffers, (early - 1000) * kEarlyBytes}));
  for (uint64_t late = 0; late < 100; ++late) {
    ASSERT_TRUE(enter(late, Window::kSendOffers, kLongestSendOffer, late)) << "would wait for ever";
    ASSERT_TRUE(peer.count({Window::kSendOffers, kLongestSendOffer}));
    const uint64_t credit = peer.give_back({Window::kSendOffers, kLongestSendOffer});
    ASSERT_TRUE(windows_.refill({Window::kSendOffers, credit}));
  }
}

// Half of what there is stays for late ones, whatever the size, and short ones use a small window wholly.
TEST_F(WindowQueueTest, InASmallWindowTheRulesAreTheSame) {
  windows_ = CreditWindows(CreditWindows::Size::kSmall);
  EXPECT_TRUE(enter(1, Window::kSendOffers, kSmallWindowBytes / 2, 7));
  EXPECT_FALSE(enter(2, Window::kSendOffers, 1, 8));
  EXPECT_TRUE(enter(3, Window::kSendOffers, 100, 6)) << "it is late";
  EXPECT_TRUE(enter(4, Window::kSends, kSmallWindowBytes, 9));
  EXPECT_FALSE(enter(5, Window::kSends, 1, 10));
  EXPECT_EQ(windows_.take_ask(), Window::kSends);
  EXPECT_EQ(windows_.take_ask(), Window::kSendOffers);
  EXPECT_TRUE(windows_.refill({Window::kSendOffers, kSmallWindowBytes}, 2 * kSmallWindowBytes));
  EXPECT_EQ(turns(), Turns{2});
}

TEST_F(WindowQueueTest, NothingIsOfferedWhileThePeerDoesNotRead) {
  const std::vector<std::byte> data(kMaxInlineBytes);
  while (stream_.backlog() < WindowQueue::kMuchBacklog) stream_.send(ReadDataFrame{.operation = 1, .data = data});
  EXPECT_FALSE(enter(1, Window::kRestOffers, 100));
  EXPECT_FALSE(enter(2, Window::kSendOffers, 100, 0));
  EXPECT_TRUE(enter(3, Window::kRest, 100)) << "its window bounds it";
  EXPECT_EQ(turns(), Turns{});
}

}  // namespace
}  // namespace tcpx
