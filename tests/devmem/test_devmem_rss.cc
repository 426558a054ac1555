// Bound queues that are taken out of the RSS table of a played NIC.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "net/devmem/queue_binding.h"
#include "tests/devmem/steering_test.h"
#include "tests/support/netlink_answers.h"

namespace tcpx::testing {
namespace {

using devmem::Steering;
using devmem::SteeringChange;
using devmem::SteeringRecord;

using Table = std::vector<uint32_t>;

class DevmemRss : public SteeringTest {};

TEST_F(DevmemRss, AQueueIsTakenOutOfRssAndPutBack) {
  Steering steering = open();
  nic.tables[0] = {3, 3, 1, 0, 3, 3, 1, 0};
  {
    const auto change = steering.take_out_of_rss(3);
    ASSERT_TRUE(change.is_ok()) << change.status().to_string();
    EXPECT_TRUE(change->is_ours());
    EXPECT_EQ(nic.tables[0], (Table{0, 1, 1, 0, 0, 1, 1, 0}));
    EXPECT_FALSE(steering.take_out_of_rss(2)->is_ours());  // no packets come by it
    EXPECT_EQ(nic.tables[0], (Table{0, 1, 1, 0, 0, 1, 1, 0}));
  }
  EXPECT_EQ(nic.tables[0], (Table{3, 3, 1, 0, 3, 3, 1, 0}));
  EXPECT_EQ(nic.transformation, 3);
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemRss, TheDriversDefaultComesBackAsSuch) {
  Steering steering = open();
  (void)steering.take_out_of_rss(3);
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(nic.resets, 1u);
  // Over fewer queues than there are it is an administrator's, who keeps packets from the others even for a moment.
  nic.tables[0] = {0, 1, 0, 1, 0, 1, 0, 1};
  (void)steering.take_out_of_rss(1);
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(nic.resets, 1u);
}

TEST_F(DevmemRss, QueuesComeBackInAnyOrder) {
  const Table before = nic.tables[0];
  for (const bool first_ends_first : {true, false}) {
    Steering steering = open();
    auto one = std::make_unique<SteeringChange>(*steering.take_out_of_rss(3));
    auto two = std::make_unique<SteeringChange>(*steering.take_out_of_rss(1));
    auto again = std::make_unique<SteeringChange>(*steering.take_out_of_rss(1));
    EXPECT_EQ(nic.tables[0], (Table{0, 0, 2, 2, 0, 0, 2, 2}));
    (first_ends_first ? one : two).reset();
    for (const uint32_t queue : nic.tables[0]) EXPECT_NE(queue, 1u);
    EXPECT_EQ(std::count(nic.tables[0].begin(), nic.tables[0].end(), 3u), first_ends_first ? 2 : 0);
    again.reset();
    (first_ends_first ? two : one).reset();
    EXPECT_EQ(nic.tables[0], before);
    EXPECT_EQ(records(), 0u);
  }
}

TEST_F(DevmemRss, ATableThatSomebodyElseSetIsLeftAlone) {
  Steering steering = open();
  auto one = std::make_unique<SteeringChange>(*steering.take_out_of_rss(3));
  nic.tables[0] = {0, 1, 0, 1, 2, 2, 2, 2};
  auto two = std::make_unique<SteeringChange>(*steering.take_out_of_rss(2));
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 0, 1, 0, 1, 0, 1}));
  one.reset();
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 0, 1, 0, 1, 0, 1}));
  two.reset();
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 0, 1, 2, 2, 2, 2}));
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemRss, TheLastQueueOfRssStays) {
  Steering steering = open();
  nic.tables[0] = {1, 1, 1, 1};
  const Status status = steering.take_out_of_rss(1).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.detail().find("no other queue of lo"), std::string::npos);
  EXPECT_EQ(nic.tables[0], (Table{1, 1, 1, 1}));
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemRss, ATableThatADeadProcessChangedIsPutBack) {
  const Table before = nic.tables[0];
  leave({SteeringRecord::Kind::kRssTable, 3, {}, before});
  leave({SteeringRecord::Kind::kRssTable, 1, {}, before});
  nic.tables[0] = {0, 0, 2, 2, 0, 0, 2, 2};
  (void)open();
  EXPECT_EQ(nic.tables[0], before);
  EXPECT_EQ(records(), 0u);
}

// Two that bind at once are told of the same spare queue.
TEST_F(DevmemRss, ABindThatLosesItsQueueTakesTheNextOne) {
  constexpr uint16_t kQueueDmabuf = 5, kDmabufId = 4;
  const auto attribute = [](uint16_t type, uint32_t value) {
    Bytes attributes;
    append_attribute(attributes, type, bytes_of(value));
    return attributes;
  };
  for (const bool shows_next : {true, false}) {
    NetlinkAnswers kernel;
    kernel.family(0x21);
    for (uint32_t i = 0; i < FakeNic::kQueues; ++i) kernel.answer({});
    kernel.refuse(ENOENT);
    kernel.refuse(EEXIST, "designated queue already memory provider bound");
    // Memory that is not a dma-buf may be bound to a queue, too: then it stays the spare one.
    for (uint32_t i = 0; i < FakeNic::kQueues; ++i)
      kernel.answer(shows_next && i + 1 == FakeNic::kQueues ? attribute(kQueueDmabuf, 7) : Bytes{});
    kernel.refuse(ENOENT);
    shows_next ? kernel.answer(attribute(kDmabufId, 8)) : kernel.refuse(EBUSY);
    const auto bound = devmem::BoundQueue::bind(nic, *devmem::Netdev::over(kernel.socket()), "lo", 0, directory.path());
    ASSERT_EQ(bound.status().code(), shows_next ? Code::kOk : Code::kExhausted) << bound.status().to_string();
    if (!shows_next) continue;
    EXPECT_EQ(bound->queue, 2u);
    EXPECT_EQ(bound->dmabuf_id, 8u);
    EXPECT_EQ(nic.tables[0], (Table{0, 1, 0, 3, 0, 1, 1, 3}));
  }
  EXPECT_EQ(nic.tables[0], (Table{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(records(), 0u);
}

}  // namespace
}  // namespace tcpx::testing
