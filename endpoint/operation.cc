#include "endpoint/operation.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>

#include "base/spin_time.h"
#include "base/text.h"
#include "base/timespec.h"

namespace tcpx {
namespace {

// The word: generation << 4 | flags | state. Flags belong to pending operations; the end clears them.
constexpr uint64_t kFree = 0, kPending = 1, kEnded = 2, kStateMask = 3;
constexpr uint64_t kCancel = 4;
constexpr uint64_t kWaited = 8;  ///< a thread sleeps on the word
constexpr uint32_t kGenerationShift = 4;

// The id: generation << 20 | index. At a million operations a second a slot's generation lasts for centuries.
constexpr uint32_t kIndexBits = 20;
constexpr uint32_t kMaxCapacity = uint32_t{1} << kIndexBits;

// The top of the free list: count of changes << 21 | index + 1.
constexpr uint32_t kFreeBits = kIndexBits + 1;
constexpr uint64_t kFreeMask = (uint64_t{1} << kFreeBits) - 1;

/// A vector with a larger capacity is freed instead of kept for the next operation.
constexpr size_t kKeptCapacity = 64;
/// Lists of ranges are kept up to so many bytes in all slots: a thread that frees them returns their pages to the kernel, and each page
/// takes 0.5 us when the next operation touches it.
constexpr size_t kMostKeptBytes = 4u << 20;

uint64_t generation_of(OperationId id) {
  return static_cast<uint64_t>(id) >> kIndexBits;
}

uint32_t index_of(OperationId id) {
  return static_cast<uint32_t>(static_cast<uint64_t>(id) & (kMaxCapacity - 1));
}

/// The state of operation `id` in a slot with this word; kFree if another operation has the slot.
uint64_t state_of(uint64_t word, OperationId id) {
  return word >> kGenerationShift == generation_of(id) ? word & kStateMask : kFree;
}

template <class T>
void empty_vector(std::vector<T>& vector) {
  if (vector.capacity() > kKeptCapacity) {
    std::vector<T>().swap(vector);
  } else {
    vector.clear();
  }
}

/// The half of the word with state and flags, which the kernel compares.
uint32_t* futex_of(std::atomic<uint64_t>& word) {
  static_assert(sizeof(word) == 8 && std::endian::native == std::endian::little);
  return reinterpret_cast<uint32_t*>(&word);
}

/// Sleeps while the word is `seen`, until woken or the deadline; may return early.
void sleep_on(std::atomic<uint64_t>& word, uint64_t seen, Deadline deadline) {
  const timespec until = to_timespec(deadline.at().time_since_epoch());  // steady_clock is CLOCK_MONOTONIC, so is the call's time
  ::syscall(SYS_futex, futex_of(word), FUTEX_WAIT_BITSET_PRIVATE, static_cast<uint32_t>(seen), &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

void wake_all(std::atomic<uint64_t>& word) {
  ::syscall(SYS_futex, futex_of(word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"send", "recv", "write", "read"};
  return kNames[static_cast<size_t>(kind)];
}

void Operation::set_signal(std::unique_ptr<GpuSignal> signal) {
  // Release: pairs with `event_of`, which then also sees that the slot has changed hands since an older operation.
  event_.store(signal->event(), std::memory_order_release);
  signal_ = std::move(signal);
}

bool Operation::cancel_requested() const {
  return ((whole != nullptr ? whole : this)->word_.load(std::memory_order_relaxed) & kCancel) != 0;
}

OperationTable::OperationTable(uint32_t capacity, const EventSignal* ended)
    : capacity_(capacity),
      signal_(ended),
      blocks_(std::make_unique<std::atomic<Operation*>[]>((capacity + kBlockSlots - 1) / kBlockSlots)) {
  assert(capacity >= 1 && capacity <= kMaxCapacity);
}

OperationTable::~OperationTable() {
  for (uint32_t base = 0; base < capacity_; base += kBlockSlots) {
    delete[] blocks_[base / kBlockSlots].load(std::memory_order_relaxed);
  }
}

Result<Operation*> OperationTable::acquire(OperationKind kind) {
  uint32_t index = 0;
  if (!take_index(index)) {
    return Status(Code::kExhausted, "start an operation",
                  concat(capacity_, " operations have been started and not yet polled to their end"));
  }
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  if (kind == OperationKind::kRecv) receives_.fetch_add(1, std::memory_order_relaxed);
  Operation& operation = at(index);
  operation.kind = kind;
  const uint64_t generation = (operation.word_.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
  operation.id = OperationId{generation << kIndexBits | index};
  operation.word_.store(generation << kGenerationShift | kPending, std::memory_order_release);
  return &operation;
}

void OperationTable::abandon(Operation& operation) {
  empty(operation);
  const uint64_t word = static_cast<uint64_t>(operation.id) >> kIndexBits << kGenerationShift;
  // Nobody was given the id, but a thread may wait for a guessed one.
  if ((operation.word_.exchange(word | kFree, std::memory_order_acq_rel) & kWaited) != 0) wake_all(operation.word_);
  give_back(operation);
}

void OperationTable::join(Operation& whole, std::span<Operation* const> parts, Operation* last) {
  whole.parts_ = static_cast<uint32_t>(parts.size()) + (last != nullptr ? 1 : 0);
  whole.last_part_ = last;
  for (Operation* const part : parts) part->whole = &whole;
  if (last != nullptr) last->whole = &whole;
}

void OperationTable::finish_part(Operation& part, Status status) {
  Operation& whole = *part.whole;
  if (whole.status_.is_ok()) whole.status_ = std::move(status);
  abandon(part);
  if (--whole.parts_ == 1 && whole.last_part_ != nullptr) {
    Operation& last = *std::exchange(whole.last_part_, nullptr);
    if (whole.status_.is_ok()) return last_parts_->push(last);
    abandon(last);
    --whole.parts_;
  }
  if (whole.parts_ == 0) finish(whole, std::exchange(whole.status_, Status()));
}

void OperationTable::finish(Operation& operation, Status status) {
  if (operation.whole != nullptr) return finish_part(operation, std::move(status));
  empty(operation);
  if (operation.signal_ != nullptr) operation.signal_->fire();
  operation.status_ = std::move(status);
  const uint64_t ended = generation_of(operation.id) << kGenerationShift | kEnded;
  // From here on the slot may be polled and taken again. Release: a reader of the end sees everything above.
  std::atomic<uint64_t>& word = operation.word_;
  const uint64_t before = word.exchange(ended, std::memory_order_acq_rel);
  assert((before & kStateMask) == kPending);
  if ((before & kWaited) != 0) wake_all(word);
  if (signal_ != nullptr) signal_->raise();
}

OperationAnswer OperationTable::poll(OperationId id) {
  Operation* const slot = slot_of(id);
  if (slot == nullptr) return {};
  uint64_t word = slot->word_.load(std::memory_order_acquire);
  const uint64_t state = state_of(word, id);
  if (state == kPending) return {.state = OperationState::kPending, .status = {}};
  // Only one thread succeeds in changing the word. The rest of the operation belongs to that thread.
  if (state != kEnded || !slot->word_.compare_exchange_strong(word, word & ~kStateMask, std::memory_order_acq_rel)) return {};
  OperationAnswer answer;
  answer.state = slot->status_.is_ok() ? OperationState::kDone : OperationState::kFailed;
  answer.status = std::exchange(slot->status_, Status());
  give_back(*slot);
  return answer;
}

bool OperationTable::is_unknown(OperationId id) const {
  const Operation* const slot = slot_of(id);
  return slot == nullptr || state_of(slot->word_.load(std::memory_order_acquire), id) == kFree;
}

bool OperationTable::is_pending(OperationId id) const {
  const Operation* const slot = slot_of(id);
  return slot != nullptr && state_of(slot->word_.load(std::memory_order_acquire), id) == kPending;
}

bool OperationTable::wait(OperationId id, Deadline deadline, Duration spin) {
  Operation* const slot = slot_of(id);
  if (slot == nullptr) return true;
  std::atomic<uint64_t>& word = slot->word_;
  const Deadline spin_end = Deadline::after(spin).earlier(deadline);
  do {
    if (state_of(word.load(std::memory_order_acquire), id) != kPending) return true;
    pause_briefly();
  } while (!spin_end.expired());

  // No wake-up is lost, because kWaited and the state are in one word, whose changes have one order. If the end comes first, setting
  // kWaited fails and the loop sees the end. If kWaited comes first, `finish` finds it in the old word and wakes this thread. The
  // kernel puts a thread to sleep only if the word still has kWaited, and checks that atomically with the wake.
  uint64_t seen = word.load(std::memory_order_acquire);
  while (state_of(seen, id) == kPending) {
    if (deadline.expired()) return false;
    const uint64_t waited = seen | kWaited;
    if (seen == waited || word.compare_exchange_weak(seen, waited, std::memory_order_relaxed)) sleep_on(word, waited, deadline);
    seen = word.load(std::memory_order_acquire);
  }
  return true;
}

bool OperationTable::request_cancel(OperationId id) {
  Operation* const slot = slot_of(id);
  if (slot == nullptr) return false;
  // The flag is set in the word that says "pending", so it never reaches the slot's next operation.
  uint64_t word = slot->word_.load(std::memory_order_relaxed);
  do {
    if (state_of(word, id) != kPending) return false;
  } while (!slot->word_.compare_exchange_weak(word, word | kCancel, std::memory_order_relaxed));
  // Release: the thread that takes the request sees the flag.
  cancel_requested_.store(true, std::memory_order_release);
  return true;
}

bool OperationTable::take_cancel_requests() {
  // Read first: there is nearly never a request, and a read does not disturb other threads.
  return cancel_requested_.load(std::memory_order_relaxed) && cancel_requested_.exchange(false, std::memory_order_acquire);
}

Result<void*> OperationTable::event_of(OperationId id) const {
  const Operation* const slot = slot_of(id);
  // A later operation sets its event after the word has changed. Acquire: a reader of that event reads that word below.
  void* const event = slot == nullptr ? nullptr : slot->event_.load(std::memory_order_acquire);
  if (slot == nullptr || state_of(slot->word_.load(std::memory_order_acquire), id) == kFree) {
    return Status(Code::kNotFound, "completion event", concat("no operation has the id ", static_cast<uint64_t>(id)));
  }
  return event;
}

Operation* OperationTable::slot_of(OperationId id) const {
  const uint32_t index = index_of(id);
  if (index >= capacity_) return nullptr;
  Operation* const block = blocks_[index / kBlockSlots].load(std::memory_order_acquire);
  return block == nullptr ? nullptr : &block[index % kBlockSlots];
}

Operation& OperationTable::at(uint32_t index) const {
  return blocks_[index / kBlockSlots].load(std::memory_order_acquire)[index % kBlockSlots];
}

bool OperationTable::take_index(uint32_t& index) {
  if (pop_free(index)) return true;
  // Try again: another thread may have added the last slots in between.
  if (slots_.load(std::memory_order_acquire) == capacity_) return pop_free(index);
  MutexLock lock(grow_mutex_);
  if (pop_free(index)) return true;
  const uint32_t first = slots_.load(std::memory_order_relaxed);
  if (first == capacity_) return false;
  blocks_[first / kBlockSlots].store(new Operation[kBlockSlots], std::memory_order_release);
  const uint32_t end = std::min(first + kBlockSlots, capacity_);
  for (uint32_t i = end; i-- > first + 1;) push_free(i);
  slots_.store(end, std::memory_order_release);
  index = first;
  return true;
}

// This may read a slot that another thread has just taken. That is safe, because slots stay until the table ends and the count of
// changes then makes the exchange fail. Every change of `free_` reads the one before, so the acquire sees all earlier releases.
bool OperationTable::pop_free(uint32_t& index) {
  uint64_t top = free_.load(std::memory_order_acquire);
  for (;;) {
    if ((top & kFreeMask) == 0) return false;
    const auto candidate = static_cast<uint32_t>((top & kFreeMask) - 1);
    const uint64_t below = at(candidate).next_free_.load(std::memory_order_relaxed);
    const uint64_t next = ((top >> kFreeBits) + 1) << kFreeBits | below;
    if (free_.compare_exchange_weak(top, next, std::memory_order_acquire, std::memory_order_acquire)) {
      index = candidate;
      return true;
    }
  }
}

void OperationTable::push_free(uint32_t index) {
  Operation& slot = at(index);
  uint64_t top = free_.load(std::memory_order_relaxed);
  uint64_t next = 0;
  do {
    slot.next_free_.store(static_cast<uint32_t>(top & kFreeMask), std::memory_order_relaxed);
    next = ((top >> kFreeBits) + 1) << kFreeBits | (index + 1);
  } while (!free_.compare_exchange_weak(top, next, std::memory_order_release, std::memory_order_relaxed));
}

void OperationTable::keep_lists(Operation& operation) {
  operation.ranges.clear();
  operation.remote.clear();
  size_t bytes = operation.ranges.capacity() * sizeof(HeldRange) + operation.remote.capacity() * sizeof(WireRange);
  if (bytes <= kKeptCapacity * (sizeof(HeldRange) + sizeof(WireRange))) bytes = 0;
  if (bytes == operation.kept_bytes_) return;
  const size_t more = bytes - std::exchange(operation.kept_bytes_, bytes);  // below zero: it wraps, and so does the sum
  if (kept_bytes_.fetch_add(more, std::memory_order_relaxed) + more <= kMostKeptBytes) return;
  std::vector<HeldRange>().swap(operation.ranges);
  std::vector<WireRange>().swap(operation.remote);
  kept_bytes_.fetch_sub(std::exchange(operation.kept_bytes_, 0), std::memory_order_relaxed);
}

void OperationTable::empty(Operation& operation) {
  keep_lists(operation);
  operation.named = {};
  empty_vector(operation.after);
  operation.rounds.reset();
  empty_vector(operation.uses);
  operation.notify.reset();
  operation.whole = nullptr;
  operation.conn = ConnId{};
  operation.link = 0;
  operation.sequence = 0;
  operation.bytes = 0;
}

void OperationTable::give_back(Operation& operation) {
  if (operation.signal_ != nullptr) {
    operation.event_.store(nullptr, std::memory_order_release);
    operation.signal_.reset();
  }
  if (operation.kind == OperationKind::kRecv) receives_.fetch_sub(1, std::memory_order_relaxed);
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  push_free(index_of(operation.id));
}

Result<Operation*> NewOperations::first(OperationKind kind) {
  auto acquired = table_.acquire(kind);
  if (acquired.is_ok()) all_[count_++] = *acquired;
  return acquired;
}

bool NewOperations::add(size_t count) {
  const size_t before = count_;
  while (count_ < before + count) {
    const auto acquired = table_.acquire(all_[0]->kind);
    if (!acquired.is_ok()) {
      drop_to(before);
      return false;
    }
    Operation& added = **acquired;
    added.conn = all_[0]->conn;
    added.link = all_[0]->link;
    added.submitted_at = all_[0]->submitted_at;
    added.deadline = all_[0]->deadline;
    all_[count_++] = &added;
  }
  return true;
}

void NewOperations::drop_to(size_t count) {
  while (count_ > count) table_.abandon(*all_[--count_]);
}

}  // namespace tcpx
