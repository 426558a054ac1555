// The phases of an operation of this end, and how it can end early in each:
//
//   kGpu       waits for the application's GPU work on its memory, for its next round, or for a lane that is not ready
//   kReadOut   a short message is being copied from the GPU
//   kWindow    waits for room in the peer's window
//   kLeaving   a short send is in the control stream's buffer, and not yet in the kernel's
//   kPosted    a receive that no send has met yet
//   kOffered   the peer has been told, and has not answered
//   kMoving    a lane has its job
//   kWriteIn   a short message is being copied to the GPU
//   kAnswer    a write: all bytes have left, and the peer has not confirmed them. The peer may send a Go for a begun write if it needs
//              the bytes again, packed in another way or later
//
// An operation ends early at its deadline or when it is cancelled. In kGpu, kReadOut, kWindow and kPosted the peer knows nothing of it,
// or what it knows can be taken back: the operation ends at once, in kReadOut after the copy. In kLeaving it also ends at once, but may
// still arrive. In kOffered the peer may be sending its Go at this moment, so this end asks and waits for the answer. In kMoving the
// lane's job runs to its end. If the answer or the job takes longer than kGrace, the link is closed, because only that makes sure
// that nothing touches the memory any more.
#pragma once

#include <cstdint>
#include <string_view>

#include "endpoint/operation.h"

namespace tcpx {

enum class Phase : uint8_t { kGpu, kReadOut, kWindow, kLeaving, kPosted, kOffered, kMoving, kWriteIn, kAnswer };

/// When the early end of an operation comes.
enum class EarlyEnd : uint8_t {
  kUntold,         ///< at once: the peer does not know of it. Its place among sends or receives stays taken
  kAtOnce,         ///< at once, in any case
  kAsksPeer,       ///< when the peer has answered, or if the peer wants it, when its job has ended
  kAfterTransfer,  ///< when its job has ended
  kAfterCopy,      ///< when the GPU has copied, which needs no peer
};

/// Time that an early end may take before the connection is closed.
inline constexpr Duration kGrace = std::chrono::seconds(5);

/// True if operations of this kind can be in the phase.
bool has_phase(Phase phase, OperationKind kind);
/// True if an operation may go from one phase to the other. It begins in kGpu, and may end in any phase.
bool may_enter(Phase from, Phase to, OperationKind kind);
/// Needs has_phase, as do the two functions below.
EarlyEnd early_end_of(Phase phase, OperationKind kind);
/// True if a lane or the GPU may be touching its memory.
bool touches_memory(Phase phase, OperationKind kind);
/// Continues the sentence "the operation ...".
std::string_view name_of(Phase phase);

}  // namespace tcpx
