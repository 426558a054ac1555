// A sending comm on its own, over a connection whose other end is controlled by the test.
#include <gtest/gtest.h>
#include <poll.h>

#include <map>

#include "net/soft/send_comm.h"
#include "net/soft/send_socket.h"
#include "tests/support/expect_log.h"
#include "tests/support/resource_counts.h"
#include "tests/support/soft_wire.h"

namespace tcpx::testing {
namespace {

using namespace soft;

// The cases of this program that drive comms by themselves close them with what they registered, which frees it.
[[maybe_unused]] const bool kCommsFreeTheirs = allow_left_always("registrations with the software plugin");

class SendingFlow : public ::testing::Test {
 protected:
  void SetUp() override { allow_log("tcpx-soft"); }
  void start(uint32_t chunk_bytes, size_t bytes, int buffer_bytes = 0) {
    wire_ = std::make_unique<Wire>(chunk_bytes, buffer_bytes);
    comm_ = must(SoftSendComm::create(*memory_, 0, io_, std::make_shared<StagingPool>(*memory_, 0), std::move(wire_->ours)));
    source_ = *memory_->allocate_device(0, bytes);
    region_ = must(comm_->register_region(source_.device(), bytes, MemoryType::kCuda));
  }
  abi::TcpxRequest* post(size_t bytes) { return must(comm_->isend(source_.device(), static_cast<int>(bytes), 0, region_)); }
  Result<ChunkHeader> read_header(size_t socket) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    TCPX_RETURN_IF_ERROR(recv_all(wire_->theirs.data[socket].get(), bytes, Deadline::after(std::chrono::seconds(5))));
    return decode_chunk_header(bytes, wire_->chunk_bytes());
  }
  /// The next data socket with something to read.
  size_t readable() {
    pollfd entries[2] = {{wire_->theirs.data[0].get(), POLLIN, 0}, {wire_->theirs.data[1].get(), POLLIN, 0}};
    EXPECT_GT(::poll(entries, 2, 10000), 0);
    return entries[0].revents != 0 ? 0 : 1;
  }

  using Cuts = std::map<uint64_t, uint32_t>;
  /// Reads chunks with `bytes` bytes of payload in total. @return the cut of each of their messages, by number.
  Cuts read_cuts(uint64_t bytes) {
    Cuts cuts;
    while (bytes > 0) {
      const size_t socket = readable();
      const ChunkHeader header = must(read_header(socket));
      std::vector<std::byte> payload(header.bytes);
      EXPECT_OK(recv_all(wire_->theirs.data[socket].get(), payload, soon()));
      const uint32_t cut = cuts.emplace(header.sequence, header.cut).first->second;
      EXPECT_EQ(header.cut, cut) << "one message has one cut";
      bytes -= header.bytes;
    }
    return cuts;
  }

  // For messages of kMost bytes over two sockets, each with a share of kShare, which is more than its buffers take.
  static constexpr uint32_t kMost = 1 << 20, kShare = kMost / 2;
  static constexpr int kSmallBuffer = 64 * 1024;

