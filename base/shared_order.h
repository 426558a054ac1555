// Marks for the thread checker, which does not know that two mappings are one memory, and sees no order between what one end did
// before it wrote to shared memory and what the other does after it has read that. All memory shares one mark: the checker only
// has to know of more order, not of less. Nothing without the checker.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tcpx {

#if defined(__SANITIZE_THREAD__)
inline char shared_order_mark;
/// Before the store that tells the other end.
inline void tell_written() {
  __tsan_release(&shared_order_mark);
}
/// After the load that says so.
inline void tell_read() {
  __tsan_acquire(&shared_order_mark);
}
#else
inline void tell_written() {}
inline void tell_read() {}
#endif

}  // namespace tcpx
