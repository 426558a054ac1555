// Threads of the software plugin, which must end with its connections, and of its callers, which may be many.
#include <thread>

#include "net/soft/listener.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/message_stream.h"
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

/// Two connections; each comm is called by a thread of its own.
TEST(SoftCallers, TwoCommsEachWayFromFourThreads) {
  allow_log("dropped during the handshake");  // a port may just have been another test's
  constexpr uint64_t kMessages = kIsChecked ? 2000 : 10000;
  HiddenMemoryOps memory;
  for (const Duration spin : {Duration::zero(), Duration(std::chrono::microseconds(100))}) {
    const auto io = *soft::IoPool::create(2, spin);
    const auto pool = *soft::PagePool::create(memory, 0, 1 << 20);  // the receivers wait for each other's pages
    const auto staging = std::make_shared<soft::StagingPool>(memory, 0);
    const auto listener = listen_softly(io, kStreamChunkBytes);
    std::vector<std::unique_ptr<soft::SoftSendComm>> senders;
    std::vector<std::unique_ptr<soft::SoftRecvComm>> receivers;
    std::vector<SendStream> sends;
    std::vector<RecvStream> receives;
    for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
      senders.push_back(must(soft::SoftSendComm::create(memory, 0, io, staging, connect_softly(listener->handle()))));
      receivers.push_back(must(soft::SoftRecvComm::create(memory, 0, io, pool, accept_softly(*listener))));
      const StreamLimits limits = {.window = kQueueDepth, .total = kMessages};
      sends.push_back(std::move(*SendStream::create(memory, *senders.back(), type, limits)));
      receives.push_back(std::move(*RecvStream::create(memory, *receivers.back(), *pool, type, limits)));
    }
    const auto drive = [&](auto& stream) {
      const Deadline limit = Deadline::after(std::chrono::seconds(60));
      const Status status = run_stream(stream, [&] { return stream.finished() == kMessages || limit.expired(); });
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(stream.finished(), kMessages);
    };
    std::vector<std::thread> callers;
    for (SendStream& stream : sends) callers.emplace_back([&] { drive(stream); });
    for (RecvStream& stream : receives) callers.emplace_back([&] { drive(stream); });
    for (std::thread& caller : callers) caller.join();
    senders.clear();
    receivers.clear();
    EXPECT_EQ(pool->free_count(), pool->page_count());
    EXPECT_EQ(staging->free_count(), soft::StagingPool::kSlots);
  }
}

}  // namespace
}  // namespace tcpx::testing
