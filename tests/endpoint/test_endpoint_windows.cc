// Many short messages at once: those that the window of inline messages holds up and those it must not.
#include <gtest/gtest.h>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::GuardedBuffer;
using Ids = std::vector<Result<OperationId>>;

class EndpointWindows : public testing::EndpointSetupTest {};
TCPX_OVER_SETUPS(EndpointWindows, testing::few_setups());

TEST_P(EndpointWindows, AShortGpuSendIsNotLockedOutByHostSendsBehindIt) {
  if (setup_.memory == MemoryType::kHost) GTEST_SKIP() << "needs device memory beside host memory";
  make_pair();
  constexpr size_t kCount = 1200, kBytes = 4096;  // more than the window takes
  GuardedBuffer device(kBytes), host(kBytes), target(kBytes);
  fill_pattern(device.span(), 1);
  fill_pattern(host.span(), 2);
  const LocalRange first = range(a_, device.span()), into = range(b_, target.span());
  const LocalRange rest{a_->register_memory(host.data(), kBytes, MemoryType::kHost).value(), host.data(), kBytes};
  Ids sends;
  // The one of device memory takes its time to be read; those behind it could fill the window meanwhile, most of all when the
  // endpoint sees all of them at once.
  if (setup_.driver == testing::Driver::kOutside) a_.driver.reset();
  for (size_t i = 0; i < kCount; ++i) sends.push_back(a_->send_async(a_.conn, {i % 50 == 0 ? &first : &rest, 1}));
  if (setup_.driver == testing::Driver::kOutside) a_.drive();
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(done(b_, b_->recv_async(b_.conn, {&into, 1}, {.timeout = milliseconds(5000)}))) << i;
    ASSERT_TRUE(verify_pattern(target.span(), i % 50 == 0 ? 1 : 2).is_ok()) << i;
  }
  for (const auto& id : sends) ASSERT_TRUE(done(a_, id));
}

// The window of writes is shut by a peer that does not take its notifications. The slots for copies belong to all connections.
TEST_P(EndpointWindows, APeerThatTakesNothingHoldsUpNoOtherConnection) {
  if (setup_.memory == MemoryType::kHost) GTEST_SKIP() << "needs device memory";
  make_pair({}, {.max_notifications = 1});
  testing::Side c = make(), a_to_c;
  a_to_c.endpoint = std::move(a_.endpoint);
  connect(a_to_c, c);
  a_.endpoint = std::move(a_to_c.endpoint);
  constexpr size_t kCount = 1200, kBytes = 4096;
  GuardedBuffer source(kBytes), shut(kBytes), open(kBytes);
  fill_pattern(source.span(), 1);
  const LocalRange out = range(a_, source.span()), into = range(c, open.span());
  const RemoteRange place{b_->advertise(b_.conn, range(b_, shut.span())).value(), 0};
  const NotifyMsg message{.name = "n", .msg = ""};
  Ids writes;
  for (size_t i = 0; i < kCount; ++i) writes.push_back(a_->write_async(a_.conn, {&out, 1}, {&place, 1}, {.notify = &message}));
  for (int i = 0; i < 20; ++i) {
    const auto received = c->recv_async(c.conn, {&into, 1}, {.timeout = milliseconds(5000)});
    ASSERT_TRUE(done(a_, a_->send_async(a_to_c.conn, {&out, 1}, {.timeout = milliseconds(5000)}))) << i;
    ASSERT_TRUE(done(c, received)) << i;
  }
  EXPECT_TRUE(verify_pattern(open.span(), 1).is_ok());
  size_t taken = 0;
  ASSERT_TRUE(testing::wait_until([&] { return (taken += b_->get_notifs().size()) >= kCount; }));
  for (const auto& id : writes) ASSERT_TRUE(done(a_, id));
  EXPECT_EQ(taken, kCount);
}

}  // namespace
}  // namespace tcpx
