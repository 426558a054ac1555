// Annotations for ThreadSanitizer. It does not know that two mappings are the same memory, so it sees no order between what one
// end does before it writes to shared memory and what the other end does after it has read that. All shared memory uses one
// annotation: that may make ThreadSanitizer assume more order than there is, but never less. Without ThreadSanitizer the
// functions do nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tcpx {

#if defined(__SANITIZE_THREAD__)
inline char shared_order_mark;
/// Call before the store that tells the other end.
inline void tell_written() {
  __tsan_release(&shared_order_mark);
}
/// Call after the load that sees that store.
inline void tell_read() {
  __tsan_acquire(&shared_order_mark);
}
#else
inline void tell_written() {}
inline void tell_read() {}
#endif

}  // namespace tcpx
