// Slots that end by themselves, as the other end sees it: whichever way the bytes go, an operation is one use of each slot that it names.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/support/endpoint_fixture.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;

class EndpointSlots : public testing::EndpointPairTest {
 protected:
  static constexpr size_t kBytes = 1 << 20, kShort = 100;

  void prepare() override {
    make_pair();
    near_ = range(a_, mine_.span());
    far_ = range(b_, theirs_.span());
  }
  RemoteSlot of_uses(uint32_t uses) { return b_->advertise(b_.conn, far_, {.uses = uses}).value(); }
  LocalRange part(size_t bytes, size_t offset = 0) const {
    return {near_.memory, static_cast<std::byte*>(near_.data) + offset, bytes};
  }

  GuardedBuffer mine_{kBytes}, theirs_{kBytes};
  LocalRange near_, far_;
};
TCPX_OVER_SETUPS(EndpointSlots, testing::few_setups());

TEST_P(EndpointSlots, EachWriteAndReadIsAUse) {
  for (const size_t bytes : {kShort, kBytes}) {
    const RemoteSlot slot = of_uses(2);
    EXPECT_TRUE(a_->write(a_.conn, part(bytes), {slot}).is_ok()) << bytes;
    EXPECT_TRUE(b_->is_advertised(slot));
    EXPECT_TRUE(a_->read(a_.conn, part(bytes), {slot}).is_ok()) << bytes;
    EXPECT_FALSE(b_->is_advertised(slot));
    EXPECT_EQ(a_->write(a_.conn, part(bytes), {slot}).code(), Code::kNotFound) << bytes;
    EXPECT_EQ(a_->read(a_.conn, part(bytes), {slot}).code(), Code::kNotFound) << bytes;
  }
}

TEST_P(EndpointSlots, ManyRangesOfOneOperationAreOneUse) {
  const RemoteSlot once = of_uses(1), twice = of_uses(2);
  const std::vector<LocalRange> ranges{part(1, 0), part(1, 2), part(1, 4), part(1, 6)};
  const std::vector<RemoteRange> remote{{once, 0}, {twice, 2}, {once, 4}, {twice, 6}};
  EXPECT_TRUE(a_->write(a_.conn, ranges, remote).is_ok());
  EXPECT_EQ(a_->write(a_.conn, ranges, remote).code(), Code::kNotFound) << "once has ended";
  EXPECT_TRUE(a_->write(a_.conn, part(1), {twice}).is_ok()) << "a refused operation uses nothing";
  EXPECT_FALSE(b_->is_advertised(twice));
}

TEST_P(EndpointSlots, OfOperationsThatRaceOneIsServed) {
  for (const size_t bytes : {kShort, kBytes}) {
    for (int round = 0; round < 10; ++round) {
      const RemoteSlot slot = of_uses(1);
      std::vector<Status> ends(3);
      std::vector<std::thread> threads;
      for (Status& end : ends) threads.emplace_back([&] { end = a_->write(a_.conn, part(bytes), {slot}); });
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(std::count_if(ends.begin(), ends.end(), [](const Status& end) { return end.is_ok(); }), 1);
      EXPECT_EQ(std::count_if(ends.begin(), ends.end(), [](const Status& end) { return end.code() == Code::kNotFound; }), 2);
    }
  }
}

}  // namespace
}  // namespace tcpx
