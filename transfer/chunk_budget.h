// ChunkBudget: how much the sending channels of several connections have under way together.
//
// A window is what one connection needs to fill the network. Sixty-four of them fill it no better: their chunks only wait in
// memory, more than the caches hold, and every byte is fetched from there at each station. So one connection alone has its
// window, and several together have no more than `together` under way.
//
// In turn: a refused asker stands in a line, and those in front of it get a turn first, of some chunks, which travel faster
// together than one here and one there. A slow one takes little from the others: a connection has its part of the whole, or a
// turn if that is more, and the rest of the chunk that fills it, and what it holds beyond (from when it was alone) is not held
// against them; and a chunk that is under way
// for longer than `patience` counts no more. Remaining case: of more connections than there are turns in the whole, those that
// stall hold up the others for `patience` until their windows are full.
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
  struct Limits {
    /// Bytes, of several connections; the last one let through may exceed it. With 64 peers on two H200s 8 to 16 MiB are as fast
    /// as one peer, 4 MiB reach 0.8 of it, and windows of their own, up to 1.5 GiB, 0.4 (docs/field_notes.md).
    uint64_t together = 12 * 1024 * 1024;
    uint64_t turn = 2 * 1024 * 1024;  ///< bytes of a connection, over all its channels
    uint32_t channels = 1;            ///< of a connection
    /// Some times what `together` takes on a fast network. Less than it takes on a slow one would set no limit there, which does
    /// no harm: a slow network is not slow because of caches.
    Duration patience = std::chrono::milliseconds(4);
  };
  /// Names a chunk that was let through.
  using Share = uint64_t;
  /// One who asks: a channel. Must leave before it is gone.
  struct Asker {
    const void* connection = nullptr;  ///< those of one are not limited as long as nobody else asks
    bool in_line = false;              ///< the budget's
  };

  explicit ChunkBudget(const Limits& limits) : limits_(limits) {}
  ChunkBudget(const ChunkBudget&) = delete;
  ChunkBudget& operator=(const ChunkBudget&) = delete;

  /// @param asker stands in line when it is refused, until it has had its turn or leaves, which it must when it is the first and
  /// does not ask again soon: those behind it wait.
  std::optional<Share> take(Asker& asker, uint64_t bytes, TimePoint now);
  /// Each share once; also one that counts no more.
  void give_back(Share share);
  /// Nothing happens to one that is not in line.
  void leave(Asker& asker);
  /// It is in line behind others: there is no use in asking before it is the first.
  bool is_behind(const Asker& asker) const { return asker.in_line && line_.front() != &asker; }

  /// Bytes that count.
  uint64_t held() const;

 private:
  struct Held {
    const void* connection;
    uint64_t bytes;
    TimePoint since;
    bool counts = true;
  };
  struct User {
    uint64_t bytes = 0;  // of its shares that count
    size_t uses = 0;     // its shares that count and its places in line
  };

  bool may_take(Asker& asker, uint64_t bytes);
  void end_use(const void* connection, uint64_t bytes);
  void count_no_more(Held& held);
  void drop_front();

  const Limits limits_;
  std::deque<Held> shares_;  // in the order of taking; the first is number `first_`
  Share first_ = 0;
  std::deque<Asker*> line_;
  uint64_t given_ = 0;                           // bytes that the first in line was given while it stood there
  std::unordered_map<const void*, User> users_;  // by connection; none without use
};

}  // namespace tcpx
