// ChunkBudget: several connections share its limit on chunks in flight, in turn; a lone one is not limited; a slow or stalled
// one takes little from the others.
#include "transfer/chunk_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <set>
#include <vector>

namespace tcpx {
namespace {

using std::chrono::milliseconds;

constexpr size_t kAskers = 8;
constexpr uint64_t kChunk = 10;

class Budget : public ::testing::Test {
 protected:
  /// Six chunks together, three in a turn. Askers 0 and 1 belong to one connection, 2 and 3 to the next, ...
  static constexpr ChunkBudget::Limits kLimits{
      .together = 6 * kChunk, .turn = 3 * kChunk, .channels = 1, .patience = milliseconds(10)};
  Budget() {
    for (size_t i = 0; i < kAskers; ++i) askers_[i].connection = &connections_[i / 2];
  }
  bool take(size_t who) {
    const auto share = budget_.take(askers_[who], kChunk, now_);
    if (share) shares_[who / 2].push_back(*share);
    return share.has_value();
  }
  /// Returns the oldest chunk of that connection.
  void give_back(size_t connection) {
    ASSERT_FALSE(shares_[connection].empty());
    budget_.give_back(shares_[connection].front());
    shares_[connection].pop_front();
  }
  /// Connections 0 and 1 take the whole budget, half of it each.
  void fill() {
    ASSERT_TRUE(take(0) && take(2) && take(0) && take(2) && take(0) && take(2));
    ASSERT_EQ(budget_.held(), kLimits.together);
  }

  std::array<char, kAskers / 2> connections_{};
  std::array<ChunkBudget::Asker, kAskers> askers_{};
  ChunkBudget budget_{kLimits};
  TimePoint now_{};
  std::array<std::deque<ChunkBudget::Share>, kAskers / 2> shares_;
};

TEST_F(Budget, OneConnectionAloneIsNotLimited) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(take(0) && take(1));
  EXPECT_EQ(budget_.held(), 40 * kChunk);
}

TEST_F(Budget, ASecondOneHasItsPartAtOnce) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(take(0));
  EXPECT_TRUE(take(2) && take(2) && take(2)) << "half, whatever the first one holds";
  EXPECT_FALSE(take(2) || take(3));
  for (int i = 0; i < 7; ++i) give_back(0);
  EXPECT_FALSE(take(0)) << "has its part";
  give_back(0);
  EXPECT_TRUE(take(0));
  EXPECT_FALSE(take(1));
  // Alone again.
  while (!shares_[1].empty()) give_back(1);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(take(i % 2));
}

TEST_F(Budget, WhoHasItsPartStandsInNobodysWay) {
  fill();
  EXPECT_FALSE(take(0));
  EXPECT_FALSE(askers_[0].in_line);
  give_back(1);
  EXPECT_TRUE(take(2));
}

TEST_F(Budget, WhoIsRefusedComesFirstAndHasATurn) {
  fill();
  EXPECT_FALSE(take(4));
  EXPECT_FALSE(take(6));
  EXPECT_FALSE(take(4)) << "asking again changes nothing";
  for (int i = 0; i < 3; ++i) {
    give_back(0);
    EXPECT_FALSE(take(0) || take(6)) << "behind it";
    EXPECT_TRUE(take(4)) << i;
  }
  EXPECT_FALSE(take(4)) << "it has had its turn";
  for (int i = 0; i < 3; ++i) {
    give_back(1);
    EXPECT_TRUE(take(6)) << i;
  }
  give_back(2);
  EXPECT_TRUE(take(0)) << "the next in line";
}

TEST_F(Budget, AChannelHasItsPartOfATurn) {
  ChunkBudget::Limits limits = kLimits;
  limits.turn = 4 * kChunk;
  limits.channels = 2;
  ChunkBudget budget(limits);
  std::deque<ChunkBudget::Share> held;
  for (size_t who : {0, 2, 0, 2, 0, 2}) held.push_back(budget.take(askers_[who], kChunk, now_).value());
  const auto take = [&](size_t who) {
    const auto share = budget.take(askers_[who], kChunk, now_);
    if (share) held.push_back(*share);
    return share.has_value();
  };
  EXPECT_FALSE(take(4) || take(5) || take(6));
  for (size_t who : {4, 4, 5, 5, 6, 6}) {
    budget.give_back(held.front());
    held.pop_front();
    EXPECT_TRUE(take(who)) << who;
    EXPECT_FALSE(take(who)) << who;
  }
  for (ChunkBudget::Asker& asker : askers_) budget.leave(asker);
}

TEST_F(Budget, WhoLeavesTheLineHoldsUpNobody) {
  fill();
  EXPECT_FALSE(budget_.is_behind(askers_[4]));
  EXPECT_FALSE(take(4) || take(6));
  EXPECT_FALSE(budget_.is_behind(askers_[4])) << "the first";
  EXPECT_TRUE(budget_.is_behind(askers_[6]));
  give_back(0);
  budget_.leave(askers_[4]);
  EXPECT_FALSE(budget_.is_behind(askers_[6]));
  budget_.leave(askers_[5]);  // which was not in line
  EXPECT_TRUE(take(6));
  budget_.leave(askers_[6]);  // in the middle of its turn
  EXPECT_FALSE(take(4));
  give_back(0);
  EXPECT_TRUE(take(4));
}

