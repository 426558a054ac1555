#include "programs/mesh/mesh_schedule.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tcpx::mesh {
namespace {

constexpr int kMostTested = 33;

std::vector<Round> schedule(int ranks, MeshMode mode, int shift, bool together) {
  const auto rounds = make_schedule(ranks, mode, shift, together);
  EXPECT_TRUE(rounds.is_ok()) << rounds.status().to_string();
  return rounds.is_ok() ? *rounds : std::vector<Round>();
}

/// Every pair that some round holds; fails the test for a rank out of range or with itself, and for a pair that comes twice.
std::set<std::pair<int, int>> pairs_in(const std::vector<Round>& rounds, int ranks) {
  std::set<std::pair<int, int>> pairs;
  for (const Round& round : rounds) {
    for (const Pair& pair : round) {
      EXPECT_TRUE(pair.sender >= 0 && pair.sender < ranks && pair.receiver >= 0 && pair.receiver < ranks);
      EXPECT_NE(pair.sender, pair.receiver);
      EXPECT_TRUE(pairs.emplace(pair.sender, pair.receiver).second) << pair.sender << " to " << pair.receiver << " twice";
    }
  }
  return pairs;
}

TEST(MeshSchedule, EveryOrderedPairComesExactlyOnce) {
  for (int ranks = 2; ranks <= kMostTested; ++ranks) {
    for (const bool together : {false, true}) {
      const size_t pairs = pairs_in(schedule(ranks, MeshMode::kPairs, 0, together), ranks).size();
      EXPECT_EQ(pairs, static_cast<size_t>(ranks * (ranks - 1))) << ranks;
    }
  }
}

TEST(MeshSchedule, AloneMeansOnePairPerRound) {
  for (int ranks = 2; ranks <= kMostTested; ++ranks) {
    for (const Round& round : schedule(ranks, MeshMode::kPairs, 0, false)) EXPECT_EQ(round.size(), 1u);
  }
}

TEST(MeshSchedule, TogetherEverybodySendsOnceAndReceivesOnce) {
  for (int ranks = 2; ranks <= kMostTested; ++ranks) {
    const auto rounds = schedule(ranks, MeshMode::kPairs, 0, true);
    EXPECT_EQ(rounds.size(), static_cast<size_t>(ranks - 1));
    for (const Round& round : rounds) {
      std::set<int> senders, receivers;
      for (const Pair& pair : round) {
        senders.insert(pair.sender);
        receivers.insert(pair.receiver);
      }
      EXPECT_EQ(round.size(), static_cast<size_t>(ranks));
      EXPECT_EQ(senders.size(), round.size());
      EXPECT_EQ(receivers.size(), round.size());
    }
  }
}

TEST(MeshSchedule, APermutationIsOneRoundOfItsShift) {
  for (int ranks = 2; ranks <= kMostTested; ++ranks) {
    for (int shift = 1; shift < ranks; ++shift) {
      const auto rounds = schedule(ranks, MeshMode::kPermutation, shift, false);
      ASSERT_EQ(rounds.size(), 1u);
      const auto pairs = pairs_in(rounds, ranks);
      EXPECT_EQ(pairs.size(), static_cast<size_t>(ranks));
      for (const auto& [sender, receiver] : pairs) EXPECT_EQ((sender + shift) % ranks, receiver);
    }
  }
}

TEST(MeshSchedule, WhatCannotBePlannedIsRefused) {
  const auto code = [](int ranks, MeshMode mode, int shift) { return make_schedule(ranks, mode, shift, true).status().code(); };
  for (const int ranks : {-1, 0, 1, kMostRanks + 1}) {
    EXPECT_EQ(code(ranks, MeshMode::kPairs, 1), Code::kInvalidArgument) << ranks;
  }
  for (const int shift : {-1, 0, 4, 5}) EXPECT_EQ(code(4, MeshMode::kPermutation, shift), Code::kInvalidArgument) << shift;
  EXPECT_EQ(code(kMostRanks, MeshMode::kPairs, 0), Code::kOk);
}

}  // namespace
}  // namespace tcpx::mesh
