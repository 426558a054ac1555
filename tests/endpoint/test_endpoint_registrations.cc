// Registrations that an endpoint makes on the way are taken back before the application may free the memory: a plugin that
// still has it would pin pages that are somebody else's by then.
#include <gtest/gtest.h>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/locked_net_plugin.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;

class EndpointRegistrations : public testing::EndpointTest, public ::testing::WithParamInterface<MemoryType> {
 protected:
  static constexpr size_t kBytes = 200'000;

  void SetUp() override {
    set_up({.plugin = testing::PluginKind::kFake, .memory = GetParam(), .driver = testing::Driver::kOutside});
    auto fake = std::make_unique<testing::FakeNetPlugin>(testing::FakeNetPlugin::Options{.page_count = 4096});
    fake_ = fake.get();
    plugin_ = std::make_shared<testing::LockedNetPlugin>(std::move(fake));
    make_pair();
    // From here on this thread drives, and nothing moves while it looks.
    a_.driver.reset();
    b_.driver.reset();
  }
  void TearDown() override {
    // Each waits for the other's farewell.
    for (testing::Side* side : {&a_, &b_}) side->drive();
  }
  bool drive(const testing::Side& side, OperationId id) {
    OperationAnswer answer;
    const bool ended = testing::wait_until([&] {
      (void)a_->progress();
      (void)b_->progress();
      answer = side->poll(id);
      return answer.state != OperationState::kPending;
    });
    EXPECT_EQ(answer.state, OperationState::kDone) << answer.status.to_string();
    return ended && answer.state == OperationState::kDone;
  }
  /// A long message from one to the other.
  void move(const testing::Side& from, const LocalRange& out, const testing::Side& to, const LocalRange& in) {
    const OperationId received = to->recv_async(to.conn, {&in, 1}).value();
    const OperationId sent = from->send_async(from.conn, {&out, 1}).value();
    ASSERT_TRUE(drive(from, sent));
    ASSERT_TRUE(drive(to, received));
  }

  testing::FakeNetPlugin* fake_ = nullptr;
};

TEST_P(EndpointRegistrations, FreedMemoryIsNotRegisteredAnyMore) {
  GuardedBuffer at_a(kBytes), at_b(kBytes);
  fill_pattern(at_a.span(), 1);
  const size_t before = fake_->registrations();
  for (int round = 0; round < 3; ++round) {
    const LocalRange mine = range(a_, at_a.span()), theirs = range(b_, at_b.span());
    move(a_, mine, b_, theirs);
    EXPECT_EQ(fake_->registrations(), before + 2) << "once at each end";
    move(a_, mine, b_, theirs);
    EXPECT_EQ(fake_->registrations(), before + 2) << "used again";
    move(b_, theirs, a_, mine);
    EXPECT_EQ(fake_->registrations(), before + 4) << "each half of a connection has its own";
    ASSERT_TRUE(a_->deregister(mine.memory).is_ok());
    EXPECT_EQ(fake_->registrations(), before + 2) << "of both halves";
    ASSERT_TRUE(b_->deregister(theirs.memory).is_ok());
    EXPECT_EQ(fake_->registrations(), before);
  }
  EXPECT_TRUE(verify_pattern(at_b.span(), 1).is_ok());
}

TEST_P(EndpointRegistrations, AnotherRegionIsLeftAlone) {
  GuardedBuffer at_a(2 * kBytes), at_b(2 * kBytes);
  const LocalRange first = range(a_, at_a.span().first(kBytes)), second = range(a_, at_a.span().last(kBytes));
  const LocalRange theirs = range(b_, at_b.span().first(kBytes));
  move(a_, first, b_, theirs);
  move(a_, second, b_, theirs);
  const size_t all = fake_->registrations();
  ASSERT_TRUE(a_->deregister(first.memory).is_ok());
  EXPECT_EQ(fake_->registrations(), all - 1);
  move(a_, second, b_, theirs);
  EXPECT_EQ(fake_->registrations(), all - 1);
}

// Counted, so only the last one takes it back.
TEST_P(EndpointRegistrations, MemoryRegisteredTwiceStaysUntilTheLastIsGone) {
  GuardedBuffer at_a(kBytes), at_b(kBytes);
  const LocalRange mine = range(a_, at_a.span()), theirs = range(b_, at_b.span());
  ASSERT_EQ(reg(a_, at_a.span()), mine.memory);
  move(a_, mine, b_, theirs);
  const size_t all = fake_->registrations();
  ASSERT_TRUE(a_->deregister(mine.memory).is_ok());
  EXPECT_EQ(fake_->registrations(), all);
  ASSERT_TRUE(a_->deregister(mine.memory).is_ok());
  EXPECT_EQ(fake_->registrations(), all - 1);
}

INSTANTIATE_TEST_SUITE_P(, EndpointRegistrations, ::testing::Values(MemoryType::kHost, MemoryType::kCuda),
                         [](const auto& type) { return type.param == MemoryType::kHost ? "Host" : "Cuda"; });

}  // namespace
}  // namespace tcpx
