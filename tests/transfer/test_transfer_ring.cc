// TransferRing: numbers, room, counting, and the answer of a transfer to a poll.
#include "transfer/transfer_ring.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace tcpx {
namespace {

const Status kFailure(Code::kPeerGone, "test", "gone");

ChunkPlan plan(uint64_t bytes) {
  return ChunkPlan::make(bytes, 4096).value();
}

/// A transfer that is taken.
TransferId add(TransferRing& ring, const TransferSpec& spec, const ChunkPlan& plan) {
  return ring.add(spec, plan).value();
}

TEST(TransferRing, NumbersBeginWithOneAndOnlyAPolledTransferMakesRoom) {
  TransferRing ring(2);
  EXPECT_EQ(ring.end(), 1u);
  EXPECT_EQ(ring.add({}, plan(1)).value(), TransferId{1});
  EXPECT_EQ(ring.add({}, plan(1)).value(), TransferId{2});
  EXPECT_EQ(ring.add({}, plan(1)).status().code(), Code::kExhausted);
  ring.done(ring[1]);
  EXPECT_EQ(ring.pending(), 1u);
  EXPECT_EQ(ring.add({}, plan(1)).status().code(), Code::kExhausted) << "done, and not polled";
  EXPECT_EQ(ring.poll(TransferId{1}, kFailure).state, TransferState::kDone);
  EXPECT_EQ(ring.poll(TransferId{1}, kFailure).state, TransferState::kUnknown) << "said once";
  EXPECT_EQ(ring.add({}, plan(1)).value(), TransferId{3});
  EXPECT_EQ(ring.poll(TransferId{1}, kFailure).state, TransferState::kUnknown) << "its slot is that of another";
  EXPECT_FALSE(ring.is_pending(1));
  EXPECT_TRUE(ring.is_pending(3));
  EXPECT_EQ(ring.poll(TransferId{0}, kFailure).state, TransferState::kUnknown);
}

TEST(TransferRing, BytesThatWereSentTwiceCountOnce) {
  TransferRing ring(1);
  const TransferId id = ring.add({}, plan(5000)).value();
  ring[1].outstanding = 3;
  ring.count({id, 4096});
  EXPECT_FALSE(ring[1].all_finished());
  EXPECT_EQ(ring.poll(id, kFailure).bytes_done, 4096u);
  ring.count({id, 4096});
  EXPECT_TRUE(ring.count({id, 904}).all_finished());
  EXPECT_EQ(ring[1].outstanding, 0u);
  EXPECT_EQ(ring.poll(id, kFailure).bytes_done, 5000u);
}

TEST(TransferRing, EverythingFailsExceptWhatThePeerHasAcknowledged) {
  TransferRing ring(3);
  for (int i = 0; i < 3; ++i) add(ring, {}, plan(100));
  ring.done(ring[1]);
  ring[3].acknowledged = true;
  EXPECT_TRUE(ring.any_pending([](const Transfer& transfer) { return transfer.acknowledged; }));
  EXPECT_FALSE(ring.any_pending([](const Transfer& transfer) { return transfer.number() == 1; }));
  ring.fail_pending();
  EXPECT_EQ(ring.pending(), 0u);
  EXPECT_EQ(ring.poll(TransferId{1}, kFailure).state, TransferState::kDone);
  const TransferAnswer failed = ring.poll(TransferId{2}, kFailure), acknowledged = ring.poll(TransferId{3}, kFailure);
  EXPECT_EQ(failed.state, TransferState::kFailed);
  EXPECT_EQ(failed.status.to_string(), kFailure.to_string());
  EXPECT_EQ(acknowledged.state, TransferState::kDone);
  EXPECT_EQ(acknowledged.bytes_done, 100u);
}

TEST(TransferRing, TagsOfATransferDoNotMeetThoseOfTheNext) {
  std::byte memory[10001];
  TransferRing ring(4);
  add(ring, {.tag = 7}, plan(1));
  add(ring, {.memory = {.data = memory, .bytes = sizeof memory}, .tag = 7}, ChunkPlan::make(sizeof memory, 1).value());
  add(ring, {.tag = 7}, plan(1));
  EXPECT_EQ(ring[1].work(0).tag, 7);
  EXPECT_EQ(ring[2].work(10000).tag, 7 + 20000);
  EXPECT_EQ(ring[3].work(0).tag, 7 + 30000) << "a transfer of more than 10000 chunks counts as two";
  add(ring, {.tag = 0x7fffffff}, plan(1));
  EXPECT_EQ(ring[4].work(0).tag, static_cast<int>((uint64_t{0x7fffffff} + 40000) & 0x7fffffff));
}

TEST(TransferRing, AChunkBeginsWhereItsTransferDoes) {
  std::byte memory[16];
  TransferRing ring(1);
  add(ring, {.memory = {.data = memory, .bytes = 16}, .offset = 3, .bytes = 9}, ChunkPlan::make(9, 4).value());
  const ChunkWork work = ring[1].work(2);
  EXPECT_EQ(work.data, memory + 3 + 8);
  EXPECT_EQ(work.chunk.bytes, 1u);
  EXPECT_EQ(work.transfer, TransferId{1});
}

TEST(TransferRingDeathTest, AChunkOfATransferThatHasEndedIsABug) {
  const auto count_too_late = [] {
    set_log_sink(nullptr, nullptr);
    TransferRing ring(1);
    const TransferId id = add(ring, {}, plan(1));
    ring.done(ring[1]);
    ring.count({id, 1});
  };
  EXPECT_DEATH(count_too_late(), "a chunk finishes while its transfer is pending");
}

}  // namespace
}  // namespace tcpx
