#include "base/slot_leases.h"

namespace tcpx {

std::optional<SlotLeases::Lease> SlotLeases::grant(const SlotId& slot) {
  const MutexLock lock(mutex_);
  if ((free_.empty() && unused_ >= words_.size()) || places_.contains(slot)) return std::nullopt;
  free_.reserve(unused_ + 1);  // so that `end` needs no memory
  const Lease lease{.place = free_.empty() ? unused_ : free_.back(), .word = last_ + 1};
  places_.emplace(slot, lease.place);
  if (free_.empty()) {
    ++unused_;
  } else {
    free_.pop_back();
  }
  words_[lease.place].store(++last_);
  return lease;
}

void SlotLeases::end(const SlotId& slot) {
  const MutexLock lock(mutex_);
  const auto found = places_.find(slot);
  if (found == places_.end()) return;
  words_[found->second].store(0);
  free_.push_back(found->second);
  places_.erase(found);
}

void SlotLeases::close() {
  const MutexLock lock(mutex_);
  for (const auto& [slot, place] : places_) words_[place].store(0);
  places_.clear();
  free_.clear();
  words_ = {};
}

}  // namespace tcpx
