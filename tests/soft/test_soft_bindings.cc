// Cores for I/O threads: valid values of the variables, and their effect on the threads.
#include "net/soft/bindings.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>

#include "tests/support/io_blocker.h"

namespace tcpx::testing {
namespace {

using namespace soft;

TEST(SoftBindings, ListsRangesAndInterfaces) {
  EXPECT_TRUE(parse_bindings("V", "")->empty());
  EXPECT_EQ(*parse_bindings("V", "eth1:7"), (Bindings{{"eth1", {7}}}));
  EXPECT_EQ(*parse_bindings("V", "eth1:8-10,112-113;eth2:0"), (Bindings{{"eth1", {8, 9, 10, 112, 113}}, {"eth2", {0}}}));
  EXPECT_EQ(*parse_bindings("V", "eth1:9,3,5-6"), (Bindings{{"eth1", {3, 5, 6, 9}}})) << "sorted: equal sets share threads";
  EXPECT_EQ(*parse_bindings("V", "eth1:0-0,1023"), (Bindings{{"eth1", {0, 1023}}}));
}

TEST(SoftBindings, AnythingElseIsAnErrorThatNamesTheVariable) {
  for (const char* wrong : {"eth1",
                            "eth1:",
                            ":1",
                            ";",
                            "eth1:1;",
                            ";eth1:1",
                            "eth1:1;;eth2:2",
                            "eth1:1,",
                            "eth1:,1",
                            "eth1:-1",
                            "eth1:1-",
                            "eth1:2-1",
                            "eth1:1-2-3",
                            "eth1:a",
                            "eth1:1 ",
                            "eth1: 1",
                            "eth1:+1",
                            "eth1:0x1",
                            "eth1:1024",
                            "eth1:0-1024",
                            "eth1:99999999999999999999",
                            "eth1:1,1",
                            "eth1:1-3,2",
                            "eth1:1;eth1:2",
                            "eth1:1:2",
                            "zero"}) {
    const auto bindings = parse_bindings("THE_VARIABLE", wrong);
    ASSERT_FALSE(bindings.is_ok()) << wrong;
    EXPECT_EQ(bindings.status().code(), Code::kBadConfig) << wrong;
    EXPECT_NE(bindings.status().detail().find("THE_VARIABLE"), std::string::npos) << bindings.status().to_string();
  }
}

/// A core that this process may use.
int usable_core() {
  cpu_set_t allowed;
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  return core;
}

TEST(SoftBindings, InterfacesAndCoresMustExist) {
  const int core = usable_core();
  EXPECT_TRUE(check_bindings("V", {}).is_ok());
  EXPECT_TRUE(check_bindings("V", {{"lo", {core}}}).is_ok());
  EXPECT_EQ(check_bindings("V", {{"lo", {core, 1023}}}).code(), Code::kBadConfig) << "no machine of ours has that many";
  EXPECT_EQ(check_bindings("V", {{"no-such-if", {core}}}).code(), Code::kBadConfig);
}

TEST(SoftBindings, ThreadsRunWhereTheyAreBound) {
  struct Reporter final : FrugalHandler {
    Next on_ready() override {
      cpu_set_t set;
      EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
      cores = CPU_COUNT(&set);
      runs_on = ::sched_getcpu();
      return Next::kWait;
    }
    std::atomic<int> cores = 0, runs_on = -1;
  };
  const int core = usable_core();
  const auto pool = IoPool::create(2, Duration::zero(), {core});
  ASSERT_TRUE(pool.is_ok()) << pool.status().to_string();
  for (size_t thread = 0; thread < 2; ++thread) {
    const UniqueFd fd = quiet_fd();
    Reporter reporter;
    IoRegistration registration;
    ASSERT_TRUE((*pool)->at(thread).add(fd.get(), reporter, registration).is_ok());
    ASSERT_TRUE(wait_until([&] { return reporter.runs_on >= 0; }));
    EXPECT_EQ(reporter.cores, 1);
    EXPECT_EQ(reporter.runs_on, core);
  }
}

}  // namespace
}  // namespace tcpx::testing
