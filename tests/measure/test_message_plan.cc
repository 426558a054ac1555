// Cutting of measured messages, and their places.
#include "measure/message_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tcpx {
namespace {

struct Cut {
  uint64_t message_bytes;
  uint64_t request_bytes;
};

std::vector<Cut> cuts() {
  constexpr uint64_t kMiB = 1 << 20;
  return {{1, kMaxRequestBytes},
          {8, 8},
          {8, 3},
          {16, 4},
          {4096, 4096},
          {4097, 4096},
          {100000, 512},
          {kMiB, kMaxRequestBytes},
          {kMiB, 512 * 1024},
          {7 * kMiB, 4 * kMiB},
          {64 * kMiB, 4 * kMiB},
          {256 * kMiB + 1, 4 * kMiB}};
}

TEST(MessagePlan, RequestsTileEachMessageInOrder) {
  for (const Cut& cut : cuts()) {
    const MessagePlan plan(cut.message_bytes, cut.request_bytes);
    SCOPED_TRACE(::testing::Message() << cut.message_bytes << " by " << cut.request_bytes);
    for (const uint64_t message : {uint64_t{0}, uint64_t{1}, uint64_t{16}, uint64_t{17}, uint64_t{1000003}}) {
      uint64_t off = 0;
      for (uint64_t i = 0; i < plan.requests_per_message(); ++i) {
        const MessagePlan::Part part = plan.part(message * plan.requests_per_message() + i);
        ASSERT_GT(part.bytes, 0u);
        ASSERT_LE(part.bytes, cut.request_bytes);
        ASSERT_EQ(part.send_off, plan.content_off(message) + off);
        ASSERT_EQ(part.receive_off, plan.slot_off(message) + off);
        ASSERT_LE(part.send_off + part.bytes, plan.send_memory_bytes());
        ASSERT_LE(part.receive_off + part.bytes, plan.receive_memory_bytes());
        off += part.bytes;
      }
      ASSERT_EQ(off, cut.message_bytes);
    }
  }
}

TEST(MessagePlan, RequestsInFlightLieApart) {
  for (const Cut& cut : cuts()) {
    const MessagePlan plan(cut.message_bytes, cut.request_bytes);
    SCOPED_TRACE(::testing::Message() << cut.message_bytes << " by " << cut.request_bytes);
    for (uint64_t first = 0; first < 3 * kQueueDepth; ++first) {
      std::set<std::pair<uint64_t, uint64_t>> places;  // begin and end
      for (uint64_t request = first; request < first + kQueueDepth; ++request) {
        const MessagePlan::Part part = plan.part(request);
        places.emplace(part.receive_off, part.receive_off + part.bytes);
      }
      ASSERT_EQ(places.size(), kQueueDepth);
      uint64_t end = 0;
      for (const auto& [begin, next_end] : places) {
        ASSERT_GE(begin, end);
        end = next_end;
      }
    }
  }
}

TEST(MessagePlan, TransfersFillEveryChannelWhileTheOldestEnds) {
  for (const Cut& cut : cuts()) {
    for (uint32_t channels = 1; channels <= 16; ++channels) {
      const MessagePlan plan = MessagePlan::of_transfers(cut.message_bytes, cut.request_bytes, channels);
      SCOPED_TRACE(::testing::Message() << cut.message_bytes << " by " << cut.request_bytes << " over " << channels);
      // Of the oldest message only the last request may still be in flight.
      const uint64_t requests = (plan.slots() - 1) * plan.requests_per_message() + 1;
      EXPECT_GE(requests, kQueueDepth * channels);
      EXPECT_LE(requests, kQueueDepth * channels + 2 * plan.requests_per_message()) << "more memory than it takes";
      std::set<uint64_t> places;
      for (uint64_t message = 3; message < 3 + plan.slots(); ++message) places.insert(plan.slot_off(message));
      EXPECT_EQ(places.size(), plan.slots());
      EXPECT_LE(*places.rbegin() + cut.message_bytes, plan.receive_memory_bytes());
    }
  }
  EXPECT_EQ(MessagePlan::of_transfers(4096, 4096, 1).slots(), MessagePlan(4096, 4096).slots()) << "as the bare plugin";
}

TEST(MessagePlan, MessagesInARowDifferAndSoDoTheContentsOfASlot) {
  for (const Cut& cut : cuts()) {
    std::vector<MessagePlan> plans = {MessagePlan(cut.message_bytes, cut.request_bytes)};
    for (uint32_t channels = 1; channels <= 16; ++channels)
      plans.push_back(MessagePlan::of_transfers(cut.message_bytes, cut.request_bytes, channels));
    for (const uint64_t outstanding : {1, 17, 34, 64}) {
      plans.push_back(MessagePlan::of_operations(cut.message_bytes, outstanding));
      EXPECT_GE(plans.back().slots(), outstanding);
    }
    for (const MessagePlan& plan : plans) {
      for (uint64_t message = 0; message < 100; ++message) {
        EXPECT_NE(plan.content_off(message), plan.content_off(message + 1));
        EXPECT_EQ(plan.slot_off(message), plan.slot_off(message + plan.slots()));
        EXPECT_NE(plan.content_off(message), plan.content_off(message + plan.slots()));
      }
    }
  }
}

TEST(MessagePlan, SlotsBeginAtPages) {
  for (const Cut& cut : cuts()) {
    const MessagePlan plan(cut.message_bytes, cut.request_bytes);
    for (uint64_t message = 0; message < 20; ++message) {
      EXPECT_EQ(plan.slot_off(message) % kPageBytes, 0u);
      EXPECT_EQ(plan.content_off(message) % kPageBytes, 0u);
    }
  }
}

TEST(MessagePlan, SideBySideNoMessageSharesAByte) {
  const MessagePlan plan = MessagePlan::side_by_side(1000, 300, 1001, 3);
  EXPECT_EQ(plan.slots(), 3u);
  EXPECT_EQ(plan.send_memory_bytes(), 3003u);
  EXPECT_EQ(plan.receive_memory_bytes(), 3003u);
  for (uint64_t message = 0; message < 7; ++message) {
    EXPECT_EQ(plan.slot_off(message), message % 3 * 1001);
    EXPECT_EQ(plan.content_off(message), plan.slot_off(message));
  }
}

TEST(MessagePlan, MoreSlotsAreGivenOnRequest) {
  const MessagePlan plan(8, 8);
  EXPECT_EQ(plan.with_slots(0).slots(), plan.slots());
  EXPECT_EQ(plan.with_slots(64).slots(), 64u);
  EXPECT_EQ(plan.with_slots(64).receive_memory_bytes(), 64 * kPageBytes);
  EXPECT_NE(plan.with_slots(2 * kContents).slots() % kContents, 0u);
}

}  // namespace
}  // namespace tcpx
