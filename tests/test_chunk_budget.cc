// ChunkBudget: several connections hold no more than it says, in turn; one alone is not limited; who stalls holds up nobody for
// long.
#include "transfer/chunk_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace tcpx {
namespace {

using std::chrono::milliseconds;

class Budget : public ::testing::Test {
 protected:
  static constexpr Duration kPatience = milliseconds(10);
  static constexpr size_t kTogether = 3, kAskers = 8;
  /// Two channels per connection: 0 and 1, 2 and 3, ...
  Budget() {
    for (size_t i = 0; i < kAskers; ++i) askers_[i].connection = &connections_[i / 2];
  }
  bool take(size_t who) {
    const auto share = budget_.take(askers_[who], now_);
    if (share) shares_.push_back(*share);
    return share.has_value();
  }
  void give_back_oldest() {
    budget_.give_back(shares_.front());
    shares_.pop_front();
  }
  /// Two connections that hold all there is.
  void fill() { ASSERT_TRUE(take(0) && take(0) && take(2)); }

  std::array<char, kAskers / 2> connections_{};
  std::array<ChunkBudget::Asker, kAskers> askers_{};
  ChunkBudget budget_{kTogether, 1, kPatience};
  TimePoint now_{};
  std::deque<ChunkBudget::Share> shares_;
};

TEST_F(Budget, OneConnectionAloneIsNotLimited) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(take(0) && take(1));
  EXPECT_EQ(budget_.held(), 40u);
}

TEST_F(Budget, WhenASecondOneComesBothAre) {
  EXPECT_TRUE(take(0) && take(0) && take(0) && take(1));
  EXPECT_FALSE(take(2));
  EXPECT_FALSE(take(0)) << "no longer alone";
  give_back_oldest();
  EXPECT_FALSE(take(2)) << "as much as there may be";
  give_back_oldest();
  EXPECT_TRUE(take(2));
  EXPECT_FALSE(take(0));
  // Alone again, also where its own channels stand in line.
  EXPECT_FALSE(take(1));
  while (!shares_.empty()) give_back_oldest();
  EXPECT_TRUE(take(1) && take(1) && take(0) && take(0) && take(1));
}

TEST_F(Budget, WhoIsRefusedComesFirst) {
  fill();
  EXPECT_FALSE(take(4));
  EXPECT_FALSE(take(6));
  EXPECT_FALSE(take(0));
  EXPECT_FALSE(take(4)) << "asking again changes nothing";
  give_back_oldest();
  EXPECT_FALSE(take(0)) << "two stand before it";
  EXPECT_FALSE(take(6));
  EXPECT_TRUE(take(4));
  give_back_oldest();
  EXPECT_FALSE(take(4)) << "it has had its turn";
  EXPECT_TRUE(take(6));
  give_back_oldest();
  EXPECT_TRUE(take(0));
  give_back_oldest();
  EXPECT_TRUE(take(4));
}

TEST_F(Budget, ATurnMayBeOfSeveralChunks) {
  ChunkBudget budget(1, 2, kPatience);
  const auto take = [&](size_t who) { return budget.take(askers_[who], now_); };
  auto share = take(0);
  EXPECT_FALSE(take(2));
  EXPECT_FALSE(take(4));
  for (size_t who : {2, 2, 4, 4}) {
    budget.give_back(*share);
    for (size_t other : {0, 2, 4}) {
      if (other == who) continue;
      EXPECT_FALSE(take(other));
    }
    share = take(who);
    ASSERT_TRUE(share) << who;
    EXPECT_FALSE(take(who));
  }
  budget.leave(askers_[4]);  // which stands at the end again
  budget.give_back(*share);
  EXPECT_FALSE(take(2)) << "behind 0";
  share = take(0);
  ASSERT_TRUE(share);
  budget.leave(askers_[0]);  // in the middle of its turn
  budget.give_back(*share);
  EXPECT_TRUE(take(2));
  budget.leave(askers_[2]);
}

TEST_F(Budget, WhoLeavesTheLineHoldsUpNobody) {
  fill();
  EXPECT_FALSE(take(4));
  EXPECT_FALSE(take(6));
  give_back_oldest();
  budget_.leave(askers_[4]);
  budget_.leave(askers_[5]);
  EXPECT_TRUE(take(6));
}

TEST_F(Budget, WhatIsHeldForLongCountsNoMore) {
  EXPECT_TRUE(take(0));
  now_ += kPatience / 2;
  EXPECT_TRUE(take(0) && take(0));
  EXPECT_FALSE(take(2));
  now_ += kPatience / 2;
  EXPECT_TRUE(take(2)) << "the first is too old";
  EXPECT_FALSE(take(2));
  give_back_oldest();
  EXPECT_EQ(budget_.held(), 3u) << "what counts no more is given back for nothing";
  EXPECT_FALSE(take(2));
  now_ += kPatience;
  EXPECT_TRUE(take(2));
  EXPECT_EQ(budget_.held(), 1u);
}

TEST_F(Budget, ThereIsAlwaysOne) {
  ChunkBudget none(0, 0, kPatience);
  EXPECT_TRUE(none.take(askers_[0], now_));
  EXPECT_FALSE(none.take(askers_[2], now_));
}

// A model that counts everything anew at each step.
TEST_F(Budget, AgreesWithAModelOverRandomWalks) {
  std::mt19937 random(7);
  size_t granted = 0, refused = 0;
  for (int walk = 0; walk < 200; ++walk) {
    const size_t together = 1 + random() % 6;
    const size_t turn = 1 + random() % 3;
    ChunkBudget budget(together, turn, kPatience);
    struct Held {
      ChunkBudget::Share share;
      size_t connection;
      TimePoint since;
    };
    std::vector<Held> held;
    std::deque<size_t> line;
    size_t given = 0;  // to the first in line
    const auto leave = [&](size_t who) {
      if (!line.empty() && line.front() == who) given = 0;
      std::erase(line, who);
    };
    for (int step = 0; step < 300; ++step) {
      const size_t who = random() % kAskers;
      const auto young = [&](const Held& one) { return now_ - one.since < kPatience; };
      const auto stranger = [&](size_t asker) { return asker / 2 != who / 2; };
      switch (random() % 4) {
        case 0:
        case 1: {
          const auto count = static_cast<size_t>(std::count_if(held.begin(), held.end(), young));
          const bool alone =
              std::none_of(line.begin(), line.end(), stranger) &&
              std::none_of(held.begin(), held.end(), [&](const Held& one) { return young(one) && one.connection != who / 2; });
          const bool may = alone || (count < together && (line.empty() || line.front() == who));
          const auto share = budget.take(askers_[who], now_);
          ASSERT_EQ(share.has_value(), may) << walk << ' ' << step;
          ++(may ? granted : refused);
          if (share) {
            if (alone || (!line.empty() && ++given == turn)) leave(who);
            held.push_back({*share, who / 2, now_});
            ASSERT_EQ(budget.held(), count + 1);
          } else if (std::find(line.begin(), line.end(), who) == line.end()) {
            line.push_back(who);
          }
          break;
        }
        case 2:
          if (held.empty()) break;
          std::swap(held[random() % held.size()], held.back());
          budget.give_back(held.back().share);
          held.pop_back();
          break;
        default:
          if (random() % 4 == 0) now_ += kPatience / 3;
          if (random() % 4 == 0) {
            budget.leave(askers_[who]);
            leave(who);
          }
      }
    }
    for (ChunkBudget::Asker& asker : askers_) budget.leave(asker);
  }
  EXPECT_GT(granted, 4000u);
  EXPECT_GT(refused, 4000u);
}

}  // namespace
}  // namespace tcpx
