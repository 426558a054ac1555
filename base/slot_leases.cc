#include "base/slot_leases.h"

#include <algorithm>

namespace tcpx {

std::optional<SlotLeases::Lease> SlotLeases::grant(const SlotId& slot, MemoryId region) {
  const MutexLock lock(mutex_);
  if (!grants_ || places_.contains(slot)) return std::nullopt;
  free_unwritten();
  if (free_.empty() && unused_ == LeaseWords::kMost) return std::nullopt;
  free_.reserve(unused_ + 1);  // so that `end` needs no memory
  ended_.reserve(unused_ + 1);
  const Lease lease{.place = free_.empty() ? unused_ : free_.back(), .word = last_ + 1};
  places_.emplace(slot, Place{lease.place, region});
  if (free_.empty()) {
    ++unused_;
  } else {
    free_.pop_back();
  }
  words_->words[lease.place].store(++last_);
  return lease;
}

void SlotLeases::end(const SlotId& slot) {
  const MutexLock lock(mutex_);
  const auto found = places_.find(slot);
  if (found == places_.end()) return;
  const Place place = found->second;
  places_.erase(found);
  end(place);
}

void SlotLeases::end(const Place& place) {
  words_->words[place.index].store(0);
  if (is_written(place)) {
    ended_.push_back(place);
  } else {
    free_.push_back(place.index);
  }
}

void SlotLeases::end_all() {
  const MutexLock lock(mutex_);
  grants_ = false;
  for (const auto& [slot, place] : places_) end(place);
  places_.clear();
}

bool SlotLeases::is_touched(std::optional<MemoryId> region) {
  const MutexLock lock(mutex_);
  if (words_ == nullptr) return false;
  free_unwritten();
  const auto is_of = [region](const Place& place) { return !region || place.region == *region; };
  return is_read_still() || std::any_of(ended_.begin(), ended_.end(), is_of) ||
         std::any_of(places_.begin(), places_.end(),
                     [&](const auto& entry) TCPX_REQUIRES(mutex_) { return is_of(entry.second) && is_written(entry.second); });
}

void SlotLeases::close() {
  end_all();
  const MutexLock lock(mutex_);
  ended_.clear();
  words_ = nullptr;
}

// Places of ended leases to which the peer has written.
void SlotLeases::free_unwritten() {
  std::erase_if(ended_, [&](const Place& place) TCPX_REQUIRES(mutex_) {
    const bool over = !is_written(place);
    if (over) free_.push_back(place.index);
    return over;
  });
}

}  // namespace tcpx
