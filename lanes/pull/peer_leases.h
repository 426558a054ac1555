// PeerLeases: the slots of a peer on the same host that this end may read or write without asking (base/slot_leases.h). The peer grants
// each in a message, and ends it by clearing a word that both share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/slot_leases.h"
#include "lanes/host_area.h"
#include "lanes/pull/sources.h"
#include "wire/control_stream.h"
#include "wire/messages.h"

namespace tcpx {

/// Tells the peer that this end may be touching its memory, as long as this object lives.
class Touching {
 public:
  /// @param counts of the peer's LeaseWords
  explicit Touching(std::vector<std::atomic<uint32_t>*> counts) : counts_(std::move(counts)) {
    for (std::atomic<uint32_t>* const count : counts_) count->fetch_add(1);
  }
  Touching(Touching&& other) noexcept : counts_(std::exchange(other.counts_, {})) {}
  Touching& operator=(Touching&& other) noexcept {
    std::swap(counts_, other.counts_);
    return *this;
  }
  ~Touching() {
    for (std::atomic<uint32_t>* const count : counts_) count->fetch_sub(1);
  }

 private:
  std::vector<std::atomic<uint32_t>*> counts_;
};

/// For one connection. One thread at a time: the one that makes progress.
class PeerLeases {
 public:
  /// Most parts of all leases; a lease that would exceed this is not used.
  static constexpr size_t kMostParts = 16384;
  /// A lease that a copy uses: its place, and its word as long as it lasts.
  using Used = std::vector<std::pair<uint32_t, uint64_t>>;
  /// Bytes of a copy, in a row, that lie in one part of a slot.
  struct Row {
    WireSource part;
    uint64_t begin = 0;  // of the part, in the slot
    uint64_t bytes = 0;
  };
  /// The place of a copy's bytes in the peer's memory, and the leases that it goes by.
  struct Found {
    Used leases;
    std::vector<Row> rows;
  };

  explicit PeerLeases(const HostPeer& peer) : peer_(peer) {}

  /// The peer grants a lease. @return kProtocol: not so
  Status on_lease(const LaneFrame& frame);
  /// Finds ranges of slots that are leased. @return nullopt: not all of them are, for that
  std::optional<Found> find(std::span<const WireRange> slots, bool writes);
  /// True as long as the peer lets this end use those slots: after it has read, and before it writes.
  bool last(const Used& leases) const;
  /// Tells the peer that this end may be writing by these leases. Look afterwards whether they last.
  Touching touch(const Used& leases) const;
  /// Uses them no more.
  void drop(const Used& leases);
  void clear();
  size_t count() const { return places_.size(); }

 private:
  struct Lease {
    WireLease of{};
    std::vector<std::pair<uint64_t, WireSource>> parts;  // in order, each with the offset where it ends in the slot
  };
  void drop(uint32_t place);

  const HostPeer& peer_;
  std::vector<Lease> leases_;  // by place; without parts: none
  std::unordered_map<SlotId, uint32_t, SlotHash> places_;
  size_t parts_ = 0;  // of all leases
};

}  // namespace tcpx
