#include "measure/result_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "tests/support/temporary_directory.h"

namespace tcpx {
namespace {

using testing::TemporaryDirectory;

constexpr size_t kPlenty = 1 << 20;

/// While it lives, files cannot grow beyond `bytes`: as on a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~SmallFiles() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = SIG_DFL;
};

TEST(ResultFile, IsWrittenAndRead) {
  const TemporaryDirectory directory;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64} << 10, (size_t{64} << 10) + 1, size_t{200'000}}) {
    const std::string bytes(size, '\x80');
    ASSERT_TRUE(write_file(directory.file("a"), bytes).is_ok());
    EXPECT_TRUE(read_file(directory.file("a"), size).value() == bytes) << size;
  }
  EXPECT_EQ(directory.entry_count(), 1u) << "no temporary file stays behind";
}

TEST(ResultFile, ReplacesAnEarlierOneAsAWhole) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file(directory.file("a"), "earlier").is_ok());
  const UniqueFd reader(::open(directory.file("a").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader);
  ASSERT_TRUE(write_file(directory.file("a"), "new").is_ok());
  char bytes[16];
  EXPECT_EQ(std::string(bytes, static_cast<size_t>(::read(reader.get(), bytes, sizeof bytes))), "earlier");
  EXPECT_EQ(read_file(directory.file("a"), kPlenty).value(), "new");
}

TEST(ResultFile, AWriteThatFailsHalfWayLeavesTheEarlierFile) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file(directory.file("a"), "earlier").is_ok());
  {
    const SmallFiles limit(1000);
    const Status status = write_file(directory.file("a"), std::string(5000, 'x'));
    EXPECT_EQ(status.code(), Code::kSystem);
    EXPECT_EQ(status.native(), EFBIG);
  }
  EXPECT_EQ(read_file(directory.file("a"), kPlenty).value(), "earlier");
  EXPECT_EQ(directory.entry_count(), 1u);
}

TEST(ResultFile, FailedStepsAreTypedAndLeaveNothing) {
  const TemporaryDirectory directory;
  EXPECT_EQ(write_file(directory.file("no/such/folder"), "x").code(), Code::kNotFound);
  std::filesystem::create_directory(directory.file("folder"));
  const Status onto_a_folder = write_file(directory.file("folder"), "x");
  EXPECT_EQ(onto_a_folder.code(), Code::kSystem);
  EXPECT_EQ(onto_a_folder.native(), EISDIR);
  EXPECT_EQ(directory.entry_count(), 1u);
}

mode_t kind_of(const std::string& path) {
  struct stat entry = {};
  return ::lstat(path.c_str(), &entry) == 0 ? entry.st_mode & S_IFMT : 0;
}

TEST(ResultFile, B11_ADeviceNodeStaysOne) {
  const TemporaryDirectory directory;
  const std::string null = directory.file("null");  // of its own: a mistake must not cost the machine its /dev/null
  if (::mknod(null.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 || !UniqueFd(::open(null.c_str(), O_WRONLY | O_CLOEXEC)))
    GTEST_SKIP() << "this user cannot make a device node in " << directory.path();
  EXPECT_TRUE(write_file(null, "x").is_ok());
  EXPECT_EQ(kind_of(null), mode_t{S_IFCHR});
  EXPECT_EQ(directory.entry_count(), 1u);
}

TEST(ResultFile, B11_ASymbolicLinkIsFollowed) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("folder"));
  std::filesystem::create_symlink("folder/b", directory.file("a"));  // relative to where the link is
  std::filesystem::create_symlink(directory.file("folder/c"), directory.file("folder/b"));
  for (const char* bytes : {"into nothing", "over a file"}) {
    const Status status = write_file(directory.file("a"), bytes);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(kind_of(directory.file("a")), mode_t{S_IFLNK});
    EXPECT_EQ(kind_of(directory.file("folder/b")), mode_t{S_IFLNK});
    EXPECT_EQ(kind_of(directory.file("folder/c")), mode_t{S_IFREG});
    EXPECT_EQ(read_file(directory.file("folder/c"), kPlenty).value(), bytes);
  }
  EXPECT_EQ(directory.entry_count(), 2u);
}

TEST(ResultFile, B11_LinksThatLeadNowhereAreErrors) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("b", directory.file("a"));
  std::filesystem::create_symlink("a", directory.file("b"));
  EXPECT_EQ(write_file(directory.file("a"), "x").native(), ELOOP);
  std::filesystem::create_symlink("no/such/folder", directory.file("c"));
  EXPECT_EQ(write_file(directory.file("c"), "x").code(), Code::kNotFound);
  EXPECT_EQ(directory.entry_count(), 3u);
}

TEST(ResultFile, B11_APipeIsWrittenTo) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(write_file(pipe, "x").native(), ENXIO);  // nobody reads it
  const std::string bytes(size_t{1} << 20, 'y');     // more than a pipe holds
  std::string got;
  UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::atomic<bool> written = false;
  std::thread reading([&] {
    char part[4096];
    for (;;) {
      const bool last = written;
      const ssize_t n = ::read(reader.get(), part, sizeof part);
      if (n > 0) got.append(part, static_cast<size_t>(n));
      if (n <= 0 && last) return;
      if (n <= 0) std::this_thread::yield();
    }
  });
  const Status status = write_file(pipe, bytes);
  written = true;
  reading.join();
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_TRUE(got == bytes);
  EXPECT_EQ(kind_of(pipe), mode_t{S_IFIFO});
}

// What /dev/stdout is.
TEST(ResultFile, B11_AnOpenDescriptorGoesOnWhereItIs) {
  const TemporaryDirectory directory;
  const UniqueFd fd(::open(directory.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd.get()), directory.file("stdout"));
  ASSERT_EQ(::write(fd.get(), "before ", 7), 7);
  const Status status = write_file(directory.file("stdout"), "result");
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_EQ(::write(fd.get(), " after", 6), 6);
  EXPECT_EQ(read_file(directory.file("out"), kPlenty).value(), "before result after");
  EXPECT_EQ(kind_of(directory.file("stdout")), mode_t{S_IFLNK});
}

TEST(ResultFile, ReadingIsBoundedAndTyped) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file(directory.file("a"), "hello").is_ok());
  EXPECT_EQ(read_file(directory.file("a"), 5).value(), "hello");
  EXPECT_EQ(read_file(directory.file("a"), 4).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_file(directory.file("a"), 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_file(directory.file("missing"), kPlenty).status().code(), Code::kNotFound);
  EXPECT_EQ(read_file(directory.path(), kPlenty).status().native(), EISDIR);
}

}  // namespace
}  // namespace tcpx
