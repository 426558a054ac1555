// The threads of the software plugin: when they end.
#include <thread>

#include "tests/support/process_state.h"
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using SoftThreads = SoftFaults;

TEST_F(SoftThreads, ClosingEverythingEndsAllThreads) {
  std::thread([] {}).join();  // a thread checker starts a thread of its own with the first, and keeps it
  const size_t before = thread_count();
  {
    TablePair pair(table_);
    EXPECT_GT(thread_count(), before);
  }
  EXPECT_TRUE(wait_until([&] { return thread_count() == before; })) << before << " before, " << thread_count() << " now";
}

}  // namespace
}  // namespace tcpx::testing
