// Connections of the software plugin that lose a single socket, or their peer.
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

using SoftCuts = SoftFaults;

TEST_F(SoftCuts, Trap14_ACutDataSocketIsAnErrorThoughTheOthersLive) {
  RawSender raw(table_);
  void* request = raw.post(2 * kMiB);
  raw.send_chunk(0, {.sequence = 0, .total = 1048576, .offset = 0, .bytes = 524288});
  raw.sockets.data[1].reset();
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

TEST_F(SoftCuts, ACutControlSocketIsAnErrorThoughTheDataSocketsLive) {
  RawSender raw(table_);
  void* request = raw.post(100);
  raw.sockets.control.reset();
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

TEST_F(SoftCuts, ASenderNoticesAReceiverThatWentAwayWhileNothingWasSent) {
  TablePair pair(table_);
  TestMemory source(MemoryType::kHost, 4096);
  void *mhandle = pair.register_with(pair.sender, source), *request = nullptr;
  pair.close_receiver();
  EXPECT_TRUE(wait_until([&] {
    int done = 0;
    if (table_.isend(pair.sender, source.data(), 1, 0, mhandle, &request) == abi::kNcclSystemError) return true;
    while (table_.test(request, &done, nullptr) == 0 && done == 0) {
    }
    return false;
  }));
}

}  // namespace
}  // namespace tcpx::testing
