#include "base/way_memory.h"

#include <algorithm>

namespace tcpx {

WayMemory& WayMemory::of_process() {
  static WayMemory& memory = *new WayMemory;  // never destroyed: threads may still connect while the process exits
  return memory;
}

void WayMemory::has_answered(const std::string& way) {
  const MutexLock lock(mutex_);
  remember(way, true);
}

void WayMemory::was_silent(const std::string& way) {
  const MutexLock lock(mutex_);
  const Word* word = recall(way);
  if (word != nullptr && word->good) {
    ways_.erase(way);
  } else {
    remember(way, false);
  }
}

bool WayMemory::leads_nowhere(const std::string& way) const {
  const MutexLock lock(mutex_);
  const Word* word = recall(way);
  return word != nullptr && !word->good;
}

void WayMemory::remember(const std::string& way, bool good) {
  ways_.insert_or_assign(way, Word{good, clock_.now()});
  if (ways_.size() <= kMostWays) return;
  ways_.erase(std::min_element(ways_.begin(), ways_.end(),
                               [](const auto& one, const auto& other) { return one.second.told < other.second.told; }));
}

const WayMemory::Word* WayMemory::recall(const std::string& way) const {
  const auto found = ways_.find(way);
  return found != ways_.end() && clock_.now() - found->second.told < kRemembered ? &found->second : nullptr;
}

}  // namespace tcpx
