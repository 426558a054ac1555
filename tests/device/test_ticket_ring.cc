#include "device/ticket_ring.h"

#include <gtest/gtest.h>

#include <vector>

namespace tcpx {
namespace {

/// Slots whose work ends on command of the test; records which were queried.
struct Slots {
  std::vector<bool> done;
  std::vector<size_t> asked;
  auto ask() {
    return [this](size_t slot) -> Result<bool> {
      asked.push_back(slot);
      return static_cast<bool>(done[slot]);
    };
  }
};

TEST(TicketRing, TicketsAscendAndSlotsGoRound) {
  TicketRing ring(2);
  Slots slots{{true, true}, {}};
  for (uint64_t t = 0; t < 5; ++t) {
    ASSERT_TRUE(ring.ready(1).is_ok());
    EXPECT_EQ(ring.next_slot(), t % 2);
    const UnpackTicket ticket = ring.push();
    EXPECT_EQ(static_cast<uint64_t>(ticket), t);
    EXPECT_TRUE(ring.in_flight());
    EXPECT_TRUE(*ring.query(ticket, slots.ask()));
    EXPECT_FALSE(ring.in_flight());
  }
}

TEST(TicketRing, IsExhaustedUntilTheOldestIsRetired) {
  TicketRing ring(2);
  Slots slots{{false, false}, {}};
  const UnpackTicket first = ring.push();
  const UnpackTicket second = ring.push();
  EXPECT_EQ(ring.ready(1).code(), Code::kExhausted);
  slots.done[1] = true;
  EXPECT_FALSE(*ring.query(second, slots.ask())) << "finished before its predecessor is seen to be";
  EXPECT_EQ(slots.asked, std::vector<size_t>{0}) << "only the oldest is asked";
  EXPECT_EQ(ring.ready(1).code(), Code::kExhausted);
  slots.done[0] = true;
  EXPECT_TRUE(*ring.query(first, slots.ask()));
  EXPECT_TRUE(ring.ready(1).is_ok());
  EXPECT_EQ(ring.next_slot(), 0u);
}

TEST(TicketRing, ARetiredTicketStaysDoneAndItsSlotIsNotAskedAgain) {
  TicketRing ring(2);
  Slots slots{{true, true}, {}};
  const UnpackTicket first = ring.push();
  EXPECT_TRUE(*ring.query(first, slots.ask()));
  slots.done[0] = false;  // another ticket's work from now on
  EXPECT_TRUE(*ring.query(first, slots.ask()));
  EXPECT_EQ(slots.asked.size(), 1u);
}

TEST(TicketRing, QueryRetiresNothingBehindTheTicketAsked) {
  TicketRing ring(2);
  Slots slots{{true, true}, {}};
  const UnpackTicket first = ring.push();
  [[maybe_unused]] const UnpackTicket second = ring.push();
  EXPECT_TRUE(*ring.query(first, slots.ask()));
  EXPECT_TRUE(ring.in_flight());
}

TEST(TicketRing, ABatchHasABoundedNumberOfBlocks) {
  TicketRing ring(1);
  for (const size_t bad : {size_t{0}, kMaxBatchBlocks + 1}) {
    EXPECT_EQ(check_batch(bad).code(), Code::kInvalidArgument);
    EXPECT_EQ(ring.ready(bad).code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(ring.ready(kMaxBatchBlocks).is_ok());
  EXPECT_TRUE(ring.ready().is_ok());
  [[maybe_unused]] const UnpackTicket ticket = ring.push();
  EXPECT_EQ(ring.ready().code(), Code::kExhausted);
  EXPECT_EQ(ring.fail(Status(Code::kSystem, "x", "broken")).detail(), "broken");
  EXPECT_EQ(ring.ready().detail(), "broken");
  EXPECT_EQ(ring.ready(0).detail(), "broken") << "the error that stuck comes first";
}

TEST(TicketRing, AnUnknownTicketIsAnErrorThatDoesNotStick) {
  TicketRing ring(2);
  Slots slots{{true, true}, {}};
  EXPECT_EQ(ring.query(UnpackTicket{0}, slots.ask()).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(ring.ready(1).is_ok());
  EXPECT_TRUE(slots.asked.empty());
}

TEST(TicketRing, TheFirstErrorSticks) {
  TicketRing ring(2);
  Slots slots{{true, true}, {}};
  const UnpackTicket ticket = ring.push();
  const auto broken = [](size_t) -> Result<bool> { return Status(Code::kCuda, "query event", "first", Domain::kCuda, 700); };
  EXPECT_EQ(ring.query(ticket, broken).status().native(), 700);
  EXPECT_TRUE(ring.failed());
  EXPECT_EQ(ring.fail(Status(Code::kSystem, "later", "second")).detail(), "first");
  EXPECT_EQ(ring.ready(1).detail(), "first");
  EXPECT_EQ(ring.query(ticket, slots.ask()).status().detail(), "first");
  EXPECT_TRUE(slots.asked.empty());
}

}  // namespace
}  // namespace tcpx
