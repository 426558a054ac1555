// SubmissionQueue: items from callers to one that makes progress. Pushing takes no lock and no memory, so it neither waits nor
// fails; everything comes out in the order of the pushes, those of all threads together.
#pragma once

#include <atomic>

namespace tcpx {

/// @tparam T has a member `T* next_submitted`, the queue's from `push` to `pop`
template <class T>
class SubmissionQueue {
 public:
  SubmissionQueue() = default;
  SubmissionQueue(const SubmissionQueue&) = delete;
  SubmissionQueue& operator=(const SubmissionQueue&) = delete;

  /// Any thread. Its writes before the call are seen by the thread that pops `item`.
  void push(T& item) {
    T* top = pushed_.load(std::memory_order_relaxed);
    do item.next_submitted = top;
    while (!pushed_.compare_exchange_weak(top, &item, std::memory_order_release, std::memory_order_relaxed));
  }

  /// One thread at a time. @return nullptr: there is none
  T* pop() {
    if (first_ == nullptr && has_new()) {  // asked first, because a needless exchange would hold up those who push
      // All at once, so an item can never be taken out and pushed again while another thread looks at it. The last one is on top.
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

  /// Any thread: something was pushed since the last `pop` that found nothing else.
  bool has_new() const { return pushed_.load(std::memory_order_relaxed) != nullptr; }

 private:
  // Each has a cache line of its own: those who push would wait for the one who pops, and for who reads what lies behind.
  alignas(64) std::atomic<T*> pushed_{nullptr};
  alignas(64) T* first_ = nullptr;  // taken from there, in order
};

}  // namespace tcpx
