// A peer of the software plugin that is stopped for a while.
#include <signal.h>

#include <chrono>

#include "tests/support/child_process.h"
#include "tests/support/handle_text.h"
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

using SoftStalled = SoftFaults;

TEST_F(SoftStalled, AStalledPeerLosesNothing) {
  ChildProcess child({TCPX_SOFT_PEER, "recv", "never"});
  auto handle = handle_from_hex(child.read_line(soon()));
  ASSERT_TRUE(handle);
  void *sender = nullptr, *mhandle = nullptr, *request = nullptr;
  ASSERT_EQ(table_.connect(0, handle->bytes.data(), &sender, nullptr), 0);
  TestMemory source(MemoryType::kCuda, kMiB);
  ASSERT_EQ(table_.reg_mr(sender, source.data(), kMiB, 2, &mhandle), 0);
  ASSERT_TRUE(child.wait_for_line("accept", soon()));
  child.send_signal(SIGSTOP);
  int sent = 0;
  // Until the kernel's buffers are full and a send stays unfinished for a while.
  for (bool stalled = false; !stalled; ++sent) {
    ASSERT_LT(sent, 1000);
    ASSERT_EQ(table_.isend(sender, source.data(), kMiB, 0, mhandle, &request), 0);
    int done = 0;
    stalled = !wait_until([&] { return table_.test(request, &done, nullptr) != 0 || done != 0; }, std::chrono::milliseconds(300));
  }
  child.send_signal(SIGCONT);
  int done = 0;
  EXPECT_TRUE(wait_until([&] { return table_.test(request, &done, nullptr) != 0 || done != 0; }));
  EXPECT_EQ(done, 1);
  for (int i = 0; i < sent; ++i) EXPECT_TRUE(child.wait_for_line("done", soon())) << i << " of " << sent;
  EXPECT_EQ(table_.close_send(sender), 0);
}

}  // namespace
}  // namespace tcpx::testing
