// Pagemap: tells whether memory of this or another process can be accessed without waiting. A page that is present can. For a
// page that is not, an access may wait forever: for the handler of a userfaultfd, for the server of a file system (FUSE, NFS), or
// for the swap device. The kernel tells which pages are present (/proc/PID/pagemap): in 1 us for one page, in 7 us for 256, as of Linux 6.7
// in 3.5.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/segment_copier.h"
#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Any thread. An answer describes the state of a moment ago.
class Pagemap {
 public:
  /// Opens the page map of a process. The object stays with that process, even when another process later gets the same number.
  /// @param scans false: as before Linux 6.7
  /// @return kExhausted, kSystem: the page map cannot be opened now, or this process may not open it
  static Result<std::shared_ptr<const Pagemap>> of(pid_t process, bool scans = true);

  /// True when all pages of the segments' sources (targets) are present, and the targets not write-protected by a userfaultfd.
  /// Also false when checking would take too long, as for many short segments that are far from each other.
  bool has_sources(std::span<const CopySegment> segments) const;
  bool has_targets(std::span<const CopySegment> segments) const;

 private:
  Pagemap(UniqueFd file, bool scans) : file_(std::move(file)), scans_(scans) {}
  /// Pages by number.
  struct PageRow {
    uint64_t first, last;
  };
  bool has(std::span<const PageRow> rows, uint64_t last, bool for_writing) const;
  bool has_rows(std::span<PageRow> rows, size_t most_looks, bool for_writing) const;
  std::optional<bool> scan(std::span<const PageRow> rows, uint64_t last, bool for_writing) const;
  template <class Begin>
  bool has_all(std::span<const CopySegment> segments, Begin begin_of, bool for_writing) const;

  const UniqueFd file_;
  mutable std::atomic<bool> scans_;  // until the kernel says that it cannot
};

}  // namespace tcpx
