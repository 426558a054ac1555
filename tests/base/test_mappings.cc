// What the process may do with host memory: one page in the middle decides for the whole range. All is said twice, also as by a
// kernel before Linux 6.11, which has no call for it.
#include "base/mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/support/mapping.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::testing {
namespace {

constexpr size_t kPage = 4096, kPages = 16;

// Calls on a thread for which one kind of system calls fails.
template <typename F>
auto without(long call, int error, F&& ask) {
  decltype(ask()) answer{};
  std::thread([&] {
    sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{.len = 4, .filter = code};
    EXPECT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    answer = ask();
  }).join();
  return answer;
}

enum class Kernel { kThis, kOld };

class Mappings : public ::testing::TestWithParam<Kernel> {
 protected:
  std::span<std::byte> pages(size_t first, size_t count) { return memory_.span().subspan(first * kPage, count * kPage); }
  static std::optional<HostAccess> access(const void* data, size_t bytes) {
    const auto ask = [=] { return host_access(data, bytes); };
    return GetParam() == Kernel::kThis ? ask() : without(SYS_ioctl, ENOTTY, ask);
  }
  static HostAccess access(std::span<std::byte> bytes) { return access(bytes.data(), bytes.size()).value(); }
  static std::optional<uint64_t> bytes_at(const void* address) {
    const auto ask = [=] { return mapped_bytes(address); };
    return GetParam() == Kernel::kThis ? ask() : without(SYS_ioctl, ENOTTY, ask);
  }

  Mapping memory_{kPages * kPage};
};
INSTANTIATE_TEST_SUITE_P(, Mappings, ::testing::Values(Kernel::kThis, Kernel::kOld),
                         [](const auto& kernel) { return kernel.param == Kernel::kThis ? "this_kernel" : "old_kernel"; });

TEST_P(Mappings, EveryPageCounts) {
  EXPECT_EQ(access(memory_.span()), HostAccess::kReadWrite);
  Mapping::make_read_only(pages(7, 1));
  EXPECT_EQ(access(memory_.span()), HostAccess::kRead);
  EXPECT_EQ(access(pages(7, 1)), HostAccess::kRead);
  Mapping::take_away(pages(9, 1));
  EXPECT_EQ(access(memory_.span()), HostAccess::kNone);
  EXPECT_EQ(access(pages(0, 9)), HostAccess::kRead);
  // And no byte beyond the range does.
  EXPECT_EQ(access(pages(0, 7)), HostAccess::kReadWrite);
  EXPECT_EQ(access(pages(8, 1)), HostAccess::kReadWrite);
  EXPECT_EQ(access(pages(0, 8).first(7 * kPage + 1)), HostAccess::kRead);
  EXPECT_EQ(access(pages(8, 2).first(kPage + 1)), HostAccess::kNone);
  EXPECT_EQ(access(pages(9, 2).subspan(kPage)), HostAccess::kReadWrite);
}

TEST_P(Mappings, AHoleIsNoMemory) {
  Mapping other(kPages * kPage);
  const auto first = reinterpret_cast<uintptr_t>(other.span().data());
  ASSERT_EQ(::munmap(other.span().data() + kPage, kPage), 0);
  EXPECT_EQ(access(other.span().data(), kPages * kPage), HostAccess::kNone);
  EXPECT_EQ(access(other.span().data() + kPage, 1), HostAccess::kNone);
  EXPECT_EQ(access(other.span().data(), kPage), HostAccess::kReadWrite);
  EXPECT_EQ(bytes_at(other.span().data() + 1), kPage - 1);
  EXPECT_EQ(bytes_at(other.span().data() + kPage), std::nullopt);
  EXPECT_EQ(access(nullptr, 1), HostAccess::kNone);
  EXPECT_EQ(access(other.span().data(), ~size_t{0} - first), HostAccess::kNone) << "to the end of all addresses";
  EXPECT_EQ(access(other.span().data(), ~size_t{0}), HostAccess::kNone) << "and beyond";
  EXPECT_EQ(access(nullptr, 0), HostAccess::kReadWrite) << "nothing is asked for";
}

// The kernel escapes only line ends in a path, so that a file's name may look like another line.
TEST_P(Mappings, PathsOfFilesAreNoLines) {
  const TemporaryDirectory directory;
  std::string path = directory.path();
  for (int depth = 0; depth < 8; ++depth) {
    path += '/';
    for (int i = 0; i < 5; ++i) path += "00001000-7fffffffffff r--p 00000000 00:00 0 ";
  }
  std::filesystem::create_directories(path);
  const UniqueFd file(::open((path + "/f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  for (const bool writable : {true, false}) {
    void* const mapped = ::mmap(nullptr, kPage, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE, file.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(access(mapped, kPage), writable ? HostAccess::kReadWrite : HostAccess::kRead);
    EXPECT_EQ(access(memory_.span()), HostAccess::kReadWrite);
    EXPECT_EQ(::munmap(mapped, kPage), 0);
  }
}

TEST_P(Mappings, AllThatAProgramHas) {
  std::vector<std::byte> small(16), large(64 << 20);
  static std::byte global[64];
  static const char text[] = "constant";
  std::byte local[256 << 10];  // of which no page has been touched
  for (const auto bytes : std::vector<std::span<std::byte>>{small, large, global, local})
    EXPECT_EQ(access(bytes), HostAccess::kReadWrite);
  EXPECT_EQ(access(text, sizeof text), HostAccess::kRead);
  EXPECT_NE(access(reinterpret_cast<const void*>(&::getpid), 1), HostAccess::kReadWrite) << "code";
}

// Others map and unmap while the kernel is asked, which moves the borders of mappings beside.
TEST_P(Mappings, StaysTheSameWhileOthersMap) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      std::vector<void*> taken;
      for (size_t i = 0; i < 200; ++i)
        taken.push_back(::mmap(nullptr, kPage, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      for (void* const page : taken) ::munmap(page, kPage);
    }
  });
  for (int round = 0; round < 200; ++round) ASSERT_EQ(access(memory_.span()), HostAccess::kReadWrite) << round;
  stop = true;
  other.join();
}

// The text has a line for each mapping of the process: 1.3 ms of them in one that has torch.
TEST(MappingsAsked, NeedNotReadThemAll) {
  Mapping memory(kPages * kPage);
  const auto ask = [&] { return host_access(memory.span().data(), memory.span().size()); };
  if (without(SYS_read, EIO, ask) == HostAccess::kReadWrite) return;
  GTEST_SKIP() << "this kernel is older than Linux 6.11";
}

}  // namespace
}  // namespace tcpx::testing
