#include "python/src/regions.h"

#include <algorithm>

namespace tcpx::python {

std::optional<MemoryId> Regions::find(uintptr_t data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  // The shortest that begins there, so that what is advertised of a registration does not end with a longer one's.
  auto next = entries_.lower_bound({data, bytes});
  if (next != entries_.end() && next->first.first == data) return next->second.memory;
  while (next != entries_.begin()) {
    const auto& [range, entry] = *--next;
    const uintptr_t before = data - range.first;
    if (before >= longest_ && before != 0) break;
    if (before <= range.second && bytes <= range.second - before) return entry.memory;
  }
  return std::nullopt;
}

void Regions::add(uintptr_t data, size_t bytes, MemoryId memory) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{data, bytes}];
  entry.memory = memory;
  ++entry.uses;
  longest_ = std::max(longest_, bytes);
}

std::optional<MemoryId> Regions::remove(uintptr_t data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({data, bytes});
  if (found == entries_.end()) return std::nullopt;
  const MemoryId memory = found->second.memory;
  if (--found->second.uses == 0) entries_.erase(found);
  return memory;
}

size_t Regions::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tcpx::python
