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
// Most pages that one call asks for; that many take 9 us, and one 1.1.
constexpr uint64_t kMostPages = 512;
// Segments that are looked at together at most, and pages between two of them that cost no more than another call.
constexpr size_t kBatch = 64;
constexpr uint64_t kMostBetween = 64;
// A look is worth while for so many bytes, because those of which nobody knows are copied once more, or by the peer; and some always are.
constexpr size_t kBytesOfALook = 16 * 1024, kFewLooks = 4;

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

// @param rows, last as in `has` @return nullopt: this kernel cannot tell
std::optional<bool> Pagemap::scan(std::span<const PageRow> rows, uint64_t last, bool for_writing) const {
  if (!scans_.load(std::memory_order_relaxed)) return std::nullopt;
  std::array<ScanRegion, kBatch> found;
  ScanArgument wanted{.size = sizeof wanted,
                      .start = rows.front().first * page_bytes(),
                      .end = (last + 1) * page_bytes(),
                      .regions = reinterpret_cast<uintptr_t>(found.data()),
                      .most_regions = found.size(),
                      .all_of = for_writing ? kIsPresent | kIsWritten : kIsPresent,
                      .returned = kIsPresent};
  const int count = ::ioctl(file_.get(), kScan, &wanted);
  if (count < 0 && errno != EFAULT) {
    scans_.store(false, std::memory_order_relaxed);
    return std::nullopt;
  }
  // Both are in the order of their addresses. Where more regions are there than were asked for, the last rows count as missing.
  const ScanRegion* region = found.data();
  const ScanRegion* const end = region + std::max(count, 0);
  return std::all_of(rows.begin(), rows.end(), [&](PageRow row) {
    while (region != end && region->end < (row.last + 1) * page_bytes()) ++region;
    return region != end && region->start <= row.first * page_bytes();
  });
}

// @param rows by their first pages @param last page of them all
// @return false also when more than kMostPages lie from the first one to that
bool Pagemap::has(std::span<const PageRow> rows, uint64_t last, bool for_writing) const {
  const uint64_t first = rows.front().first, count = last - first + 1;
  std::array<uint64_t, kMostPages> pages;
  if (count > pages.size()) return false;
  if (const auto answer = scan(rows, last, for_writing)) return *answer;
  const size_t bytes = count * sizeof(uint64_t);
  if (::pread(file_.get(), pages.data(), bytes, static_cast<off_t>(first * sizeof(uint64_t))) != static_cast<ssize_t>(bytes))
    return false;
  const uint64_t looked_at = for_writing ? kPresent | kWriteProtected : kPresent;
  return std::all_of(rows.begin(), rows.end(), [&](PageRow row) {
    const auto of_row = std::span(pages).subspan(row.first - first, row.last - row.first + 1);
    return std::all_of(of_row.begin(), of_row.end(), [=](uint64_t page) { return (page & looked_at) == kPresent; });
  });
}

template <class Begin>
bool Pagemap::has_all(std::span<const CopySegment> segments, Begin begin_of, bool for_writing) const {
  std::array<PageRow, kBatch> rows;
  while (!segments.empty()) {
    size_t count = 0, bytes = 0;
    for (; !segments.empty() && count < rows.size(); segments = segments.subspan(1)) {
      const size_t own = segments.front().bytes;
      if (own == 0) continue;
      const uintptr_t begin = begin_of(segments.front()), last = begin + own - 1;
      if (last < begin) return false;
      rows[count++] = {begin / page_bytes(), last / page_bytes()};
      bytes += own;
    }
    if (!has_rows(std::span(rows).first(count), std::max(kFewLooks, bytes / kBytesOfALook), for_writing)) return false;
  }
  return true;
}

// Rows that are near each other are looked at together.
bool Pagemap::has_rows(std::span<PageRow> rows, size_t most_looks, bool for_writing) const {
  std::sort(rows.begin(), rows.end(), [](PageRow a, PageRow b) { return a.first < b.first; });
  for (size_t looks = 0; !rows.empty(); ++looks) {
    uint64_t last = rows.front().last;
    size_t near = 1;
    for (; near < rows.size() && rows[near].first <= last + kMostBetween; ++near) {
      const uint64_t further = std::max(last, rows[near].last);
      if (further - rows.front().first >= kMostPages) break;
      last = further;
    }
    if (looks == most_looks || !has(rows.first(near), last, for_writing)) return false;
    rows = rows.subspan(near);
  }
  return true;
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
