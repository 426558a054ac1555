#include "base/mutex.h"

#include "base/spin_time.h"
#include "base/usable_cores.h"

namespace tcpx {

// Anybody may lock, also who must not fail for want of memory or wait for a file.
void Mutex::lock_held() {
  if (!cores_are_few(known_usable_cores()) && poll_briefly([this] { return mutex_.try_lock(); })) return;
  mutex_.lock();
}

}  // namespace tcpx
