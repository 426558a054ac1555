#include "base/pagemap.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

// Bits of a page's entry: Linux, Documentation/admin-guide/mm/pagemap.rst.
constexpr uint64_t kPresent = uint64_t{1} << 63, kWriteProtected = uint64_t{1} << 57;  // write-protected by a userfaultfd
// PAGEMAP_SCAN: Linux 6.7, include/uapi/linux/fs.h (struct pm_scan_arg, struct page_region).
struct ScanArgument {
  uint64_t size, flags, start, end, walk_end, regions, most_regions, most_pages, inverted, all_of, any_of, returned;
};
struct ScanRegion {
  uint64_t start, end, categories;
};
constexpr unsigned long kScan = _IOWR('f', 16, ScanArgument);
constexpr uint64_t kIsWritten = 1 << 1, kIsPresent = 1 << 3;  // not written: write-protected by a userfaultfd
// Most pages that one call asks for; that many take 12 us.
constexpr size_t kMostPages = 512;
// Most segments that are checked one by one.
constexpr size_t kFewSegments = 4;

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Result<std::shared_ptr<const Pagemap>> Pagemap::of(pid_t process, bool scans) {
  UniqueFd file(::open(concat("/proc/", process, "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("open page map", errno);
  return std::shared_ptr<const Pagemap>(new Pagemap(std::move(file), scans));
}

// Asks for the first row of pages that are as wanted. @return nullopt: this kernel cannot tell
std::optional<bool> Pagemap::scan(uint64_t first, uint64_t count, bool for_writing) const {
  if (!scans_.load(std::memory_order_relaxed)) return std::nullopt;
  ScanRegion found{};
  ScanArgument wanted{.size = sizeof wanted,
                      .start = first * page_bytes(),
                      .end = (first + count) * page_bytes(),
                      .regions = reinterpret_cast<uintptr_t>(&found),
                      .most_regions = 1,
                      .all_of = for_writing ? kIsPresent | kIsWritten : kIsPresent,
                      .returned = kIsPresent};
  const int rows = ::ioctl(file_.get(), kScan, &wanted);
  if (rows < 0 && errno != EFAULT) {
    scans_.store(false, std::memory_order_relaxed);
    return std::nullopt;
  }
  return rows == 1 && found.start == wanted.start && found.end == wanted.end;
}

// @param end must be above `begin`
bool Pagemap::has(uintptr_t begin, uintptr_t end, bool for_writing) const {
  const uint64_t first = begin / page_bytes(), count = (end - 1) / page_bytes() - first + 1;
  std::array<uint64_t, kMostPages> pages;
  if (count > pages.size()) return false;
  if (const auto answer = scan(first, count, for_writing)) return *answer;
  const size_t bytes = count * sizeof(uint64_t);
  if (::pread(file_.get(), pages.data(), bytes, static_cast<off_t>(first * sizeof(uint64_t))) != static_cast<ssize_t>(bytes))
    return false;
  const uint64_t looked_at = for_writing ? kPresent | kWriteProtected : kPresent;
  return std::all_of(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(count),
                     [=](uint64_t page) { return (page & looked_at) == kPresent; });
}

template <class Begin>
bool Pagemap::has_all(std::span<const CopySegment> segments, Begin begin_of, bool for_writing) const {
  uintptr_t least = UINTPTR_MAX, most = 0;
  size_t count = 0;
  for (const CopySegment& segment : segments) {
    if (segment.bytes == 0) continue;
    least = std::min(least, begin_of(segment));
    most = std::max(most, begin_of(segment) + segment.bytes);
    ++count;
  }
  if (count == 0) return true;
  if (has(least, most, for_writing)) return true;
  if (count == 1 || count > kFewSegments) return false;
  return std::all_of(segments.begin(), segments.end(), [&](const CopySegment& segment) {
    return segment.bytes == 0 || has(begin_of(segment), begin_of(segment) + segment.bytes, for_writing);
  });
}

bool Pagemap::has_sources(std::span<const CopySegment> segments) const {
  return has_all(
      segments, [](const CopySegment& segment) { return reinterpret_cast<uintptr_t>(segment.from); }, false);
}

bool Pagemap::has_targets(std::span<const CopySegment> segments) const {
  return has_all(
      segments, [](const CopySegment& segment) { return reinterpret_cast<uintptr_t>(segment.to); }, true);
}

}  // namespace tcpx
