#include "net/soft/staging_pool.h"

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <new>

namespace tcpx::soft {
const std::byte* StagingPool::Slot::data() const {
  return pool_->buffer_.host() + size_t{index_} * kSlotBytes;
}

void StagingPool::Slot::copy(uint32_t offset, const std::byte* source, uint32_t bytes) {
  assert(offset <= kSlotBytes && bytes <= kSlotBytes - offset);
  Place& place = pool_->places_[index_];
  place.is_prompt = false;
  pool_->copier_->queue(*place.queued_copy, pool_->buffer_.host() + size_t{index_} * kSlotBytes + offset, source, bytes);
}

Status StagingPool::Slot::copy_now(const std::byte* source, uint32_t bytes) {
  assert(bytes <= kSlotBytes);
  Place& place = pool_->places_[index_];
  place.is_prompt = true;
  return place.prompt_copy->start(pool_->buffer_.host() + size_t{index_} * kSlotBytes, source, bytes);
}

Result<bool> StagingPool::Slot::is_copied() const {
  const Place& place = pool_->places_[index_];
  return place.is_prompt ? place.prompt_copy->is_done() : place.queued_copy->is_done();
}

Result<bool> StagingPool::SharedSlot::is_copied() {
  if (copied_.load(std::memory_order_acquire)) return true;
  if (!mutex_.try_lock()) return false;  // another one asks
  const Result<bool> copied = slot_.is_copied();
  mutex_.unlock();
  if (copied.is_ok() && *copied) copied_.store(true, std::memory_order_release);
  return copied;
}

const std::shared_ptr<StagingPool::SharedSlot>& StagingPool::slot_of(const Staged& staged, uint32_t offset) {
  static const std::shared_ptr<SharedSlot> kNone;
  const size_t number = offset / kSlotBytes;
  const bool is_there = number < staged.size() && staged[number] != nullptr && offset % kSlotBytes < staged[number]->bytes();
  return is_there ? staged[number] : kNone;
}

void StagingPool::Slot::reset() {
  if (pool_ == nullptr) return;
  const Place& place = pool_->places_[index_];
  if (place.is_prompt) {
    place.prompt_copy->wait();
  } else {
    place.queued_copy->wait();
  }
  StagingPool& pool = *std::exchange(pool_, nullptr);
  MutexLock lock(pool.mutex_);
  pool.give_back(index_);
}

void StagingPool::Slot::move_to(Client& client) {
  MutexLock lock(pool_->mutex_);
  Place& place = pool_->places_[index_];
  assert(place.holder == nullptr);
  charge(place, client);
}

bool StagingPool::Slot::lend() {
  pool_->look_at_departed();
  MutexLock lock(pool_->mutex_);
  Place& place = pool_->places_[index_];
  if (place.is_lent) return true;
  if (pool_->lent_ == kMostLent) return false;
  ++pool_->lent_;
  place.is_lent = true;
  return true;
}

void StagingPool::Slot::leave_client() {
  MutexLock lock(pool_->mutex_);
  Place& place = pool_->places_[index_];
  assert(place.is_lent);
  if (place.holder != nullptr) --std::exchange(place.holder, nullptr)->held_;
}

Status StagingPool::prepare() {
  MutexLock lock(mutex_);
  if (buffer_) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(auto buffer, memory_.allocate_mapped(device_, size_t{kSlots} * kSlotBytes));
  TCPX_ASSIGN_OR_RETURN(auto lane, memory_.make_copy_lane(device_));
  TCPX_ASSIGN_OR_RETURN(auto prompt_lane, memory_.make_copy_lane(device_));
  std::array<Place, kSlots> places;
  for (Place& place : places) {
    TCPX_ASSIGN_OR_RETURN(auto copy, lane->make_async_copy());
    TCPX_ASSIGN_OR_RETURN(place.prompt_copy, prompt_lane->make_async_copy());
    place.queued_copy = std::make_unique<CopyThread::Copy>(std::move(copy));
  }
  TCPX_ASSIGN_OR_RETURN(copier_, CopyThread::start(memory_, device_, spin_));
  places_ = std::move(places);
  lane_ = std::move(lane);
  prompt_lane_ = std::move(prompt_lane);
  buffer_ = std::move(buffer);
  for (uint32_t i = 0; i < kSlots; ++i) add_free(i);
  return Status::ok();
}

bool StagingPool::is_current_here() const {
  const auto current = memory_.current_device();
  return current.is_ok() && *current == device_;
}

StagingPool::Slot StagingPool::try_take() {
  look_at_departed();
  MutexLock lock(mutex_);
  return any_free() ? take_free(nullptr) : Slot();
}

StagingPool::Slot StagingPool::try_take(Client& client) {
  look_at_departed();
  MutexLock lock(mutex_);
  if (client.kept_) return Slot(this, *std::exchange(client.kept_, std::nullopt));
  if (any_free()) return take_free(&client);  // nobody waits
  if (client.held_ == 0 && !client.waiting_) {
    waiting_.push_back(&client);
    client.waiting_ = true;
    if (waiting_.size() == 1) {
      for (const Place& place : places_) {
        if (place.holder != nullptr) place.holder->staging_changed();
      }
    }
  }
  return Slot();
}

StagingPool::Slot StagingPool::take_free(Client* holder) {
  const uint32_t index = free_[first_free_];
  first_free_ = (first_free_ + 1) % kSlots;
  --free_count_;
  if (holder != nullptr) charge(places_[index], *holder);
  return Slot(this, index);
}

void StagingPool::give_back(uint32_t index) {
  Place& place = places_[index];
  if (place.holder != nullptr) --place.holder->held_;
  place.holder = nullptr;
  if (std::exchange(place.is_lent, false)) --lent_;
  if (waiting_.empty()) return add_free(index);
  Client& next = *waiting_.front();
  waiting_.pop_front();
  next.waiting_ = false;
  next.kept_ = index;
  charge(place, next);
  next.staging_changed();
}

void StagingPool::depart(Departure departure, UniqueFd fd, ZeroCopySends sends, std::vector<LentSlot> lent) noexcept {
  ::shutdown(fd.get(), SHUT_WR);  // as closing would: the peer reads the end behind what the kernel still has
  departure.front().fd = std::move(fd);
  departure.front().sends = std::move(sends);
  departure.front().lent = std::move(lent);
  MutexLock lock(mutex_);
  departed_.splice(departed_.end(), departure);
}

void StagingPool::look_at_departed() {
  Departure one;
  {
    MutexLock lock(mutex_);
    if (departed_.empty()) return;
    one.splice(one.end(), departed_, departed_.begin());
  }
  Departed& next = one.front();
  try {
    read_notifications(next.fd.get(), next.sends);
  } catch (const std::bad_alloc&) {  // that news is lost: the slot counts as read from now on
  }
  std::erase_if(next.lent, [&](const LentSlot& slot) { return next.sends.is_over(slot.last_send); });
  if (next.lent.empty()) return;
  MutexLock lock(mutex_);
  departed_.splice(departed_.end(), one);
}

bool StagingPool::is_contended() const {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

void StagingPool::forget(Client& client) {
  MutexLock lock(mutex_);
  if (std::exchange(client.waiting_, false)) std::erase(waiting_, &client);
  if (client.kept_) give_back(*std::exchange(client.kept_, std::nullopt));
}

uint32_t StagingPool::free_count() {
  look_at_departed();
  MutexLock lock(mutex_);
  return free_count_;
}

}  // namespace tcpx::soft
