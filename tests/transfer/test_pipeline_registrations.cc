// Registrations of a pipeline. Memory longer than one registration: every chunk must lie within the registration that it is
// posted with. The fake plugin compares; nothing is sent, so addresses without memory suffice. And memory that comes and goes
// while the pipeline stays.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/support/count_allocations.h"
#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"
#include "tests/support/resource_counts.h"

namespace tcpx {
namespace {

using testing::Call;
using testing::channels;
using testing::expect_clean_success;
using testing::expect_let_go;
using testing::expect_moves;
using testing::PipelinePair;
using testing::PipelinePairOptions;

constexpr size_t kGiB = size_t{1} << 30;

/// Addresses not backed by memory.
class Addresses {
 public:
  explicit Addresses(size_t bytes)
      : bytes_(bytes), begin_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Addresses() { ::munmap(begin_, bytes_); }
  Addresses(const Addresses&) = delete;
  void* begin() const { return begin_ == MAP_FAILED ? nullptr : begin_; }

 private:
  size_t bytes_;
  void* begin_;
};

/// Posts all receives of one transfer. @return the objection of the plugin or the pipeline
Status post(size_t region, size_t offset, size_t bytes, uint32_t chunk_bytes) {
  PipelinePairOptions options;
  options.recv.chunk_bytes = options.send.chunk_bytes = chunk_bytes;
  PipelinePair p(options);
  const Addresses addresses(region);
  if (addresses.begin() == nullptr) return Status(Code::kSystem, "mmap", "no addresses");
  TCPX_ASSIGN_OR_RETURN(const auto memory, p.recv->register_memory(addresses.begin(), region, MemoryType::kCuda));
  const auto id = p.recv->submit({.memory = memory, .offset = offset, .bytes = bytes});
  if (!id.is_ok()) return id.status();
  p.recv->progress();
  const uint64_t chunks = ChunkPlan::make(bytes, chunk_bytes)->count();
  EXPECT_EQ(p.fake.calls(Call::kRecv), chunks) << "the window takes them all";
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
  Status status = p.recv->status();
  p.recv.reset();  // destroyed before its memory
  return status;
}

TEST(PipelineRegistrations, ChunksAroundEveryBoundaryLieWithinTheirRegistration) {
  for (const uint32_t chunk : {uint32_t{512 * 1024}, static_cast<uint32_t>(kMaxRequestBytes)}) {
    for (const size_t region : {kGiB - 1, kGiB, kGiB + 1, kGiB + kMaxRequestBytes, 2 * kGiB, 3 * kGiB + 4097}) {
      for (size_t boundary = 0; boundary <= region; boundary += kGiB) {
        for (const ptrdiff_t shift :
             {-2 * ptrdiff_t{chunk}, -ptrdiff_t{chunk}, 1 - ptrdiff_t{chunk}, ptrdiff_t{-1}, ptrdiff_t{0}, ptrdiff_t{1}}) {
          const auto begin = static_cast<ptrdiff_t>(boundary) + shift;
          if (begin < 0 || static_cast<size_t>(begin) > region) continue;
          const auto offset = static_cast<size_t>(begin);
          const size_t bytes = std::min(region - offset, size_t{4} * chunk + 1);
          const Status status = post(region, offset, bytes, chunk);
          ASSERT_TRUE(status.is_ok()) << region << " bytes, chunk at " << offset << ": " << status.to_string();
        }
      }
      const Status at_the_end = post(region, region, 0, chunk);
      ASSERT_TRUE(at_the_end.is_ok()) << "nothing at the end of " << region << " bytes: " << at_the_end.to_string();
    }
  }
}

TEST(PipelineRegistrations, A2_GpuMemoryOfAnyAlignmentAndSizeIsRegisteredInWholePages) {
  for (const size_t region : {kGiB + 3, 2 * kGiB - 1}) {
    const Addresses addresses(region + kPageBytes);
    ASSERT_NE(addresses.begin(), nullptr);
    for (const size_t begin : {1u, 2048u, 4095u}) {
      for (const size_t offset : {size_t{0}, kGiB - 1, kGiB - kMaxRequestBytes, region - 5000}) {
        PipelinePairOptions options;
        options.recv.chunk_bytes = options.send.chunk_bytes = kMaxRequestBytes;
        PipelinePair p(options);
        const auto memory =
            p.recv->register_memory(static_cast<std::byte*>(addresses.begin()) + begin, region, MemoryType::kCuda);
        ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
        const size_t bytes = std::min<size_t>(region - offset, 3 * kMaxRequestBytes);
        EXPECT_TRUE(p.recv->submit({.memory = *memory, .offset = offset, .bytes = bytes}).is_ok());
        p.recv->progress();
        EXPECT_EQ(p.fake.misuse(), std::vector<std::string>()) << region << " bytes at " << begin << ", chunks at " << offset;
        EXPECT_TRUE(p.recv->status().is_ok()) << p.recv->status().to_string();
        p.recv.reset();
      }
    }
  }
}

TEST(PipelineRegistrations, A2_ATransferIsHeldAgainstTheMemoryAndNotAgainstItsPages) {
  PipelinePair p;
  const auto memory = p.recv->register_memory(p.target.device() + 100, 5000, MemoryType::kCuda);
  ASSERT_TRUE(memory.is_ok());
  EXPECT_EQ(p.recv->submit({.memory = *memory, .offset = 0, .bytes = 5001}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(p.recv->submit({.memory = *memory, .offset = 4999, .bytes = 2}).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(p.recv->submit({.memory = *memory, .offset = 4999, .bytes = 1}).is_ok());
}

TEST(PipelineRegistrations, Trap24_A2_MemoryThatThePluginRefusesIsRefusedAlone) {
  PipelinePair p;
  p.fake.fail_call(Call::kRegister, 1, Status(Code::kPlugin, "register memory", "no dma-buf", Domain::kNccl, 3));
  EXPECT_EQ(p.recv->register_memory(p.target.device(), 4096, MemoryType::kCuda).status().native(), 3);
  expect_moves(p, 10000);
}

TEST(PipelineRegistrations, MemoryThatWasNeverRegisteredHereIsRefused) {
  PipelinePair p;
  std::byte anything[16];
  EXPECT_EQ(p.recv->submit({}).status().code(), Code::kOk) << "nothing, at the begin of the first registration";
  EXPECT_EQ(p.recv->submit({.memory = {.data = anything, .bytes = 16, .slot = 1}, .bytes = 16}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(p.recv->submit({.memory = {.data = anything, .bytes = 0, .slot = 7}}).status().code(), Code::kInvalidArgument);
  const auto [raw_send, raw_recv] = p.fake.make_wire();
  auto bare = Pipeline::create(Comm(p.fake, raw_recv), {}, p.clock).value();
  EXPECT_EQ(bare->submit({}).status().code(), Code::kInvalidArgument) << "nothing is registered at all";
  EXPECT_TRUE(p.fake.close(raw_send).is_ok());
}

TEST(PipelineRegistrations, WhatComesAndGoesLeavesNothingBehind) {
  PipelinePair p(channels(2));
  const size_t before = p.fake.registrations();
  std::byte* const data = p.target.device();
  const auto cycle = [&] {
    const auto a = p.recv->register_memory(data, 4096, MemoryType::kCuda);
    const auto b = p.recv->register_memory(data, 8192, MemoryType::kHost);
    ASSERT_TRUE(a.is_ok() && b.is_ok());
    EXPECT_LE(a->slot, 2u);
    EXPECT_LE(b->slot, 2u);
    EXPECT_EQ(p.fake.registrations(), before + 4) << "each with both channels";
    EXPECT_TRUE(p.recv->deregister_memory(*a).is_ok());
    EXPECT_TRUE(p.recv->deregister_memory(*b).is_ok());
  };
  cycle();
  const uint64_t allocations = testing::allocation_count();
  for (int i = 0; i < 100000 && !HasFailure(); ++i) cycle();
  EXPECT_EQ(testing::allocation_count(), allocations);
  EXPECT_EQ(p.fake.registrations(), before);
  expect_moves(p, 50000);
}

TEST(PipelineRegistrations, MemoryOfAPendingTransferStays) {
  PipelinePair p;
  RegisteredMemory again = p.target_as(MemoryType::kCuda);
  const TransferId got = p.submit_recv(again, 0, 10000);
  EXPECT_EQ(p.recv->deregister_memory(again).code(), Code::kInvalidArgument);
  EXPECT_TRUE(p.recv->deregister_memory(p.recv_memory).is_ok()) << "it uses the other";
  const TransferId sent = p.submit_send(0, 10000);
  EXPECT_TRUE(p.drive_to_end());
  EXPECT_TRUE(p.recv->deregister_memory(again).is_ok()) << "done, though not polled yet";
  EXPECT_TRUE(p.send->deregister_memory(p.send_memory).is_ok());
  expect_clean_success(p, sent, got, 0, 10000);
  EXPECT_EQ(p.fake.registrations(), 0u);
}

TEST(PipelineRegistrations, WhatWasDeregisteredIsRefusedAlsoWhenItsSlotIsUsedAgain) {
  PipelinePair p;
  const RegisteredMemory gone = p.target_as(MemoryType::kCuda);
  ASSERT_TRUE(p.recv->deregister_memory(gone).is_ok());
  const auto expect_refused = [&] {
    EXPECT_EQ(p.recv->deregister_memory(gone).code(), Code::kInvalidArgument);
    EXPECT_EQ(p.recv->submit({.memory = gone, .bytes = 4096}).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(p.recv->submit({.memory = gone}).status().code(), Code::kInvalidArgument);
  };
  expect_refused();
  const RegisteredMemory next = p.target_as(MemoryType::kHost);
  EXPECT_EQ(next.slot, gone.slot);
  expect_refused();
  RegisteredMemory made_up = next;
  made_up.slot = 7;
  EXPECT_EQ(p.recv->deregister_memory(made_up).code(), Code::kInvalidArgument);
  const TransferId got = p.submit_recv(next, 0, 5000), sent = p.submit_send(0, 5000);
  EXPECT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 5000);
}

TEST(PipelineRegistrations, ARegistrationThatFailsHalfWayLeavesNothingBehind) {
  for (uint64_t nth = 1; nth <= 6; ++nth) {
    PipelinePair p(channels(2));
    const size_t before = p.fake.registrations();
    const Addresses addresses(3 * kGiB);
    ASSERT_NE(addresses.begin(), nullptr);
    const Status failure(Code::kPlugin, "register memory", "no more", Domain::kNccl, 2);
    p.fake.fail_call(Call::kRegister, nth, failure);
    const auto memory = p.recv->register_memory(addresses.begin(), 3 * kGiB, MemoryType::kCuda);
    EXPECT_EQ(memory.status().to_string(), failure.to_string());
    EXPECT_EQ(p.fake.registrations(), before) << "the " << nth << "th of six";
  }
}

TEST(PipelineRegistrations, WhatThePluginDoesNotTakeBackIsGoneAllTheSame) {
  testing::allow_left("registrations with the fake plugin");
  PipelinePair p;
  const RegisteredMemory memory = p.target_as(MemoryType::kCuda);
  p.fake.fail_call(Call::kDeregister, 1, Status(Code::kPlugin, "deregister memory", "no", Domain::kNccl, 2));
  EXPECT_EQ(p.recv->deregister_memory(memory).code(), Code::kPlugin);
  EXPECT_EQ(p.recv->deregister_memory(memory).code(), Code::kInvalidArgument);
}

TEST(PipelineRegistrations, TheFirstErrorOfSeveralDeregistrationsIsKept) {
  testing::allow_left("registrations with the fake plugin");
  const Status failure(Code::kPlugin, "deregister memory", "no", Domain::kNccl, 2);
  for (uint64_t nth = 1; nth <= 3; ++nth) {
    PipelinePair p(channels(3));
    const RegisteredMemory memory = p.target_as(MemoryType::kCuda);
    p.fake.fail_call(Call::kDeregister, nth, failure, 1);
    EXPECT_EQ(p.recv->deregister_memory(memory).to_string(), failure.to_string()) << "channel " << nth - 1;
    EXPECT_EQ(p.fake.calls(Call::kDeregister), 3u) << "the others' go all the same";
  }
}

// A plugin may need the open comm for that, and only memory that outstanding requests use has to stay until it is closed.
TEST(PipelineRegistrations, AConnectionThatFailsWithNothingInFlightDeregisters) {
  PipelinePair p(channels(3));
  const uint64_t before = p.fake.calls(Call::kDeregister);
  p.submit_send(0, 1);
  p.send.reset();
  EXPECT_EQ(p.fake.calls(Call::kDeregister) - before, 3u);
}

TEST(PipelineRegistrations, AClosedConnectionHasNothingLeftToDeregister) {
  PipelinePair p;
  ASSERT_TRUE(p.recv->close().is_ok());
  const uint64_t calls = p.fake.calls(Call::kDeregister);
  EXPECT_TRUE(p.recv->deregister_memory(p.recv_memory).is_ok());
  EXPECT_EQ(p.fake.calls(Call::kDeregister), calls);
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

TEST(PipelineRegistrations, AFailedConnectionLetsGoOfMemoryOnceItsTransfersHaveFailed) {
  testing::allow_log("gives up");
  PipelinePair p;
  const RegisteredMemory idle = p.target_as(MemoryType::kCuda);
  const TransferId got = p.submit_recv(0, 100000);
  p.recv->progress();
  p.recv->cancel(Status(Code::kCancelled, "test", "enough"));
  EXPECT_EQ(p.recv->deregister_memory(p.recv_memory).code(), Code::kInvalidArgument) << "the transfer has not failed yet";
  EXPECT_TRUE(p.recv->deregister_memory(idle).is_ok()) << "nothing uses this, and the comm is still open";
  EXPECT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kFailed);
  EXPECT_TRUE(p.recv->deregister_memory(p.recv_memory).is_ok());
  expect_let_go(p);
}

TEST(PipelineRegistrations, AfterTheLossOfAChannelMemoryComesAndGoesWithTheOthers) {
  testing::allow_log("goes on over");
  testing::allow_log("gives up");
  PipelinePair p(channels(2, true));
  p.fake.kill_peer_of(p.raw_sends[1]);
  TransferId got = p.submit_recv(0, 200000), sent = p.submit_send(0, 200000);
  EXPECT_TRUE(p.drive_to_end(20000));
  expect_clean_success(p, sent, got, 0, 200000);
  const size_t before = p.fake.registrations();
  EXPECT_TRUE(p.recv->deregister_memory(p.recv_memory).is_ok());
  EXPECT_EQ(p.fake.registrations(), before - 1) << "the failed channel's went with its comm";
  const RegisteredMemory next = p.target_as(MemoryType::kCuda);
  got = p.submit_recv(next, 0, 100000), sent = p.submit_send(0, 100000, 2);
  EXPECT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 100000, 2);
  EXPECT_TRUE(p.recv->deregister_memory(next).is_ok());
}

}  // namespace
}  // namespace tcpx
