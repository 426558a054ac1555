// Pages that answer, and those that may not.
#include "base/pagemap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <vector>

#include "tests/support/hanging_memory.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMappedPages = 1200;

// The parameter: whether it scans, where the kernel can.
class PagemapTest : public ::testing::TestWithParam<bool> {
 protected:
  PagemapTest() { EXPECT_EQ(::madvise(data_, kMappedPages * page_, MADV_NOHUGEPAGE), 0); }
  ~PagemapTest() override { (void)::munmap(data_, kMappedPages * page_); }

  CopySegment segment(size_t at, size_t bytes) const { return {data_ + at, data_ + at, bytes}; }
  bool has(const std::vector<CopySegment>& segments) const {
    const bool sources = own_->has_sources(segments);
    EXPECT_EQ(own_->has_targets(segments), sources);
    return sources;
  }
  void touch(size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) data_[i * page_] = std::byte{1};
  }

  const size_t page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const data_ =
      static_cast<std::byte*>(::mmap(nullptr, kMappedPages* page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const std::shared_ptr<const Pagemap> own_ = Pagemap::of(::getpid(), GetParam()).value();
};

TEST_P(PagemapTest, EachPageThatABytesLiesInHasToBeThere) {
  touch(1, 2);
  EXPECT_TRUE(has({segment(page_, 2 * page_)}));
  EXPECT_TRUE(has({segment(2 * page_ + 5, 1)}));
  EXPECT_FALSE(has({segment(page_ - 1, 2)}));
  EXPECT_FALSE(has({segment(3 * page_ - 1, 2)}));
  EXPECT_TRUE(has({segment(page_ - 1, 0), segment(page_, 1)})) << "no bytes lie nowhere";
  EXPECT_TRUE(has({}));
}

TEST_P(PagemapTest, NoPageWithinIsMissing) {
  touch(0, 100);
  EXPECT_TRUE(has({segment(0, 100 * page_)}));
  ASSERT_EQ(::madvise(data_ + 50 * page_, page_, MADV_DONTNEED), 0);
  EXPECT_FALSE(has({segment(0, 100 * page_)}));
  EXPECT_TRUE(has({segment(51 * page_, 49 * page_)}));
  ASSERT_EQ(::munmap(data_ + 70 * page_, page_), 0);
  EXPECT_FALSE(has({segment(51 * page_, 49 * page_)})) << "nor is a hole taken for pages";
}

TEST_P(PagemapTest, AsManyPagesAsATableHasAreLookedAtTogether) {
  touch(100, 512);
  EXPECT_TRUE(has({segment(100 * page_, 512 * page_)}));
  EXPECT_FALSE(has({segment(100 * page_, 512 * page_ + 1)}));
}

TEST_P(PagemapTest, SegmentsFarFromEachOtherAreLookedAtIfTheyAreFew) {
  touch(0, 1);
  touch(kMappedPages - 1, 1);
  const CopySegment first = segment(0, 100), last = segment((kMappedPages - 1) * page_, 100), none = segment(page_, 1);
  EXPECT_TRUE(has({first, last}));
  EXPECT_FALSE(has({first, last, none}));
  EXPECT_TRUE(has({first, last, first, last, first}));
  for (size_t i = 1; i < 5; ++i) touch(i * 200, 1);
  EXPECT_FALSE(has({first, segment(200 * page_, 1), segment(400 * page_, 1), segment(600 * page_, 1), segment(800 * page_, 1)}))
      << "it would take too long";
}

// The blocks of a cache: what lies between two of them may be there or not, and their order is any.
TEST_P(PagemapTest, BlocksNearEachOtherAreLookedAtTogether) {
  constexpr size_t kPagesOfABlock = 8, kBlocks = 70;
  std::vector<CopySegment> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t at = (i * 27 % kBlocks) * 2 * kPagesOfABlock;
    touch(at, kPagesOfABlock);
    blocks.push_back(segment(at * page_ + 100, kPagesOfABlock * page_ - 200));
  }
  EXPECT_TRUE(has(blocks)) << "nothing is between them";
  touch(0, kMappedPages);
  EXPECT_TRUE(has(blocks));
  for (size_t i = 0; i < kBlocks; ++i) {
    std::byte* const last_page = data_ + (i * 2 + 1) * kPagesOfABlock * page_ - page_;
    ASSERT_EQ(::madvise(last_page, page_, MADV_DONTNEED), 0);
    EXPECT_FALSE(has(blocks)) << i;
    *last_page = std::byte{1};
  }
}

TEST_P(PagemapTest, MemoryThatIsNoneIsNotThere) {
  EXPECT_FALSE(has({{nullptr, nullptr, 1}}));
  auto* const end = reinterpret_cast<std::byte*>(UINTPTR_MAX);
  EXPECT_FALSE(has({{end - 4095, end - 4095, 4095}}));
  EXPECT_FALSE(has({{end - 4095, end - 4095, 8192}})) << "nor beyond the end of all memory";
  EXPECT_FALSE(Pagemap::of(-1).is_ok());
}

// A write to it waits for whoever handles the userfaultfd, a read does not.
TEST_P(PagemapTest, WriteProtectionByAUserfaultfd) {
  touch(0, 1);
  const UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  uffdio_api api{.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP, .ioctls = 0};
  uffdio_register all{
      .range = {.start = reinterpret_cast<uintptr_t>(data_), .len = page_}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  if (!faults || ::ioctl(faults.get(), UFFDIO_API, &api) != 0 || ::ioctl(faults.get(), UFFDIO_REGISTER, &all) != 0)
    GTEST_SKIP() << "userfaultfd is refused: " << std::strerror(errno);
  uffdio_writeprotect protect{.range = all.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_WRITEPROTECT, &protect), 0);
  const std::array<CopySegment, 1> page{segment(0, 10)};
  EXPECT_TRUE(own_->has_sources(page));
  EXPECT_FALSE(own_->has_targets(page));
}

INSTANTIATE_TEST_SUITE_P(Scans, PagemapTest, ::testing::Bool());

}  // namespace
}  // namespace tcpx::testing
