// ChunkBudget: how many chunks the sending channels of several connections hold together.
//
// A window is what one connection needs to fill the network. Sixty-four of them fill it no better: their chunks only wait in
// memory, more than the caches hold, and every byte is fetched from there at each station. So one connection alone has its
// window, and several together hold no more than `together`.
//
// Fair: whoever is refused stands in a line, and those in front of it get their turn first, of a few chunks, which travel faster
// together than one here and one there. Safe: a chunk that has been held for longer than `patience` counts no more, so a peer
// that stalls, or a slow one, takes little from the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/clock.h"

namespace tcpx {

/// One thread at a time.
class ChunkBudget {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(10);
  /// Names a chunk that was taken.
  using Share = uint64_t;
  /// One who asks: a channel. Must leave before it is gone.
  struct Asker {
    const void* connection = nullptr;  ///< those of one are not limited as long as nobody else asks
    bool in_line = false;              ///< the budget's
  };

  /// @param together chunks that several connections hold, at least 1. One alone is not limited.
  /// @param turn chunks that who comes first in line gets before the next, at least 1
  ChunkBudget(size_t together, size_t turn, Duration patience = kPatience);
  ChunkBudget(const ChunkBudget&) = delete;
  ChunkBudget& operator=(const ChunkBudget&) = delete;

  /// @param asker stands in line when it is refused, until it has had its turn or leaves, which it must when it does not ask
  /// again soon: those behind it wait.
  std::optional<Share> take(Asker& asker, TimePoint now);
  /// Each share once; also one that counts no more.
  void give_back(Share share);
  /// Nothing happens to one that is not in line.
  void leave(Asker& asker);

  size_t held() const { return held_; }

 private:
  struct Held {
    const void* connection;
    TimePoint since;
    bool counts = true;
  };

  void uncount(const void* connection);
  void count_no_more(Held& held);
  void drop_front();

  const size_t together_, turn_;
  const Duration patience_;
  std::deque<Held> shares_;  // in the order of taking; the first is number `first_`
  Share first_ = 0;
  size_t held_ = 0;  // of shares_, those that count
  std::deque<Asker*> line_;
  size_t given_ = 0;                               // chunks that the first in line has been given while it stood there
  std::unordered_map<const void*, size_t> users_;  // by connection: its shares that count and its places in line; no zeros
};

}  // namespace tcpx