TEST_F(Budget, WhatIsUnderWayForLongCountsNoMore) {
  EXPECT_TRUE(take(0) && take(2));
  now_ += kLimits.patience / 2;
  EXPECT_TRUE(take(0) && take(2) && take(0) && take(2));
  EXPECT_FALSE(take(4));
  now_ += kLimits.patience / 2;
  EXPECT_TRUE(take(4) && take(4)) << "the first two are too old";
  EXPECT_FALSE(take(4));
  give_back(0);
  EXPECT_EQ(budget_.held(), kLimits.together) << "what counts no more is given back for nothing";
  EXPECT_FALSE(take(4));
  now_ += kLimits.patience;
  EXPECT_TRUE(take(4));
  EXPECT_EQ(budget_.held(), kChunk);
}

TEST_F(Budget, AChunkOfAnySizeIsLetThrough) {
  ChunkBudget budget({.together = 1, .turn = 1});
  ASSERT_TRUE(budget.take(askers_[0], 1000, now_));
  const auto share = budget.take(askers_[2], 1000, now_);
  ASSERT_FALSE(share);
  now_ += kLimits.patience;
  EXPECT_TRUE(budget.take(askers_[2], 1000, now_));
  EXPECT_TRUE(budget.take(askers_[2], 0, now_));
}

TEST(BudgetOfLongChunks, IsKeptToOneChunk) {
  const ChunkBudget::Limits limits;
  for (const uint64_t bytes : {512u << 10, 1u << 20, 2u << 20, 4u << 20}) {
    for (size_t connections = 2; connections <= 16; ++connections) {
      ChunkBudget budget(limits);
      std::vector<ChunkBudget::Asker> askers(connections);
      for (ChunkBudget::Asker& asker : askers) asker.connection = &asker;
      // One after the other, as progress calls them; the first one is alone for one chunk.
      for (int round = 0; round < 40; ++round) {
        for (ChunkBudget::Asker& asker : askers) (void)budget.take(asker, bytes, TimePoint());
      }
      EXPECT_GE(budget.held(), limits.together - bytes) << connections << " with chunks of " << bytes;
      EXPECT_LT(budget.held(), limits.together + bytes) << connections << " with chunks of " << bytes;
      for (ChunkBudget::Asker& asker : askers) budget.leave(asker);
    }
  }
}

// Compares with a model that recounts everything at each step.
TEST_F(Budget, AgreesWithAModelOverRandomWalks) {
  std::mt19937 random(7);
  size_t granted = 0, refused = 0;
  for (int walk = 0; walk < 200; ++walk) {
    const ChunkBudget::Limits limits{.together = 1 + random() % 60,
                                     .turn = 1 + random() % 30,
                                     .channels = static_cast<uint32_t>(1 + random() % 2),
                                     .patience = milliseconds(10)};
    ChunkBudget budget(limits);
    struct Held {
      ChunkBudget::Share share;
      size_t connection;
      uint64_t bytes;
      TimePoint since;
    };
    std::vector<Held> held;
    std::deque<size_t> line;
    uint64_t given = 0;  // given to the first in line
    const auto leave = [&](size_t who) {
      if (!line.empty() && line.front() == who) given = 0;
      std::erase(line, who);
    };
    const auto bytes_of = [&](size_t connection) {
      uint64_t sum = 0;
      for (const Held& one : held) sum += one.connection == connection && now_ - one.since < limits.patience ? one.bytes : 0;
      return sum;
    };
    for (int step = 0; step < 300; ++step) {
      const size_t who = random() % kAskers, mine = who / 2;
      switch (random() % 4) {
        case 0:
        case 1: {
          std::set<size_t> users{mine};
          for (const Held& one : held) {
            if (now_ - one.since < limits.patience) users.insert(one.connection);
          }
          for (const size_t asker : line) users.insert(asker / 2);
          const uint64_t part = std::max(limits.turn, limits.together / users.size()), bytes = random() % 20;
          uint64_t sum = 0;
          for (const size_t user : users) sum += std::min(bytes_of(user), part + std::max<uint64_t>(bytes, 1) - 1);
          const bool alone = users.size() == 1, waits = std::find(line.begin(), line.end(), who) != line.end();
          const bool next = line.empty() || line.front() == who, full = bytes_of(mine) >= part;
          const bool may = alone || (next && !full && sum < limits.together);
          const auto share = budget.take(askers_[who], bytes, now_);
          ASSERT_EQ(share.has_value(), may) << walk << ' ' << step;
          ++(may ? granted : refused);
          if (may) {
            if (alone || (waits && (given += bytes) * limits.channels >= limits.turn)) leave(who);
            held.push_back({*share, mine, bytes, now_});
          } else if (full && (next || !waits)) {
            leave(who);
          } else if (!waits) {
            line.push_back(who);
          }
          uint64_t all = 0;
          for (size_t connection = 0; connection < kAskers / 2; ++connection) all += bytes_of(connection);
          ASSERT_EQ(budget.held(), all);
          break;
        }
        case 2:
          if (held.empty()) break;
          std::swap(held[random() % held.size()], held.back());
          budget.give_back(held.back().share);
          held.pop_back();
          break;
        default:
          if (random() % 4 == 0) now_ += limits.patience / 3;
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
