// Chunks in flight on one comm: a ring of slots and, per state, one cursor that only grows.
//
// A chunk has no state field. Chunks are numbered in post order, and `left_[s]` counts those that have left state s, so chunk n
// is in the first state of its direction's way whose cursor has not passed n. Order and state cannot disagree, and "the oldest in
// state s" is a cursor, not a search. The idea is that of google/nccl-plugin-gpudirecttcpx: src/work_queue.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tcpx/types.h"
#include "transfer/chunk_state.h"
#include "transfer/invariant.h"

namespace tcpx {

template <class Slot>
class InflightFifo {
 public:
  /// @param window slots that may be held at once, from 1
  InflightFifo(Direction direction, uint32_t window)
      : direction_(direction), window_(window), slots_(std::min(window, kQueueDepth)) {
    require(window >= 1, "a window has a slot");
  }

  uint32_t window() const { return window_; }
  bool has_room() const { return held() < window_ && !failed_; }
  /// Slots between Posted and the end.
  uint64_t held() const { return end() - begin(); }
  /// Numbers of the chunks held: [begin, end). Valid arguments for `state_of` and `at`.
  uint64_t begin() const { return left(last_working_state()); }
  uint64_t end() const { return left(ChunkState::kQueued); }

  /// Chunks in a state between Queued and the end.
  uint64_t count(ChunkState state) const { return left(predecessor(state)) - left(state); }
  /// The oldest chunk in `state`, or null. The pointer stays good until the chunk's slot is freed, or another is posted.
  Slot* oldest(ChunkState state) { return count(state) == 0 || failed_ ? nullptr : &at(left(state)); }

  ChunkState state_of(uint64_t number) const {
    ChunkState state = ChunkState::kQueued;
    while (number < left(state) && successor(direction_, state) != state) state = successor(direction_, state);
    return failed_ && successor(direction_, state) != state ? ChunkState::kFailed : state;
  }
  Slot& at(uint64_t number) { return slots_[number % slots_.size()]; }
  const Slot& at(uint64_t number) const { return slots_[number % slots_.size()]; }

  /// Queued -> Posted of the next chunk. Pointers to others may be bad afterwards.
  void post(Slot slot) {
    require(has_room(), "a chunk is posted only while the window has room");
    if (held() == slots_.size()) grow();
    at(end()) = std::move(slot);
    advance(ChunkState::kQueued, ChunkState::kPosted);
  }

  /// The one function that changes a state: the oldest chunk in `from` is in `to` from now on.
  void advance(ChunkState from, ChunkState to) {
    require(!failed_ && to != from && to == successor(direction_, from), "a chunk moves along the transition table");
    require(from == ChunkState::kQueued || count(from) > 0, "a chunk leaves only the state it is in");
    ++left_[static_cast<size_t>(from)];
  }

  /// Everything that has not reached its end -> Failed, at once: a comm fails as a whole.
  void fail_all() { failed_ = true; }

 private:
  /// Idle connections are many, and most of them never hold a whole window.
  void grow() {
    std::vector<Slot> larger(window_);
    for (uint64_t number = begin(); number != end(); ++number) larger[number % window_] = std::move(at(number));
    slots_ = std::move(larger);
  }
  uint64_t left(ChunkState state) const { return left_[static_cast<size_t>(state)]; }
  ChunkState last_working_state() const { return direction_ == Direction::kSend ? ChunkState::kPosted : ChunkState::kUnpacking; }
  ChunkState predecessor(ChunkState state) const {
    for (const ChunkTransition& t : kChunkTransitions) {
      if (t.direction == direction_ && t.to == state) return t.from;
    }
    return state;
  }

  Direction direction_;
  uint32_t window_;
  bool failed_ = false;
  std::array<uint64_t, kChunkStateCount> left_{};
  std::vector<Slot> slots_;  // kQueueDepth, or window_ of them
};

}  // namespace tcpx
