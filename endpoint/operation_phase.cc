#include "endpoint/operation_phase.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace tcpx {
namespace {

constexpr uint32_t of(OperationKind kind) {
  return 1u << static_cast<uint32_t>(kind);
}
constexpr uint32_t kSends = of(OperationKind::kSend), kReceives = of(OperationKind::kRecv), kWrites = of(OperationKind::kWrite),
                   kReads = of(OperationKind::kRead);

constexpr uint32_t to(Phase phase) {
  return 1u << static_cast<uint32_t>(phase);
}

struct PhaseRow {
  Phase phase;
  uint32_t kinds;
  uint32_t next;  // phases that may follow
  EarlyEnd early_end;
  std::string_view name;
};

// One row for each phase of each kind.
constexpr auto kPhaseTable = std::to_array<PhaseRow>({
    {Phase::kGpu, kReceives, to(Phase::kPosted), EarlyEnd::kUntold, "waits for the GPU's work"},
    {Phase::kGpu, kSends, to(Phase::kWindow), EarlyEnd::kUntold, "waits for the GPU's work"},
    {Phase::kGpu, kWrites | kReads, to(Phase::kWindow) | to(Phase::kMoving), EarlyEnd::kUntold, "waits for the GPU's work"},
    {Phase::kWindow, kSends,
     to(Phase::kWindow) | to(Phase::kOffered) | to(Phase::kMoving) | to(Phase::kReadOut) | to(Phase::kLeaving), EarlyEnd::kUntold,
     "waits for the peer's window"},
    {Phase::kWindow, kWrites,
     to(Phase::kOffered) | to(Phase::kMoving) | to(Phase::kReadOut) | to(Phase::kAnswer) | to(Phase::kLeaving), EarlyEnd::kUntold,
     "waits for the peer's window"},
    {Phase::kWindow, kReads, to(Phase::kOffered), EarlyEnd::kUntold, "waits for the peer's window"},
    {Phase::kReadOut, kSends, to(Phase::kLeaving), EarlyEnd::kAfterCopy, "is copied from the GPU"},
    {Phase::kReadOut, kWrites, to(Phase::kAnswer), EarlyEnd::kAfterCopy, "is copied from the GPU"},
    {Phase::kLeaving, kSends | kWrites, 0, EarlyEnd::kAtOnce, "leaves"},
    {Phase::kPosted, kReceives, to(Phase::kMoving) | to(Phase::kWriteIn), EarlyEnd::kUntold, "waits for a send"},
    {Phase::kOffered, kSends, to(Phase::kMoving), EarlyEnd::kAsksPeer, "waits for the peer"},
    {Phase::kOffered, kWrites, to(Phase::kMoving) | to(Phase::kAnswer), EarlyEnd::kAsksPeer, "waits for the peer"},
    // The peer is told when it answers.
    {Phase::kOffered, kReads, to(Phase::kMoving) | to(Phase::kWriteIn), EarlyEnd::kAtOnce, "waits for the peer"},
    {Phase::kMoving, kSends | kReceives | kReads, 0, EarlyEnd::kAfterTransfer, "moves"},
    {Phase::kMoving, kWrites, to(Phase::kAnswer) | to(Phase::kWindow), EarlyEnd::kAfterTransfer, "moves"},
    {Phase::kWriteIn, kReceives | kReads, 0, EarlyEnd::kAfterCopy, "is copied to the GPU"},
    {Phase::kAnswer, kWrites, to(Phase::kMoving), EarlyEnd::kAtOnce, "waits for the peer's answer"},
});

const PhaseRow* row_of(Phase phase, OperationKind kind) {
  const auto row = std::find_if(kPhaseTable.begin(), kPhaseTable.end(),
                                [=](const PhaseRow& r) { return r.phase == phase && (r.kinds & of(kind)) != 0; });
  return row == kPhaseTable.end() ? nullptr : &*row;
}

}  // namespace

bool has_phase(Phase phase, OperationKind kind) {
  return row_of(phase, kind) != nullptr;
}

bool may_enter(Phase from, Phase next, OperationKind kind) {
  const PhaseRow* const row = row_of(from, kind);
  return row != nullptr && (row->next & to(next)) != 0;
}

EarlyEnd early_end_of(Phase phase, OperationKind kind) {
  assert(has_phase(phase, kind));
  return row_of(phase, kind)->early_end;
}

bool touches_memory(Phase phase, OperationKind kind) {
  const EarlyEnd end = early_end_of(phase, kind);
  return end == EarlyEnd::kAfterTransfer || end == EarlyEnd::kAfterCopy;
}

std::string_view name_of(Phase phase) {
  return std::find_if(kPhaseTable.begin(), kPhaseTable.end(), [=](const PhaseRow& row) { return row.phase == phase; })->name;
}

}  // namespace tcpx
