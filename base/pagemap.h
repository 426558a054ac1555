// Pagemap: whether memory of a process, this one or another, answers at once. A page that is there does. One that is not may be brought by
// somebody who never does so: whoever handles a userfaultfd, serves a file system (FUSE, NFS), or holds the swapped page. The kernel
// tells which are there (/proc/PID/pagemap), in 1 us for a page and 2 us for 32.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>

#include "base/segment_copier.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Any thread. What it says was so a moment ago.
class Pagemap {
 public:
  /// As long as it lives the process that had this number is asked, and no other one that gets it later.
  /// @return kExhausted, kSystem: it cannot be asked now, or may not
  static Result<std::shared_ptr<const Pagemap>> of(pid_t process);

  /// False, too, where looking would take longer than it is worth: segments that lie far from each other.
  bool has_sources(std::span<const CopySegment> segments) const;
  bool has_targets(std::span<const CopySegment> segments) const;

 private:
  explicit Pagemap(UniqueFd file) : file_(std::move(file)) {}
  bool has(uintptr_t begin, uintptr_t end, bool for_writing) const;
  template <class Begin>
  bool has_all(std::span<const CopySegment> segments, Begin begin_of, bool for_writing) const;

  const UniqueFd file_;
};

}  // namespace tcpx
