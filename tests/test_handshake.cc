#include "transfer/handshake.h"

#include <gtest/gtest.h>

#include "tests/support/expect_log.h"
#include "tests/support/fake_net_plugin.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Call;
using testing::FakeNetPlugin;

HandshakeWait soon() {
  return {.deadline = Deadline::after(seconds(20))};
}

TEST(Handshake, Trap01_NullCommsAreAskedForAgain) {
  FakeNetPlugin fake;
  fake.answer_not_yet(Call::kConnect, 3);
  fake.answer_not_yet(Call::kAccept, 3);
  Handle handle;
  DeviceHandleStorage storage;
  const ListenComm listener = fake.listen(0, handle).value();
  EXPECT_TRUE(connect_comm(fake, 0, handle, soon()).is_ok());
  EXPECT_TRUE(accept_comm(fake, listener, storage, soon()).is_ok());
  EXPECT_EQ(fake.calls(Call::kConnect), 4u);
  EXPECT_EQ(fake.calls(Call::kAccept), 4u);
  EXPECT_TRUE(fake.misuse().empty());
}

TEST(Handshake, Trap02_TheHandleStaysPristineAndServesAgain) {
  FakeNetPlugin fake;
  fake.answer_not_yet(Call::kConnect, 1);
  Handle handle;
  (void)fake.listen(0, handle).value();
  const Handle before = handle;
  EXPECT_TRUE(connect_comm(fake, 0, handle, soon()).is_ok());
  EXPECT_EQ(handle, before);
  EXPECT_TRUE(connect_comm(fake, 0, handle, soon()).is_ok());
  EXPECT_TRUE(fake.misuse().empty());
}

TEST(Handshake, Trap03_ASecondAcceptOfAOneShotListenerIsAnErrorNotAHang) {
  FakeNetPlugin fake;
  Handle handle;
  DeviceHandleStorage storage;
  const ListenComm listener = fake.listen(0, handle).value();
  ASSERT_TRUE(connect_comm(fake, 0, handle, soon()).is_ok());
  ASSERT_TRUE(accept_comm(fake, listener, storage, soon()).is_ok());
  EXPECT_EQ(accept_comm(fake, listener, storage, soon()).status().code(), Code::kPlugin);
}

TEST(Handshake, ADeadlineEndsTheWait) {
  testing::allow_log("the other end did not come in time");
  FakeNetPlugin fake;
  Handle handle;
  DeviceHandleStorage storage;
  const ListenComm listener = fake.listen(0, handle).value();
  EXPECT_EQ(accept_comm(fake, listener, storage, {.deadline = Deadline::after(milliseconds(5))}).status().code(), Code::kTimeout);
}

TEST(Handshake, TheCheckEndsTheWaitWithItsError) {
  FakeNetPlugin fake;
  Handle handle;
  DeviceHandleStorage storage;
  const ListenComm listener = fake.listen(0, handle).value();
  int looks = 0;
  const auto peer_dies = [&] { return ++looks < 3 ? Status::ok() : Status(Code::kPeerGone, "test", "gone"); };
  EXPECT_EQ(accept_comm(fake, listener, storage, {.deadline = Deadline::after(seconds(20)), .check = peer_dies}).status().code(),
            Code::kPeerGone);
  EXPECT_EQ(looks, 3);
}

}  // namespace
}  // namespace tcpx
