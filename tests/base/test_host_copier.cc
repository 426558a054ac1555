// Copies out of the memory of this process and of another one.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/guarded_copy.h"
#include "base/host_copier.h"
#include "base/read_process.h"
#include "tests/support/hanging_memory.h"
#include "tests/support/process_state.h"
#include "tests/support/same_bytes.h"

namespace tcpx {
namespace {

using testing::all_are;
using testing::same;
using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t size) {
  std::mt19937_64 random(size);
  Bytes bytes(size);
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, size - at));
  }
  return bytes;
}

Status end_of(const std::shared_ptr<HostCopy>& copy) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!copy->done() && !deadline.expired()) std::this_thread::yield();
  EXPECT_TRUE(copy->done());
  return copy->status();
}

/// A fork of this process, which does nothing, so that what lay in memory lies there too.
class IdleFork {
 public:
  /// @param first done in it before this returns; false ends it
  explicit IdleFork(bool (*first)() = [] { return true; }) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(ends[1]);
      char done = 0;
      EXPECT_EQ(read(ends[0], &done, 1), 1);
      close(ends[0]);
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!first() || write(ends[1], "d", 1) != 1) _exit(1);
    while (true) pause();
  }
  ~IdleFork() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

class HostCopierTest : public ::testing::TestWithParam<bool> {
 protected:
  /// Memory to copy from: of this process, or of a fork of it, which this one then forgets.
  Bytes source(size_t size) {
    Bytes bytes = random_bytes(size);
    wanted_ = bytes;
    if (GetParam()) fork_ = std::make_unique<IdleFork>();
    return bytes;
  }
  pid_t process() const { return fork_ ? fork_->pid() : getpid(); }

  Bytes wanted_;
  std::unique_ptr<IdleFork> fork_;
};

TEST_P(HostCopierTest, EverySize) {
  for (const size_t size : {size_t{1}, size_t{8}, size_t{4097}, HostCopier::kAtOnceBytes, HostCopier::kAtOnceBytes + 1,
                            HostCopy::kSliceBytes, 3 * HostCopy::kSliceBytes + 1, size_t{9} << 20}) {
    const Bytes from = source(size);
    Bytes to(size);
    HostCopier copier(3);
    const CopySegment all{to.data(), from.data(), size};
    ASSERT_TRUE(end_of(copier.start(process(), std::span(&all, 1))).is_ok()) << size;
    EXPECT_TRUE(same(to, wanted_)) << size;
  }
}

TEST_P(HostCopierTest, ManySegments) {
  const size_t size = 5'000'000;
  const Bytes from = source(size);
  Bytes to(size);
  std::vector<CopySegment> segments;
  std::mt19937 random(7);
  for (size_t at = 0; at < size;) {
    const size_t length = std::min<size_t>(random() % 3000, size - at);
    segments.push_back({to.data() + at, from.data() + at, length});
    at += length;
  }
  std::shuffle(segments.begin(), segments.end(), random);
  HostCopier copier(2);
  ASSERT_TRUE(end_of(copier.start(process(), segments)).is_ok());
  EXPECT_TRUE(same(to, wanted_));
}

