// JointCopy: one copy between the memory of two processes that both of them make. The end that begins it takes slices from the front and the
// other one, the helper, from the back, until none is left. So a helper that does not come takes none, and neither waits for the other longer
// than a slice takes. Each pins pages of the other process, so they do not wait for each other's page tables, as two threads of one end
// do, and what is copied again is in the cache of the same core. 1 MiB of small pages on two cores: 92 us by one end, 56 by both.
//
// The helper knows the place and the bytes from a message. Copies are numbered, so a message that comes late is about none that goes on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/segment_copier.h"
#include "tcpx/types.h"

namespace tcpx {

/// The counters of the copies that one end of a connection begins, one after the other. All zeros at first. Neither end believes what
/// the other one may have stored: it takes at most the slices of the copy, and each of them lies within that.
struct JointWords {
  std::atomic<uint64_t> taken;   ///< number of the copy << 32 | slices taken from the front << 16 | from the back
  std::atomic<uint64_t> helped;  ///< slices that the helper has done with, of all copies; only the helper stores
  std::atomic<uint64_t> failed;  ///< number of a copy of which the helper could not copy a slice; only the helper stores
};

/// One end of a copy. One thread at a time.
class JointCopy {
 public:
  /// Most bytes of a slice. Each costs 2 us beside the copying, so shorter ones take longer: 8 MiB by way of NIXL on two cores, huge pages,
  /// 380 us in slices of 512 KiB, 510 of 256.
  static constexpr size_t kSliceBytes = 512 * 1024;
  static constexpr size_t kMostBytes = kSliceBytes * UINT16_MAX;
  /// Slices that an end copies before it looks at what else has come.
  static constexpr size_t kSlicesAtOnce = 2;

  /// @param words outlive this @param number of the copy, not 0
  /// @param helps false at the end that begins it
  /// @param all contiguous memory of both ends, 1 to kMostBytes bytes
  JointCopy(JointWords& words, uint32_t number, bool helps, const CopySegment& all)
      : words_(&words),
        number_(number),
        helps_(helps),
        all_(all),
        slice_bytes_(slice_bytes_of(all.bytes)),
        helped_before_(words.helped.load()) {}

  /// At the end that begins it: lets the helper take slices.
  void begin() { words_->taken.store(word(0, 0)); }
  /// A slice for this end to copy; nullopt: all are taken, or the copy is over.
  std::optional<CopySegment> take() {
    uint64_t taken = words_->taken.load();
    // Each failure to take one means that the other end has: it cannot be more often than there are slices.
    for (uint64_t tries = own_; tries < slices() && has_slices(taken); ++tries) {
      const uint64_t at = (helps_ ? slices() - 1 - back(taken) : front(taken)) * slice_bytes_;
      if (!words_->taken.compare_exchange_strong(taken, taken + (helps_ ? word(0, 1) : word(1, 0)) - word(0, 0))) continue;
      ++own_;
      return CopySegment{all_.to + at, all_.from + at, std::min<uint64_t>(slice_bytes_, all_.bytes - at)};
    }
    return std::nullopt;
  }

  /// At the end that has begun it: it is not whole, and nobody takes a slice any more.
  void give_up() {
    const uint64_t taken = words_->taken.exchange(word(slices(), 0));
    if (has_slices(taken)) left_ = slices() - front(taken) - back(taken);
    given_up_ = true;
  }
  /// At that end, when `take` has none: true when the helper touches nothing any more.
  bool is_over() const { return words_->helped.load() - helped_before_ >= slices() - own_ - left_; }
  /// At that end, when it is over: true when every byte is in place.
  bool is_whole() const { return !given_up_ && words_->failed.load() != number_; }
  bool is_given_up() const { return given_up_; }

  /// At the helper: it has copied, or could not, the slice that it took last.
  void end_slice(bool copied) {
    if (!copied) words_->failed.store(number_);
    words_->helped.fetch_add(1);
  }

 private:
  /// Two at least, of whole pages.
  static uint64_t slice_bytes_of(uint64_t bytes) {
    const uint64_t each = (bytes - 1) / std::max<uint64_t>(2, (bytes - 1) / kSliceBytes + 1) + 1;
    return (each + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  uint64_t slices() const { return (all_.bytes - 1) / slice_bytes_ + 1; }
  uint64_t word(uint64_t front, uint64_t back) const { return uint64_t{number_} << 32 | front << 16 | back; }
  static uint64_t front(uint64_t taken) { return taken >> 16 & UINT16_MAX; }
  static uint64_t back(uint64_t taken) { return taken & UINT16_MAX; }
  bool has_slices(uint64_t taken) const { return taken >> 32 == number_ && front(taken) + back(taken) < slices(); }

  JointWords* words_;
  uint32_t number_;
  bool helps_;
  CopySegment all_;
  uint64_t slice_bytes_;
  uint64_t helped_before_;
  uint64_t own_ = 0;   // slices that this end has taken
  uint64_t left_ = 0;  // that nobody will copy
  bool given_up_ = false;
};

}  // namespace tcpx
