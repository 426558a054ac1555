// Copies of memory that may not be there. A user's memory can go away under an operation: somebody truncates the file that is mapped,
// or the application unmaps it. Then the kernel says EFAULT to whoever has it copied by a system call, but a plain copy ends the
// process by SIGSEGV or SIGBUS. Here such a copy is a plain one, because the kernel's take three to six times as long, and the first
// of them installs a handler for both signals. The handler gives up the copy that the thread was in. Every other fault goes on to
// whoever handled the signal before, or ends the process as it would have without the handler.
//
// An application that installs a handler later has it called first. If that one does not call the handler that was there before,
// missing memory ends the process again. One that puts that handler back and raises the signal anew, as Python's faulthandler does,
// has the same effect for long copies only: of a short one nothing is noted that could be found again.
#pragma once

#include <cstddef>
#include <span>

#include "base/segment_copier.h"

namespace tcpx {

/// As memcpy(3). @return 0; EFAULT: some of the memory is not there, or may not be accessed. Some bytes may then have been copied.
/// ENOMEM: of a thread's first long copy
int guarded_copy(void* to, const void* from, size_t bytes) noexcept;
/// The same for each of the segments, in their order.
int guarded_copy(std::span<const CopySegment> segments) noexcept;

}  // namespace tcpx