// Long ones are cut where a page table ends, and may be in one slice with short ones.
TEST_P(HostCopierTest, LongAndShortSegments) {
  const size_t size = 20'000'000;
  const Bytes from = source(size);
  HostCopier copier(8);
  std::mt19937 random(11);
  for (const auto& pages : {Pagemap::of(process()).value(), std::shared_ptr<const Pagemap>()}) {
    Bytes to(size);
    std::vector<CopySegment> segments;
    for (size_t at = 0; at < size;) {
      const size_t length = std::min<size_t>(random() % (random() % 3 == 0 ? 5'000'000 : 100'000), size - at);
      segments.push_back({to.data() + at, from.data() + at, length});
      at += length;
    }
    ASSERT_TRUE(end_of(copier.start(process(), segments, {.pages = pages})).is_ok());
    EXPECT_TRUE(same(to, wanted_));
  }
}

// Read back, as only the other process sees what is there.
TEST_P(HostCopierTest, WritesOfEverySize) {
  for (const size_t size :
       {size_t{1}, size_t{4097}, HostCopier::kAtOnceBytes + 1, HostCopier::kAtOnceAlone + 1, size_t{9} << 20}) {
    Bytes there = source(size), back(size);
    const Bytes here = random_bytes(size + 1);
    HostCopier copier(8);
    const auto pages = Pagemap::of(process()).value();
    const CopySegment out{there.data(), here.data() + 1, size}, in{back.data(), there.data(), size};
    for (const bool alone : {false, true}) {
      const auto written = copier.start_write(process(), std::span(&out, 1), pages, alone);
      ASSERT_EQ(written == nullptr, !alone && size > HostCopier::kAtOnceBytes && size < HostCopy::kSliceBytes);
      ASSERT_TRUE(written == nullptr || end_of(written).is_ok());
    }
    ASSERT_TRUE(end_of(copier.start(process(), std::span(&in, 1), {.pages = pages})).is_ok());
    EXPECT_TRUE(std::equal(back.begin(), back.end(), here.begin() + 1)) << size;
  }
}

// Segments that the kernel would copy slowly go by way of a buffer, also beside others. Nothing is written between them.
TEST_P(HostCopierTest, SegmentsThatAlias) {
  assume_that_pages_alias();
  constexpr size_t kPage = 4096, kRoom = 64 * kPage;
  static constexpr size_t kLengths[] = {1, 8191, 8192, 64 << 10, (64 << 10) + 1, 200'003};
  static constexpr size_t kDistances[] = {0, 1, 16, 31, 32, kPage - 1};
  constexpr size_t kAll = std::size(kLengths) * std::size(kDistances) * kRoom;
  const auto all_segments = [](Bytes& to, const Bytes& from) {
    std::vector<CopySegment> segments;
    const size_t skew = (reinterpret_cast<uintptr_t>(from.data()) - reinterpret_cast<uintptr_t>(to.data())) % kPage;
    for (size_t place = 0; const size_t length : kLengths) {
      for (const size_t distance : kDistances) {
        segments.push_back({to.data() + place + (skew + distance) % kPage, from.data() + place, length});
        EXPECT_EQ(aliases(segments.back().to, segments.back().from), distance >= 1 && distance <= 31) << distance;
        place += kRoom;
      }
    }
    return segments;
  };
  const auto copied_plainly = [](Bytes after, const Bytes& before, const std::vector<CopySegment>& segments, const Bytes& from) {
    for (const CopySegment& one : segments)
      std::memcpy(after.data() + (one.to - before.data()), from.data() + (one.from - from.data()), one.bytes);
    return after;
  };
  Bytes there = source(kAll);
  const auto pages = Pagemap::of(process()).value();
  HostCopier copier(8);
  for (const auto& known : {pages, std::shared_ptr<const Pagemap>()}) {
    for (const bool alone : {false, true}) {
      Bytes to = random_bytes(kAll);
      const auto segments = all_segments(to, there);
      const Bytes wanted = copied_plainly(to, to, segments, wanted_);
      ASSERT_TRUE(end_of(copier.start(process(), segments, {.pages = known, .alone = alone})).is_ok());
      EXPECT_TRUE(same(to, wanted));
    }
  }
  const Bytes here = random_bytes(kAll);
  Bytes back(kAll);
  const auto segments = all_segments(there, here);
  const Bytes wanted = copied_plainly(wanted_, there, segments, here);
  for (const CopySegment& one : segments) {
    const auto written = copier.start_write(process(), std::span(&one, 1), pages, true);
    ASSERT_TRUE(written != nullptr && end_of(written).is_ok());
  }
  const CopySegment in{back.data(), there.data(), kAll};
  ASSERT_TRUE(end_of(copier.start(process(), std::span(&in, 1), {.pages = pages})).is_ok());
  EXPECT_TRUE(same(back, wanted));
}

TEST_P(HostCopierTest, NothingIsWrittenThatIsNotThereOrScattered) {
  const size_t size = 8 << 20;
  const auto untouched = [&] {
    void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(madvise(at, size, MADV_NOHUGEPAGE), 0);
    return static_cast<std::byte*>(at);
  };
  std::byte* const hole = untouched();
  Bytes there = source(size);
  const Bytes here = random_bytes(size);
  HostCopier copier(8);
  const auto pages = Pagemap::of(process()).value();
  const auto write = [&](std::vector<CopySegment> segments) { return copier.start_write(process(), segments, pages, true); };
  EXPECT_EQ(write({{hole, here.data(), 4096}}), nullptr);
  EXPECT_EQ(write({{there.data(), hole, 4096}}), nullptr);
  EXPECT_EQ(end_of(write({{hole, here.data(), size}})).native(), EFAULT);
  EXPECT_EQ(end_of(write({{there.data(), hole, size}})).native(), EFAULT);
  EXPECT_EQ(end_of(write({{nullptr, here.data(), HostCopy::kTableBytes}})).native(), EFAULT);
  std::vector<CopySegment> scattered;
  for (size_t at = 0; at < size; at += 128 * 1024) scattered.push_back({there.data() + at, here.data() + at, 64 * 1024});
  EXPECT_EQ(write(scattered), nullptr);
  std::array<unsigned char, 2> present{};
  ASSERT_EQ(mincore(hole, 2 * 4096, present.data()), 0);
  EXPECT_EQ(present[0] & 1, 0) << "nobody has touched it";
  munmap(hole, size);
}

TEST_P(HostCopierTest, SeveralAtOnce) {
  const size_t size = 2'000'000;
  const Bytes from = source(size);
  HostCopier copier(2);
  std::vector<Bytes> to(12, Bytes(size));
  std::vector<std::shared_ptr<HostCopy>> copies;
  for (Bytes& one : to) {
    const CopySegment all{one.data(), from.data(), size};
    copies.push_back(copier.start(process(), std::span(&all, 1)));
  }
  for (const auto& copy : copies) ASSERT_TRUE(end_of(copy).is_ok());
  for (const Bytes& one : to) EXPECT_TRUE(same(one, wanted_));
}

INSTANTIATE_TEST_SUITE_P(Of, HostCopierTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "AnotherProcess" : "ThisProcess"; });

TEST(HostCopies, WhoStartsOneThatIsAloneCopiesItIfItIsNotLong) {
  const Bytes from = random_bytes(HostCopier::kAtOnceAlone + 1);
  Bytes to(from.size());
  HostCopier copier(8);
  const size_t before = testing::thread_count();
  const auto start = [&](size_t bytes, bool alone) {
    const CopySegment all{to.data(), from.data(), bytes};
    EXPECT_TRUE(end_of(copier.start(getpid(), std::span(&all, 1), {.alone = alone})).is_ok());
    return testing::thread_count() - before;
  };
  EXPECT_EQ(start(HostCopier::kAtOnceBytes, false), 0u);
  EXPECT_EQ(start(HostCopier::kAtOnceAlone, true), 0u);
  EXPECT_TRUE(std::equal(from.begin(), from.end() - 1, to.begin()));
  EXPECT_EQ(start(from.size(), true), 8u);
  EXPECT_TRUE(same(to, from));
}

TEST(HostCopies, WhoStartsOneOfSeveralLeavesItToThreads) {
  const Bytes from = random_bytes(HostCopier::kAtOnceBytes + 1);
  Bytes to(from.size());
  HostCopier copier(8);
  const size_t before = testing::thread_count();
  const CopySegment all{to.data(), from.data(), from.size()};
  EXPECT_TRUE(end_of(copier.start(getpid(), std::span(&all, 1))).is_ok());
  EXPECT_EQ(testing::thread_count() - before, 8u);
  EXPECT_TRUE(same(to, from));
}

TEST(HostCopies, MemoryThatIsNotThere) {
  void* const hole = mmap(nullptr, 8 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  IdleFork other;
  HostCopier copier(2);
  Bytes room(100);
  const CopySegment own{room.data(), static_cast<std::byte*>(hole), room.size()};
  EXPECT_EQ(end_of(copier.start(getpid(), std::span(&own, 1))).native(), EFAULT);
  const CopySegment nowhere{nullptr, room.data(), room.size()};
  EXPECT_EQ(end_of(copier.start(getpid(), std::span(&nowhere, 1))).native(), EFAULT);
  for (const size_t size : {size_t{100}, size_t{8} << 20}) {
    Bytes to(size);
    const CopySegment all{to.data(), static_cast<std::byte*>(hole), size};
    const Status status = end_of(copier.start(other.pid(), std::span(&all, 1)));
    EXPECT_EQ(status.code(), Code::kSystem);
    EXPECT_EQ(status.native(), EFAULT);
  }
  EXPECT_FALSE(can_be_read(hole, 4096));
  munmap(hole, 8 << 20);
  const Bytes here(100);
  EXPECT_TRUE(can_be_read(here.data(), here.size()));
}

TEST(HostCopies, MemoryCanBeReadToItsLastByteAndNoFurther) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<std::byte*>(mapped);
  ASSERT_EQ(mprotect(data + page, page, PROT_NONE), 0);
  EXPECT_TRUE(can_be_read(data, page)) << "what lies behind it is another's";
  EXPECT_TRUE(can_be_read(data + page - 1, 1));
  EXPECT_FALSE(can_be_read(data, page + 1)) << "the last byte is not there";
  EXPECT_TRUE(can_be_read(data + page, 0));
  munmap(mapped, 2 * page);
}

TEST(HostCopies, AProcessThatIsGoneIsDeniedAndMemoryThatIsGoneIsNot) {
  const Bytes from = random_bytes(1000);  // first: the other process has what there was before it
  IdleFork other;
  const pid_t pid = other.pid();
  Bytes to(1000);
  HostCopier copier(1);
  CopySegment all{to.data(), from.data(), 1000};
  auto copy = copier.start(pid, std::span(&all, 1));
  EXPECT_TRUE(end_of(copy).is_ok());
  EXPECT_FALSE(copy->denied());
  other.end();
  copy = copier.start(pid, std::span(&all, 1));
  EXPECT_FALSE(end_of(copy).is_ok());
  EXPECT_TRUE(copy->denied());
  all.from = nullptr;
  copy = copier.start(getpid(), std::span(&all, 1));
  EXPECT_EQ(end_of(copy).native(), EFAULT);
  EXPECT_FALSE(copy->denied());
}

std::string effective_rights() {
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:")) return line;
  }
  return {};
}

// A peer that executes a program of another user keeps its number and its pidfd. Root could trace it all the same.
TEST(HostCopies, AProcessThatHasBecomeAnotherUsersIsDenied) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  Bytes there = random_bytes(HostCopy::kSliceBytes);
  Bytes here(there.size());
  const IdleFork process([] { return setresuid(4711, 4711, 4711) == 0; });
  const std::string rights = effective_rights();
  HostCopier copier(1);
  const auto known = Pagemap::of(process.pid());  // a root that may not trace is refused
  for (const auto& pages : {known.is_ok() ? *known : nullptr, std::shared_ptr<const Pagemap>()}) {
    // By this thread, and by one of the copier.
    const CopySegment segment{here.data(), there.data(), here.size()};
    const auto copy = copier.start(process.pid(), std::span(&segment, 1), {.pages = pages, .alone = true});
    EXPECT_EQ(end_of(copy).native(), EPERM) << (pages != nullptr);
    EXPECT_TRUE(copy->denied());
  }
  EXPECT_EQ(here, Bytes(here.size()));
  EXPECT_EQ(effective_rights(), rights);
}

