#include "perf/result_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/unique_fd.h"
#include "tests/support/temporary_directory.h"

namespace tcpx {
namespace {

using testing::TemporaryDirectory;

constexpr size_t kPlenty = 1 << 20;

/// While it lives, files cannot grow beyond `bytes`: what a full disk looks like.
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
