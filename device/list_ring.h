// Room for the scatter lists of launches in flight: a ring of entries, handed out in contiguous stretches. Counts only; the
// entries and their location are up to the user. No CUDA here.
#pragma once

#include <cassert>
#include <cstddef>

#include "base/text.h"
#include "tcpx/status.h"

namespace tcpx {

/// Contiguous entries of a ListRing.
struct ListStretch {
  size_t first = 0;
  size_t held = 0;  ///< to be passed to release: the entries, and those skipped before them
};

/// One thread at a time. Stretches are released in the order in which they were taken.
class ListRing {
 public:
  explicit ListRing(size_t capacity) : capacity_(capacity) {}

  size_t capacity() const { return capacity_; }

  /// Takes `count` contiguous entries; 0 always succeeds. A stretch that does not fit before the end begins at entry 0, and the
  /// rest up to the end is held along with it. An empty ring begins at entry 0, so anything up to the capacity fits it.
  /// @return kInvalidArgument for more than the capacity; kExhausted when it does not fit beside the held entries.
  Result<ListStretch> take(size_t count) {
    if (count > capacity_) {
      return Status(Code::kInvalidArgument, "make scatter list",
                    concat(count, " fragments; ", capacity_, " are possible at a time"));
    }
    if (held_ == 0) next_ = 0;
    const bool wraps = count > capacity_ - next_;
    const size_t skipped = wraps ? capacity_ - next_ : 0;
    if (skipped + count > capacity_ - held_) {
      return Status(Code::kExhausted, "make scatter list",
                    concat("no room for ", count, " fragments: ", held_, " of ", capacity_, " are in flight"));
    }
    const size_t first = wraps ? 0 : next_;
    next_ = first + count;
    held_ += skipped + count;
    return ListStretch{first, skipped + count};
  }

  /// @param held that of the oldest stretch not yet released.
  void release(size_t held) {
    assert(held <= held_);
    held_ -= held;
  }

 private:
  const size_t capacity_;
  size_t next_ = 0;  // entry after the newest stretch; capacity_ when that ends at the end
  size_t held_ = 0;  // entries in use, in one stretch around the ring that ends at next_
};

}  // namespace tcpx