TEST(HostCopies, AProcessThatHasEnded) {
  IdleFork other;
  const pid_t pid = other.pid();
  other.end();
  const Bytes from = random_bytes(1000);
  Bytes to(1000);
  HostCopier copier(1);
  const CopySegment all{to.data(), from.data(), 1000};
  EXPECT_EQ(end_of(copier.start(pid, std::span(&all, 1))).code(), Code::kPeerGone);
}

// The rest is left out, and `done` means that nothing is written any more.
TEST(HostCopies, AStopLeavesOutTheRest) {
  const size_t size = size_t{64} << 20;
  const Bytes from(size, std::byte{1});
  Bytes to(size);
  HostCopier copier(2);
  const CopySegment all{to.data(), from.data(), size};
  const auto copy = copier.start(getpid(), std::span(&all, 1));
  copy->stop();
  const Status status = end_of(copy);
  EXPECT_TRUE(status.is_ok() || status.code() == Code::kCancelled);
  std::fill(to.begin(), to.end(), std::byte{2});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(all_are(to, std::byte{2}));
}

constexpr size_t kHangingBytes = size_t{2} << 20;

/// A process with memory that never answers.
class HangingProcess {
 public:
  HangingProcess() {
    EXPECT_NE(told_, MAP_FAILED);
    where = static_cast<std::byte**>(told_);
    process_ = std::make_unique<IdleFork>([] {
      const auto* const memory = new testing::HangingMemory(kHangingBytes);  // until the process ends
      *where = memory->hangs() ? memory->data() : nullptr;
      return true;
    });
  }
  ~HangingProcess() { munmap(told_, sizeof(std::byte*)); }

