// CopyQueue: the short copies of one link between GPU memory and inline messages. They begin as slots of InlineCopies come free, and
// end in order. Copies without a slot are always last, so a copy that will free a slot never waits behind one that needs it.
#pragma once

#include <algorithm>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "endpoint/inline_copies.h"

namespace tcpx {

/// One thread at a time. The GPU must be current.
/// @tparam Tag what a copy is for
template <class Tag>
class CopyQueue {
 public:
  /// @param copies must outlive this
  explicit CopyQueue(InlineCopies& copies) : copies_(copies) {}

  /// Queues a copy of at most kMaxInlineBytes; `start` begins it.
  /// @param ranges GPU memory, kept until the copy has ended. @param data as many bytes; may be reused at once
  void push_read(Tag tag, std::span<const HeldRange> ranges) {
    entries_.push_back({.tag = std::move(tag), .ranges = ranges, .data = {}});
  }
  void push_write(Tag tag, std::span<const HeldRange> ranges, std::span<const std::byte> data) {
    entries_.push_back({.tag = std::move(tag), .writes = true, .ranges = ranges, .data = {data.begin(), data.end()}});
  }
  /// Begins copies while there are slots. @return the error of the next copy; ok if it only has to wait
  Status start() {
    while (started_ < entries_.size()) {
      Entry& entry = entries_[started_];
      const auto copy = entry.writes ? copies_.write(entry.ranges, entry.data) : copies_.read(entry.ranges);
      if (!copy.is_ok()) return copy.status().code() == Code::kExhausted ? Status::ok() : copy.status();
      entry.copy = *copy;
      ++started_;
    }
    return Status::ok();
  }

  bool empty() const { return entries_.empty(); }
  // The oldest copy. Needs !empty().
  Tag& front() { return entries_.front().tag; }
  bool front_writes() const { return entries_.front().writes; }
  bool front_started() const { return started_ > 0; }
  /// @return true: it has ended; an error: it has failed
  Result<bool> front_done() const { return front_started() ? copies_.is_done(entries_.front().copy) : Result<bool>(false); }
  std::span<const std::byte> front_bytes() const { return copies_.bytes_of(entries_.front().copy); }
  /// Drops the oldest copy, which has ended or not begun.
  void pop() {
    if (front_started()) {
      copies_.release(entries_.front().copy);
      --started_;
    }
    entries_.pop_front();
  }

  /// Ends the copies that have ended, the oldest first: calls `end` with the status of each while it is the front, then drops it.
  /// @param drops whether those that have not begun are dropped, too, after `drop` has been called for each
  /// @return true if any was
  template <class End, class Drop>
  bool end_those_done(bool drops, End end, Drop drop) {
    bool any = false;
    for (; !empty(); pop(), any = true) {
      if (drops && !front_started()) {
        drop();
        continue;
      }
      const Result<bool> done = front_done();
      if (done.is_ok() && !*done) break;
      end(done.is_ok() ? Status::ok() : done.status());
    }
    return any;
  }

  /// @return true if `is` is true for the tag of any copy
  template <class Is>
  bool any_of(Is is) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return is(entry.tag); });
  }

 private:
  struct Entry {
    Tag tag;
    bool writes = false;
    std::span<const HeldRange> ranges;
    std::vector<std::byte> data;
    InlineCopies::Copy copy{};
  };

  InlineCopies& copies_;
  std::deque<Entry> entries_;
  size_t started_ = 0;  // of entries_, from the front
};

}  // namespace tcpx