  std::shared_ptr<IoPool> io_ = *IoPool::create(1);
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<SoftSendComm> comm_;
  MemoryBuffer source_;
  SoftRegion* region_ = nullptr;
};

// Short messages wait behind a long one, and leave together: a system call takes 1024 parts.
TEST_F(SendingFlow, ShortMessagesOfManyRangesLeaveTogether) {
  constexpr size_t kRanges = 3'000, kMessages = 4;
  start(kMost, kMost, kSmallBuffer);
  std::vector<std::byte> memory(2 * kRanges);
  const auto list = std::make_shared<RangeList>();
  for (size_t i = 0; i < kRanges; ++i) list->add(&memory[2 * i], 1);
  const SoftRegion* const ranges = comm_->register_list(list);
  std::vector<abi::TcpxRequest*> requests = {post(kMost)};
  for (size_t i = 0; i < kMessages; ++i)
    requests.push_back(must(comm_->isend(list->begin(), static_cast<int>(kRanges), 0, ranges)));
  EXPECT_EQ(read_cuts(kMost + kMessages * kRanges).size(), requests.size());
  for (const abi::TcpxRequest* request : requests) EXPECT_TRUE(is_done(*comm_, request));
}

TEST_F(SendingFlow, ASocketThatIsFullHoldsNoOtherMessageUp) {
  constexpr uint32_t kLarge = Chunking::kLeastChunkBytes;  // on one socket, and more than its buffers take
  start(kLarge, kLarge, 4096);
  post(kLarge);
  const size_t full = readable(), other = 1 - full;
  wait_until_quiet(wire_->theirs.data[full]);
  for (uint64_t sequence = 1; sequence < kQueueDepth; ++sequence) {
    post(1);
    const auto header = read_header(other);
    ASSERT_TRUE(header.is_ok()) << "message " << sequence << " waits for the full socket: " << header.status().to_string();
    EXPECT_EQ(header->sequence, sequence);
    std::byte payload;
    ASSERT_TRUE(recv_all(wire_->theirs.data[other].get(), {&payload, 1}, soon()).is_ok());
  }
}

TEST_F(SendingFlow, OneThreadCutsForOneSocket) {
  start(kMost, kMost, kSmallBuffer);
  const abi::TcpxRequest* request = post(kMost);
  EXPECT_EQ(read_cuts(kMost), (Cuts{{0, kMost}}));
  EXPECT_TRUE(is_done(*comm_, request));
}

TEST_F(SendingFlow, TheMoreIsUnderWayTheLargerAreTheChunks) {
  io_ = *IoPool::create(2);
  start(kMost, kMost, kSmallBuffer);
  std::vector<abi::TcpxRequest*> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(post(kMost));
  EXPECT_EQ(read_cuts(requests.size() * kMost), (Cuts{{0, kShare}, {1, kShare}, {2, 3 * kMost / 4}, {3, kMost}, {4, kMost}}))
      << "two for each of two sockets";
  for (const abi::TcpxRequest* request : requests) EXPECT_TRUE(is_done(*comm_, request));
  for (uint64_t sequence = requests.size(); sequence < 2 * kQueueDepth; ++sequence) {
    const abi::TcpxRequest* request = post(kMost);
    ASSERT_EQ(read_cuts(kMost), (Cuts{{sequence, kShare}})) << "what is done counts no more";
    EXPECT_TRUE(is_done(*comm_, request));
  }
}

// Requests that are finished but not tested occupy a slot, not bytes.
TEST_F(SendingFlow, WhatIsWithTheKernelIsNotUnderWay) {
  io_ = *IoPool::create(2);
  start(kMost, kMost, kSmallBuffer);
  for (uint64_t sequence = 0; sequence < kQueueDepth; ++sequence) {
    post(kMost);
    ASSERT_EQ(read_cuts(kMost), (Cuts{{sequence, kShare}}));
  }
}

TEST_F(SendingFlow, BytesOnTheControlSocketEndIt) {
  start(kMost, kMost, kSmallBuffer);
  abi::TcpxRequest* request = post(kMost);
  send_bytes(wire_->theirs.control, std::vector<std::byte>(1));
  Result<TestAnswer> answer = TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm_->test(request)).is_ok(); }));
  EXPECT_NE(answer.status().detail().find("bytes where none belong"), std::string::npos) << answer.status().to_string();
}

TEST_F(SendingFlow, ASendIsDoneWithItsLastByteAndNotBefore) {
  start(kMost, kMost, kSmallBuffer);
  abi::TcpxRequest* request = post(kMost);
  for (const UniqueFd& fd : wire_->theirs.data) wait_until_quiet(fd);
  EXPECT_FALSE(comm_->test(request)->done) << "each socket has more than the kernel took";
  read_cuts(kMost);
  EXPECT_TRUE(is_done(*comm_, request));
}

TEST_F(SendingFlow, AFailedCommLetsGoOfMemory) {
  constexpr uint32_t kLarge = 8u << 20;
  start(kLarge, kLarge);
  abi::TcpxRequest* request = post(kLarge);
  wire_->theirs = {};
  ASSERT_TRUE(wait_until([&] { return !comm_->test(request).is_ok(); }));
  EXPECT_TRUE(comm_->deregister_region(region_).is_ok());
}

}  // namespace
}  // namespace tcpx::testing
