// InflightFifo: the chunks in flight on one comm, as a ring of slots and, per state, one cursor that only grows.
//
// A chunk has no state field. Chunks are numbered in the order of posting, and `left_[s]` counts those that have left state s. So
// chunk n is in the first state of its direction's path whose cursor has not passed n. Order and state cannot disagree, and "the
// oldest in state s" is a cursor, not a search. The idea is from google/nccl-plugin-gpudirecttcpx: src/work_queue.h.
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
  /// @param window most slots that may be held at once; at least 1
  InflightFifo(Direction direction, uint32_t window)
      : direction_(direction), window_(window), slots_(std::min(window, kQueueDepth)) {
    require(window >= 1, "a window has a slot");
  }

  uint32_t window() const { return window_; }
  bool has_room() const { return held() < window_ && !failed_; }
  /// Number of slots held: a chunk holds one from Posted until it reaches its last state.
  uint64_t held() const { return end() - begin(); }
  /// The numbers of the chunks held are [begin, end); these are the valid arguments of `state_of` and `at`.
  uint64_t begin() const { return left(last_working_state()); }
  uint64_t end() const { return left(ChunkState::kQueued); }

  /// Number of chunks in `state`, which must be neither Queued nor the last one.
  uint64_t count(ChunkState state) const { return left(predecessor(state)) - left(state); }
  /// The oldest chunk in `state`, or null. The pointer stays valid until the chunk's slot is freed or another chunk is posted.
  Slot* oldest(ChunkState state) { return count(state) == 0 || failed_ ? nullptr : &at(left(state)); }

  ChunkState state_of(uint64_t number) const {
    ChunkState state = ChunkState::kQueued;
    while (number < left(state) && successor(direction_, state) != state) state = successor(direction_, state);
    return failed_ && successor(direction_, state) != state ? ChunkState::kFailed : state;
  }
  Slot& at(uint64_t number) { return slots_[number % slots_.size()]; }
  const Slot& at(uint64_t number) const { return slots_[number % slots_.size()]; }

  /// Moves the next chunk from Queued to Posted. Invalidates pointers to other chunks.
  void post(Slot slot) {
    require(has_room(), "a chunk is posted only while the window has room");
    if (held() == slots_.size()) grow();
    at(end()) = std::move(slot);
    advance(ChunkState::kQueued, ChunkState::kPosted);
  }

  /// Moves the oldest chunk in `from` to `to`. No other function changes the state of a single chunk.
  void advance(ChunkState from, ChunkState to) {
    require(!failed_ && to != from && to == successor(direction_, from), "a chunk moves along the transition table");
    require(from == ChunkState::kQueued || count(from) > 0, "a chunk leaves only the state it is in");
    ++left_[static_cast<size_t>(from)];
  }

  /// Moves all chunks that have not reached their last state to Failed at once: a comm fails as a whole.
  void fail_all() { failed_ = true; }

 private:
  /// Grows the ring to a whole window, and only when needed: most connections are idle and never hold a whole window.
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
  std::vector<Slot> slots_;  // the smaller of kQueueDepth and window_ at first, then window_
};

}  // namespace tcpx
