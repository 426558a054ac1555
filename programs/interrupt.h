// Ctrl-C, alike in all programs: results so far are printed, then "interrupted", and the exit code is 128 and the signal's number
// (130, and 143 for SIGTERM). The second one ends the process at once.
#pragma once

#include <atomic>

namespace tcpx {

/// From now on the first Ctrl-C or SIGTERM sets the flag that is returned, so that waits end and connections are closed properly.
const std::atomic<bool>& stop_on_interrupt();
/// The signal that has set it; 0: none has.
int interrupted_by();

/// From now on the first Ctrl-C or SIGTERM prints "interrupted" and ends the process. For programs that print what they have as
/// they go and have nothing to close.
void end_on_interrupt();

}  // namespace tcpx
