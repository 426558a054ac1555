// ChunkBudget: limits how much the sending channels of several connections have in flight together.
//
// A window holds what one connection needs to fill the network. Sixty-four windows fill it no better: their chunks only wait in
// memory, do not fit into the caches, and every step has to fetch each byte from memory. So one connection alone has its window,
// and several connections together have no more than `together` bytes in flight.
//
// Turns. A refused asker stands in a line, and those in front of it get their turns first. A turn is several chunks, because
// consecutive chunks of one connection travel faster than single chunks of many.
//
// Slow connections take little from the others. The share of a connection is an equal part of `together`, or a turn if that is
// more, plus the rest of the chunk that fills it. Bytes that it holds beyond its share, from when it was alone, do not count
// against the others, and a chunk that is in flight for longer than `patience` no longer counts. One case remains: with more
// connections than there are turns in `together`, connections that stall hold up the others for `patience` until their own
// windows are full.
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
    /// Bytes that several connections may have in flight; the last chunk let through may exceed it. With 64 peers on two H200s, 8
    /// to 16 MiB are as fast as one peer, 4 MiB reach 0.8 of that rate, and separate windows (up to 1.5 GiB) reach 0.4
    /// (docs/field_notes.md).
    uint64_t together = 12 * 1024 * 1024;
    uint64_t turn = 2 * 1024 * 1024;  ///< bytes of a connection, over all its channels
    uint32_t channels = 1;            ///< of a connection
    /// Several times as long as a fast network takes to move `together`. A slow network takes longer, so the budget does not
    /// limit it. That does no harm: caches are not what makes a slow network slow.
    Duration patience = std::chrono::milliseconds(4);
  };
  /// Identifies a chunk that was let through.
  using Share = uint64_t;
  /// A channel that asks for shares. It must call `leave` before it is destroyed.
  struct Asker {
    const void* connection = nullptr;  ///< the askers of one connection are not limited as long as no other connection asks
    bool in_line = false;              ///< written by the budget only
  };

  explicit ChunkBudget(const Limits& limits) : limits_(limits) {}
  ChunkBudget(const ChunkBudget&) = delete;
  ChunkBudget& operator=(const ChunkBudget&) = delete;

  /// Asks for a share of `bytes` bytes. @return nullopt: not now
  /// @param asker a refused asker stands in line until it has had its turn or leaves. The first in line must ask again soon or
  /// leave, because those behind it wait.
  std::optional<Share> take(Asker& asker, uint64_t bytes, TimePoint now);
  /// Call it once for each share, also for one that no longer counts.
  void give_back(Share share);
  /// Takes the asker out of the line; has no effect when it is not in line.
  void leave(Asker& asker);
  /// True when the asker is in line behind others; asking is useless until it is the first.
  bool is_behind(const Asker& asker) const { return asker.in_line && line_.front() != &asker; }

  /// Bytes of the shares that count.
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
    size_t uses = 0;     // shares that count, and places in line
  };

  bool may_take(Asker& asker, uint64_t bytes);
  void end_use(const void* connection, uint64_t bytes);
  void count_no_more(Held& held);
  void drop_front();

  const Limits limits_;
  std::deque<Held> shares_;  // in the order in which they were taken; the first is number `first_`
  Share first_ = 0;
  std::deque<Asker*> line_;
  uint64_t given_ = 0;                           // bytes that the first in line has been given since it became the first
  std::unordered_map<const void*, User> users_;  // by connection; only those with `uses` above 0
};

}  // namespace tcpx
