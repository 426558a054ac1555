// Control streams through shared memory: the same frames, ends and bounds as over a socket.
#include <gtest/gtest.h>

#include "base/text.h"
#include "wire/control_stream.h"
#include "tests/support/raw_frame.h"
#include "tests/support/shared_pair.h"
#include "tests/support/stream_pair.h"

namespace tcpx::testing {
namespace {

class ControlStreamShared : public ::testing::Test {
 protected:
  ControlStreamShared() {
    a_.attach(pair_.a());
    b_.attach(pair_.b());
  }
  template <class Condition>
  bool run_until(Condition condition) {
    return wait_until([&] {
      a_.flush();
      b_.flush();
      a_.receive(at_a_);
      b_.receive(at_b_);
      return condition();
    });
  }
  Status end_of_b() {
    EXPECT_TRUE(run_until([&] { return !b_.status().is_ok(); }));
    return b_.status();
  }

  SharedPair pair_;
  ControlStream a_, b_;
  Recorder at_a_, at_b_;
};

TEST_F(ControlStreamShared, FramesGoBothWaysInOrder) {
  send_some(a_);
  send_some(b_);
  ASSERT_TRUE(run_until([&] { return at_a_.frames.size() == 4 && at_b_.frames.size() == 4; }));
  expect_some(at_a_);
  expect_some(at_b_);
}

TEST_F(ControlStreamShared, AFrameLongerThanARingArrivesAmongShortOnes) {
  const Bytes payload = pattern(kMaxNotifyTextBytes, 5);
  send_some(a_);
  a_.send(RawFrame{make_header(FrameType::kNotify, 9), payload});
  send_some(a_);
  ASSERT_TRUE(run_until([&] { return at_b_.frames.size() == 9; }));
  EXPECT_EQ(at_b_.frames[4].payload, payload);
}

TEST_F(ControlStreamShared, WhatHasComeIsSeenWithoutTheSocket) {
  EXPECT_FALSE(b_.has_arrived());
  send_some(a_);
  a_.flush();
  EXPECT_TRUE(b_.has_arrived());
  EXPECT_TRUE(b_.prepare_sleep());
  EXPECT_TRUE(b_.receive(at_b_, false));
  expect_some(at_b_);
  EXPECT_FALSE(b_.has_arrived());
  EXPECT_FALSE(b_.prepare_sleep());
}

TEST_F(ControlStreamShared, WhatThePeerSaidBeforeItFailedIsHeard) {
  send_some(a_);
  a_.flush();
  a_.fail(Status(Code::kInternal, "test", "fails"));
  const Status status = end_of_b();
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
  expect_some(at_b_);
}

TEST_F(ControlStreamShared, AProcessThatDiesInAFrameIsGone) {
  const Bytes payload = pattern(kMaxNotifyTextBytes, 5);
  a_.send(RawFrame{make_header(FrameType::kNotify, 9), payload});
  a_.flush();
  pair_.sockets.a.reset();
  EXPECT_TRUE(wait_until([&] {
    b_.receive(at_b_);
    return !b_.status().is_ok();
  }));
  const Status& status = b_.status();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_NE(status.detail().find(concat("after ", SharedRing::kBytes, " bytes of a frame")), std::string::npos)
      << status.to_string();
  EXPECT_TRUE(at_b_.frames.empty());
}

TEST_F(ControlStreamShared, ADeathIsNoticedByALookNowAndThen) {
  close_here(pair_.sockets.a.release());
  EXPECT_FALSE(b_.has_arrived());
  b_.check_alive(std::chrono::seconds(4));
  EXPECT_TRUE(b_.has_arrived());
  b_.receive(at_b_, false);
  EXPECT_EQ(b_.status().code(), Code::kPeerGone);
}

TEST_F(ControlStreamShared, CountersThatDoNotAddUpBreakIt) {
  pair_.forth->written = SharedRing::kBytes + 1;
  EXPECT_EQ(end_of_b().code(), Code::kProtocol);
  pair_.forth->read = 1;
  send_some(a_);
  EXPECT_TRUE(run_until([&] { return !a_.status().is_ok(); }));
  EXPECT_EQ(at_a_.frames.size(), 0u);
}

TEST_F(ControlStreamShared, WhatIsNoFrameBreaksIt) {
  pair_.forth->written = sizeof(FrameHeader);
  EXPECT_EQ(end_of_b().code(), Code::kProtocol);
}

TEST_F(ControlStreamShared, APeerThatDoesNotReadIsBounded) {
  const Bytes payload = pattern(1 << 20, 1);
  for (int i = 0; i < 80 && a_.status().is_ok(); ++i) {
    a_.send(RawFrame{make_header(FrameType::kNotify, 1), payload});
    a_.flush();
  }
  EXPECT_EQ(a_.status().code(), Code::kExhausted) << a_.status().to_string();
}

TEST_F(ControlStreamShared, AClosedOneHoldsNoSocket) {
  a_.fail(Status(Code::kInternal, "test", "fails"));
  a_.close();
  EXPECT_FALSE(pair_.sockets.a);
  EXPECT_EQ(end_of_b().code(), Code::kPeerGone);
}

}  // namespace
}  // namespace tcpx::testing
