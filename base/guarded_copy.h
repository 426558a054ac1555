// Guarded copy: copies memory that may not be there. A user's memory can disappear during an operation: somebody truncates the
// mapped file, or the application unmaps it. A system call that copies such memory fails with EFAULT, but a plain copy ends the
// process with SIGSEGV or SIGBUS. System calls take three to six times as long, so these functions copy plainly, and the first
// call installs a handler for both signals. The handler gives up the copy that its thread is making. It passes every other fault
// on to the handler that was installed before; without one, the fault ends the process as usual.
//
// A handler that the application installs later is called first. If it does not call the handler that was there before, missing
// memory ends the process again. A handler that restores the earlier one and raises the signal again, as Python's faulthandler
// does, has the same effect, except during long copies: a short copy leaves no record by which the raised signal could be matched
// to it.
#pragma once

#include <cstddef>
#include <span>

#include "base/segment_copier.h"

namespace tcpx {

/// True when the target lies up to kAliasBytes behind the source, modulo the size of a page, on a processor that then takes up to 25 times as
/// long for "rep movsb" (AMD's Zen 3 and 4: "page aliasing", glibc's bug 30994). The kernel copies so, and glibc 2.36's memcpy(3) from 4 KiB
/// to less than a MiB. It is so for an array of NumPy, which begins 16 bytes behind a page, and memory that begins at one.
inline constexpr size_t kAliasBytes = 31;
bool aliases(const void* to, const void* from) noexcept;
/// For tests: from now on this is such a processor.
void assume_that_pages_alias();

/// Copies like memcpy(3). @return 0; EFAULT: some of the memory is not there, or may not be accessed, and some bytes may have
/// been copied; ENOMEM: only from a thread's first long copy
int guarded_copy(void* to, const void* from, size_t bytes) noexcept;
/// Copies the segments in their order, with the same results. As fast where they alias.
int guarded_copy(std::span<const CopySegment> segments) noexcept;

/// Reads memory in its place. It may be left at any instruction that reads, so it has nothing to destroy.
using ReadMemory = void (*)(void* context, std::span<const std::byte> memory);
/// Calls `read` for memory that may not be there. @return as guarded_copy
int guarded_read(std::span<const std::byte> memory, ReadMemory read, void* context) noexcept;

}  // namespace tcpx
