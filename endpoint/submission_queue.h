// SubmissionQueue: passes items from callers' threads to the progress thread. A push takes no lock and no memory, so it neither waits
// nor fails. Items of all threads come out in the order of their pushes.
#pragma once

#include <atomic>

namespace tcpx {

/// @tparam T has a member `T* next_submitted`, which the queue uses from `push` to `pop`
template <class T>
class SubmissionQueue {
 public:
  SubmissionQueue() = default;
  SubmissionQueue(const SubmissionQueue&) = delete;
  SubmissionQueue& operator=(const SubmissionQueue&) = delete;

  /// Any thread. The thread that pops `item` sees all writes made before this call.
  void push(T& item) {
    T* top = pushed_.load(std::memory_order_relaxed);
    do item.next_submitted = top;
    while (!pushed_.compare_exchange_weak(top, &item, std::memory_order_release, std::memory_order_relaxed));
  }

  /// One thread at a time. @return nullptr: the queue is empty
  T* pop() {
    if (first_ == nullptr && has_new()) {  // a needless exchange would slow down the threads that push
      // Takes all items at once, so no item can be taken out and pushed again while another thread looks at it. The newest is on top.
      for (T* top = pushed_.exchange(nullptr, std::memory_order_acquire); top != nullptr;) {
        T* const below = top->next_submitted;
        top->next_submitted = first_;
        first_ = top;
        top = below;
      }
    }
    T* const item = first_;
    if (item != nullptr) first_ = item->next_submitted;
    return item;
  }

  /// True when `pop` would return nullptr. As for `pop`.
  bool empty() const { return first_ == nullptr && !has_new(); }
  /// True when something was pushed that `pop` has not fetched yet. Any thread.
  bool has_new() const { return pushed_.load(std::memory_order_relaxed) != nullptr; }

 private:
  // Separate cache lines, so that pushing threads do not slow down the popping one, nor readers of what lies behind.
  alignas(64) std::atomic<T*> pushed_{nullptr};
  alignas(64) T* first_ = nullptr;  // items fetched from pushed_, oldest first
};

}  // namespace tcpx
