// Test main: a test case fails when it logs a warning or error it did not announce, or leaves something open that it did not find so
// (resource_counts.h).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/expect_log.h"
#include "tests/support/resource_counts.h"

namespace tcpx::testing {
namespace {

/// The suites of the source file `name`.cc, as a filter; empty when there is none.
std::string suites_of_file(const std::string& name) {
  std::string filter;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    if (std::filesystem::path(suite.GetTestInfo(0)->file()).stem() == name) filter += std::string(suite.name()) + ".*:";
  }
  return filter;
}

class StrictListener final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    LogCapture::start();
    ResourceCounts::start();
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    for (const std::string& line : LogCapture::stop()) ADD_FAILURE() << info.name() << " logged, unannounced: " << line;
    if (::testing::Test::IsSkipped()) return;
    for (const std::string& what : ResourceCounts::stop()) ADD_FAILURE() << info.name() << " left " << what;
  }
};

}  // namespace
}  // namespace tcpx::testing

#if defined(__SANITIZE_ADDRESS__)
// A fixture that keeps a reference to a local variable of its case would otherwise go unnoticed.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier): the checker asks for this name
  return "detect_stack_use_after_return=1";
}
#endif

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Started by a link of the name of one of several source files, as `make test_...` makes it. By its own name, a program has all its
  // cases, also when one of the files is called like it.
  const std::filesystem::path name = std::filesystem::path(argv[0]).filename();
  if (::testing::GTEST_FLAG(filter) == "*" && std::filesystem::read_symlink("/proc/self/exe").filename() != name) {
    const std::string own_suites = tcpx::testing::suites_of_file(name);
    if (!own_suites.empty()) ::testing::GTEST_FLAG(filter) = own_suites;
  }
  // Loopback only, unless set by the caller: tests must not depend on the machine's other interfaces.
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "=lo", 0);
  // With the first thread a thread checker starts one of its own, which tests that count threads would mistake for ours.
  std::thread([] {}).join();
  // Listeners see the end of a case in reverse order: ours runs before the printer, so its output is printed with the case.
  ::testing::UnitTest::GetInstance()->listeners().Append(new tcpx::testing::StrictListener);
  return RUN_ALL_TESTS();
}
