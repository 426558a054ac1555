#include "programs/unpack/unpack_workload.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <random>

#include "base/text.h"

namespace tcpx {
namespace {

constexpr uint64_t kSeed = 20251121;
constexpr uint32_t kMostOff = 15;

/// Pages of the pool: twice the page of GPUDirect-TCPX, so that an odd begin stays inside.
constexpr uint32_t kShortestPage = 8192;

uint32_t off_in_page(FragmentKind::Source source, std::mt19937_64& random) {
  switch (source) {
    case FragmentKind::Source::kAligned:
      return 0;
    case FragmentKind::Source::kOff3:
      return 3;
    case FragmentKind::Source::kMixed:
      return static_cast<uint32_t>(random() % (kMostOff + 1));
  }
  return 0;
}

}  // namespace

Result<UnpackWorkload> UnpackWorkload::create(const FragmentKind& kind, uint64_t total_bytes, const WorkloadPlace& place) {
  const uint64_t page_bytes = std::max<uint64_t>(kShortestPage, std::bit_ceil(uint64_t{kind.bytes} + kMostOff));
  const uint64_t page_count = place.pool_bytes / page_bytes;
  if (kind.bytes == 0 || page_count == 0 || place.pool_bytes > kMaxPoolBytes) {
    return Status(Code::kInvalidArgument, "make workload",
                  concat("a pool of ", place.pool_bytes, " bytes has no page for fragments of ", kind.bytes));
  }
  std::mt19937_64 random(kSeed);
  std::vector<uint32_t> pages(page_count);
  std::iota(pages.begin(), pages.end(), 0u);
  std::shuffle(pages.begin(), pages.end(), random);

  UnpackWorkload workload;
  workload.kind_ = kind;
  workload.bytes_ = total_bytes;
  workload.place_ = place;
  for (uint64_t off = 0; off < total_bytes;) {
    const auto len = static_cast<uint32_t>(std::min<uint64_t>(kind.bytes, total_bytes - off));
    const uint64_t page = pages[workload.fragments_.size() % page_count] * page_bytes;
    workload.fragments_.push_back({static_cast<uint32_t>(page + off_in_page(kind.source, random)), len, off});
    off += len;
  }
  const std::span<const Fragment> all(workload.fragments_);
  for (size_t at = 0; at < all.size(); at += kMaxFragments) {
    const std::span<const Fragment> part = all.subspan(at, std::min<size_t>(kMaxFragments, all.size() - at));
    const uint64_t begin = part.front().dst_off;
    const uint64_t bytes = part.back().dst_off + part.back().len - begin;
    std::vector<Fragment> list(part.begin(), part.end());
    for (Fragment& fragment : list) fragment.dst_off -= begin;
    TCPX_RETURN_IF_ERROR(workload.blocks_.emplace_back().build(list, bytes,
                                                               {.pool = place.pool,
                                                                .pool_bytes = place.pool_bytes,
                                                                .destination = place.destination + begin,
                                                                .destination_bytes = bytes}));
  }
  return workload;
}

Status UnpackWorkload::check(std::span<const std::byte> pool, std::span<const std::byte> destination) const {
  for (const Fragment& f : fragments_) {
    const std::byte* expected = pool.data() + f.src_off;
    const std::byte* found = destination.data() + f.dst_off;
    if (std::memcmp(expected, found, f.len) == 0) continue;
    const auto at = static_cast<uint64_t>(std::mismatch(found, found + f.len, expected).first - found);
    return Status(Code::kMismatch, "check gathered bytes",
                  concat("byte ", f.dst_off + at, " of ", bytes_, " is not what lies at ", f.src_off + at, " of the pool"));
  }
  return Status::ok();
}

}  // namespace tcpx