  std::byte* data() const { return *where; }  // null: there can be no such memory here
  pid_t pid() const { return process_->pid(); }
  void end() { process_->end(); }

 private:
  inline static std::byte** where = nullptr;
  void* const told_ = mmap(nullptr, sizeof(std::byte*), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::unique_ptr<IdleFork> process_;
};

/// As end_of, while threads that hang are replaced.
Status end_in(HostCopier& copier, const std::shared_ptr<HostCopy>& copy) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (; !copy->done() && !deadline.expired(); std::this_thread::yield()) copier.relieve();
  EXPECT_TRUE(copy->done());
  return copy->status();
}

TEST(HangingCopies, OfAnotherProcessHoldUpNoOtherCopyAndWriteNothingOnceStopped) {
  HangingProcess other;
  if (other.data() == nullptr) GTEST_SKIP() << "userfaultfd is refused";
  HostCopier copier(1);
  const auto pages = Pagemap::of(other.pid());
  ASSERT_TRUE(pages.is_ok()) << pages.status().to_string();
  Bytes to(kHangingBytes), from = random_bytes(kHangingBytes), here(kHangingBytes);
  std::vector<std::shared_ptr<HostCopy>> hanging;
  for (size_t at = 0; at < kHangingBytes; at += kHangingBytes / 2) {  // short and long, the page map known or not
    for (const size_t bytes : {HostCopier::kAtOnceBytes, kHangingBytes / 2}) {
      const CopySegment segment{to.data() + at, other.data() + at, bytes};
      hanging.push_back(copier.start(other.pid(), std::span(&segment, 1), {.pages = at == 0 ? *pages : nullptr}));
    }
  }
  for (const size_t bytes : {size_t{1000}, kHangingBytes}) {
    const CopySegment segment{here.data(), from.data(), bytes};
    EXPECT_TRUE(end_in(copier, copier.start(getpid(), std::span(&segment, 1))).is_ok());
    EXPECT_TRUE(same(std::span(here).first(bytes), std::span(from).first(bytes)));
  }
  for (const auto& copy : hanging) {
    EXPECT_FALSE(copy->done());
    copy->stop();
    EXPECT_TRUE(copy->done());
    EXPECT_EQ(copy->status().code(), Code::kCancelled);
  }
  std::fill(to.begin(), to.end(), std::byte{9});
  other.end();  // which wakes who stands still
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(all_are(to, std::byte{9}));
}

