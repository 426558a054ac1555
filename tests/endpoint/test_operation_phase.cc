// The phases of an operation: which follow which, for each kind, and how it ends early in each.
#include "endpoint/operation_phase.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

namespace tcpx {
namespace {

constexpr Phase kPhases[] = {Phase::kGpu,     Phase::kReadOut, Phase::kWindow,  Phase::kLeaving, Phase::kPosted,
                             Phase::kOffered, Phase::kMoving,  Phase::kWriteIn, Phase::kAnswer};
constexpr OperationKind kKinds[] = {OperationKind::kSend, OperationKind::kRecv, OperationKind::kWrite, OperationKind::kRead};
using Step = std::tuple<OperationKind, Phase, Phase>;

// Written down once more, by the ways that operations take.
TEST(OperationPhase, TheseStepsAndNoOthers) {
  const std::vector<std::pair<OperationKind, std::vector<Phase>>> ways = {
      {OperationKind::kSend, {Phase::kGpu, Phase::kWindow, Phase::kLeaving}},
      {OperationKind::kSend, {Phase::kGpu, Phase::kWindow, Phase::kReadOut, Phase::kLeaving}},
      {OperationKind::kSend, {Phase::kGpu, Phase::kWindow, Phase::kWindow, Phase::kOffered, Phase::kMoving}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kWindow, Phase::kAnswer}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kWindow, Phase::kReadOut, Phase::kAnswer}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kWindow, Phase::kOffered, Phase::kMoving, Phase::kAnswer}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kWindow, Phase::kOffered, Phase::kAnswer}},
      {OperationKind::kSend, {Phase::kGpu, Phase::kWindow, Phase::kMoving}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kWindow, Phase::kMoving, Phase::kAnswer, Phase::kMoving}},
      {OperationKind::kWrite, {Phase::kGpu, Phase::kMoving, Phase::kWindow, Phase::kLeaving}},
      {OperationKind::kRecv, {Phase::kGpu, Phase::kPosted, Phase::kWriteIn}},
      {OperationKind::kRecv, {Phase::kGpu, Phase::kPosted, Phase::kMoving}},
      {OperationKind::kRead, {Phase::kGpu, Phase::kMoving}},
      {OperationKind::kRead, {Phase::kGpu, Phase::kWindow, Phase::kOffered, Phase::kWriteIn}},
      {OperationKind::kRead, {Phase::kGpu, Phase::kWindow, Phase::kOffered, Phase::kMoving}},
  };
  std::set<Step> wanted;
  std::set<std::pair<OperationKind, Phase>> visited;
  for (const auto& [kind, phases] : ways) {
    visited.insert({kind, phases[0]});
    for (size_t i = 1; i < phases.size(); ++i) {
      wanted.insert({kind, phases[i - 1], phases[i]});
      visited.insert({kind, phases[i]});
    }
  }
  for (const OperationKind kind : kKinds) {
    for (const Phase from : kPhases) {
      EXPECT_EQ(has_phase(from, kind), visited.contains({kind, from})) << name_of(kind) << " " << name_of(from);
      for (const Phase to : kPhases) {
        EXPECT_EQ(may_enter(from, to, kind), wanted.contains({kind, from, to}))
            << "a " << name_of(kind) << " that " << name_of(from) << ", then " << name_of(to);
      }
    }
  }
}

TEST(OperationPhase, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Phase phase : kPhases) names.insert(name_of(phase));
  EXPECT_EQ(names.size(), std::size(kPhases));
  EXPECT_FALSE(names.contains(""));
}

TEST(OperationPhase, EndingEarly) {
  for (const OperationKind kind : kKinds) {
    EXPECT_EQ(early_end_of(Phase::kGpu, kind), EarlyEnd::kUntold);
    EXPECT_EQ(early_end_of(Phase::kMoving, kind), EarlyEnd::kAfterTransfer);
  }
  for (const OperationKind kind : {OperationKind::kSend, OperationKind::kWrite}) {
    EXPECT_EQ(early_end_of(Phase::kWindow, kind), EarlyEnd::kUntold);
    EXPECT_EQ(early_end_of(Phase::kReadOut, kind), EarlyEnd::kAfterCopy);
    EXPECT_EQ(early_end_of(Phase::kOffered, kind), EarlyEnd::kAsksPeer);
  }
  EXPECT_EQ(early_end_of(Phase::kOffered, OperationKind::kRead), EarlyEnd::kAtOnce);
  EXPECT_EQ(early_end_of(Phase::kWriteIn, OperationKind::kRead), EarlyEnd::kAfterCopy);
  EXPECT_EQ(early_end_of(Phase::kPosted, OperationKind::kRecv), EarlyEnd::kUntold);
  EXPECT_EQ(early_end_of(Phase::kLeaving, OperationKind::kSend), EarlyEnd::kAtOnce);
  EXPECT_EQ(early_end_of(Phase::kAnswer, OperationKind::kWrite), EarlyEnd::kAtOnce);
}

TEST(OperationPhase, MemoryIsTouchedByLanesAndCopiesAlone) {
  for (const OperationKind kind : kKinds) {
    for (const Phase phase : kPhases) {
      if (!has_phase(phase, kind)) continue;
      const bool touched = phase == Phase::kMoving || phase == Phase::kReadOut || phase == Phase::kWriteIn;
      EXPECT_EQ(touches_memory(phase, kind), touched) << name_of(kind) << " " << name_of(phase);
    }
  }
}

}  // namespace
}  // namespace tcpx
