#include "python/src/regions.h"

#include <algorithm>

namespace tcpx::python {

Status BufferRegistration::end(std::optional<std::chrono::milliseconds> timeout) {
  if (!shared_->is_of_this_process()) return Status::ok();  // nothing of it is registered here
  const std::lock_guard lock(mutex_);
  if (ended_) return Status::ok();
  const auto endpoint = shared_->use();
  if (endpoint == nullptr) {
    // Closed: nothing is registered any more, but the library may still be about to let go.
    shared_->wait_until_gone();
    ended_ = true;
    return Status::ok();
  }
  const Status status = endpoint->deregister(memory_, timeout);
  ended_ = status.is_ok();
  return status;
}

std::shared_ptr<BufferRegistration> Regions::find(uintptr_t data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  // The shortest that begins there, so that an operation holds no more than it needs.
  auto next = entries_.lower_bound({data, bytes});
  if (next != entries_.end() && next->first.first == data) return next->second.region;
  while (next != entries_.begin()) {
    const auto& [range, entry] = *--next;
    const uintptr_t before = data - range.first;
    if (before >= longest_ && before != 0) break;
    if (before <= range.second && bytes <= range.second - before) return entry.region;
  }
  return nullptr;
}

std::shared_ptr<BufferRegistration> Regions::at(uintptr_t data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({data, bytes});
  return found == entries_.end() ? nullptr : found->second.region;
}

bool Regions::add_again(uintptr_t data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({data, bytes});
  if (found == entries_.end()) return false;
  ++found->second.uses;
  return true;
}

void Regions::add(uintptr_t data, size_t bytes, const std::shared_ptr<BufferRegistration>& region) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{data, bytes}];
  if (entry.region == nullptr) entry.region = region;
  ++entry.uses;
  longest_ = std::max(longest_, bytes);
}

std::shared_ptr<BufferRegistration> Regions::remove(uintptr_t data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({data, bytes});
  if (found == entries_.end() || --found->second.uses != 0) return nullptr;
  auto region = std::move(found->second.region);
  entries_.erase(found);
  return region;
}

}  // namespace tcpx::python