TEST(HangingCopies, GoOnWhenTheMemoryAnswers) {
  testing::HangingMemory memory(kHangingBytes);
  TCPX_NEEDS_HANGING(memory);
  HostCopier copier(2);
  Bytes to(kHangingBytes, std::byte{9});
  const CopySegment segment{to.data(), memory.data(), to.size()};
  const auto copy = copier.start(HostCopy::kThisProcess, std::span(&segment, 1));  // in more slices than there are threads
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (; !copy->hangs() && !deadline.expired(); std::this_thread::yield()) copier.relieve();
  EXPECT_TRUE(copy->hangs());
  memory.release();
  EXPECT_TRUE(end_in(copier, copy).is_ok());
  while (copy->hangs() && !deadline.expired()) std::this_thread::yield();  // the thread has yet to say that it goes on
  EXPECT_FALSE(copy->hangs());
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte{0}), static_cast<ptrdiff_t>(to.size() - 2));
}

// No more threads than these, and no endless end of the copier.
TEST(HangingCopies, AreLeftBehindWithABoundedNumberOfThreads) {
  testing::HangingMemory memory(kHangingBytes);
  TCPX_NEEDS_HANGING(memory);
  Bytes to(kHangingBytes);
  const size_t before = testing::thread_count();
  const TimePoint begin = std::chrono::steady_clock::now();
  {
    HostCopier copier(32);
    std::vector<std::shared_ptr<HostCopy>> copies;
    for (size_t i = 1; i <= 4 * HostCopier::kMostHanging; ++i) {
      const CopySegment segment{to.data() + 4096 * i, memory.data() + 4096 * i, 4096};
      copies.push_back(copier.start(getpid(), std::span(&segment, 1)));
    }
    for (const Deadline some = Deadline::after(6 * HostCopier::kHangs); !some.expired(); std::this_thread::yield()) {
      copier.relieve();
      EXPECT_LE(testing::thread_count(), before + HostCopier::kMostHanging + 32);
    }
    for (const auto& copy : copies) copy->abandon();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  memory.release();
  for (const Deadline soon = Deadline::after(std::chrono::seconds(20)); testing::thread_count() > before && !soon.expired();)
    std::this_thread::yield();
  EXPECT_EQ(testing::thread_count(), before) << "they end once the memory answers";
}

TEST(HostSums, OfManySegmentsAreThatOfTheStringTheyMake) {
  const auto key = std::make_shared<const ByteSumKey>(11);
  HostCopier copier(3);
  for (const size_t size : {size_t{1}, size_t{4097}, HostCopier::kAtOnceBytes + 1, 3 * HostCopy::kSliceBytes + 7}) {
    const Bytes from = random_bytes(size);
    ByteSumPart whole(*key, 0);
    whole.add(from);
    std::vector<CopySegment> segments;
    std::mt19937 random(7);
    for (size_t at = 0; at < size;) {
      const size_t length = std::min<size_t>(random() % 30000, size - at);
      segments.push_back({nullptr, from.data() + at, length});
      at += length;
    }
    const auto sum = copier.start_sum(key, segments);
    ASSERT_TRUE(end_of(sum).is_ok()) << size;
    EXPECT_EQ(sum->sum(), whole.value(size)) << size;
  }
}

TEST(HostSums, OfMemoryThatIsNotThereFail) {
  const size_t size = size_t{1} << 20;
  void* const gone = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  HostCopier copier(2);
  const CopySegment all{nullptr, static_cast<std::byte*>(gone), size};
  const Status status = end_of(copier.start_sum(std::make_shared<const ByteSumKey>(1), std::span(&all, 1)));
  EXPECT_EQ(status.code(), Code::kSystem) << status.to_string();
  EXPECT_EQ(status.native(), EFAULT);
  munmap(gone, size);
}

TEST(HangingCopies, SumsHangAlikeAndCanBeLeftBehind) {
  testing::HangingMemory memory(kHangingBytes);
  TCPX_NEEDS_HANGING(memory);
  const CopySegment segment{nullptr, memory.data(), kHangingBytes};
  HostCopier copier(2);
  const auto sum = copier.start_sum(std::make_shared<const ByteSumKey>(1), std::span(&segment, 1));
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (; !sum->hangs() && !deadline.expired(); std::this_thread::yield()) copier.relieve();
  EXPECT_TRUE(sum->hangs());
  sum->abandon();
  EXPECT_TRUE(sum->done());
  EXPECT_EQ(sum->status().code(), Code::kCancelled);
  memory.release();
}

TEST(HostCopies, ItsEndWaitsForTheCopies) {
  const Bytes from = random_bytes(size_t{16} << 20);
  Bytes to(from.size());
  {
    HostCopier copier(2);
    const CopySegment all{to.data(), from.data(), from.size()};
    (void)copier.start(getpid(), std::span(&all, 1));
  }
  EXPECT_TRUE(same(to, from));
}

}  // namespace
}  // namespace tcpx
