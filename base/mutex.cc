#include "base/mutex.h"

#include "base/spin_time.h"
#include "base/usable_cores.h"

namespace tcpx {

void Mutex::lock_held() {
  if (!cores_are_few() && poll_briefly([this] { return mutex_.try_lock(); })) return;
  mutex_.lock();
}

}  // namespace tcpx
