// Phases of an operation of this end:
//
//   kGpu       its memory waits for the application's GPU work, or it for its next round
//   kReadOut   a short message is being copied from the GPU
//   kWindow    it waits until the peer holds less of what it was told
//   kLeaving   a short send is in the control stream's buffer, and not yet with the kernel
//   kPosted    receive: no send has come to it
//   kOffered   the peer has been told and has not answered
//   kMoving    its job is in a lane
//   kWriteIn   a short message is being copied to the GPU
//   kAnswer    write: all has been sent, the peer has not said that it is in place. It may say Go to one that began without: then it
//              needs the bytes once more, packed in another way or later
//
// Ending early (deadline, cancel). In kGpu, kReadOut, kWindow and kPosted nothing is known to the peer, or what is known can be
// taken back; the operation ends at once (after the copy). In kLeaving it ends at once too, and may arrive all the same. In
// kOffered the peer may say "go" at the same moment: it is asked, and its answer is waited for. In kMoving the pipeline's
// transfer is let run to its end. A wait of more than kGrace for either closes the link, because only that makes sure that
// nothing touches the memory any more.
#pragma once

#include <cstdint>
#include <string_view>

#include "endpoint/operation.h"

namespace tcpx {

enum class Phase : uint8_t { kGpu, kReadOut, kWindow, kLeaving, kPosted, kOffered, kMoving, kWriteIn, kAnswer };

/// Ways an operation ends early.
enum class EarlyEnd : uint8_t {
  kUntold,         ///< at once: nothing was said of it. Its place among sends or receives stays taken
  kAtOnce,         ///< at once, in any case
  kAsksPeer,       ///< when the peer has answered, or its transfer has ended if the peer wants it
  kAfterTransfer,  ///< when its transfer has ended
  kAfterCopy,      ///< when the GPU has copied, which needs no peer
};

/// Time an operation that ends early may still take before its connection is closed.
inline constexpr Duration kGrace = std::chrono::seconds(5);

/// An operation of that kind comes into the phase.
bool has_phase(Phase phase, OperationKind kind);
/// It may go from one to the other. Operations begin in kGpu, and may end in any phase.
bool may_enter(Phase from, Phase to, OperationKind kind);
/// Of an operation that comes into the phase, as the two below.
EarlyEnd early_end_of(Phase phase, OperationKind kind);
/// A lane or the GPU may be at its memory.
bool touches_memory(Phase phase, OperationKind kind);
/// As the sentence goes on: "the operation ...".
std::string_view name_of(Phase phase);

}  // namespace tcpx
