#include "base/pagemap.h"

#include <fcntl.h>
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
// Most pages that one call asks for; that many take 12 us.
constexpr size_t kMostPages = 512;
// Most segments that are checked one by one.
constexpr size_t kFewSegments = 4;

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Result<std::shared_ptr<const Pagemap>> Pagemap::of(pid_t process) {
  UniqueFd file(::open(concat("/proc/", process, "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("open page map", errno);
  return std::shared_ptr<const Pagemap>(new Pagemap(std::move(file)));
}

// @param end must be above `begin`
bool Pagemap::has(uintptr_t begin, uintptr_t end, bool for_writing) const {
  const uint64_t first = begin / page_bytes(), count = (end - 1) / page_bytes() - first + 1;
  std::array<uint64_t, kMostPages> pages;
  if (count > pages.size()) return false;
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
