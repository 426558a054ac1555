// Waiting and its limits: channels that are silent or say "not now" beside others that move, and a peer that is ready before
// this end is.
#include <gtest/gtest.h>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::channels;
using testing::expect_clean_success;
using testing::expect_let_go;
using testing::expect_moves;
using testing::PipelinePair;
using testing::PipelinePairOptions;

/// Over a plugin of which one receiving comm can be singled out.
PipelinePairOptions faulty(PipelinePairOptions options) {
  options.faults.emplace();
  return options;
}

TEST(PipelinePatience, ARefusalThatNobodyWaitsForAnyMoreIsNoStall) {
  PipelinePair p(faulty(channels(2)));
  p.faulty->refusing = p.raw_recvs[0];
  expect_moves(p, 4096);
  p.faulty->refusing.reset();
  // Driven all the time, with nothing to do.
  for (int i = 0; i < 100; ++i) {
    p.progress();
    p.clock.advance(seconds(1));
  }
  EXPECT_TRUE(p.recv->status().is_ok()) << p.recv->status().to_string();
  expect_moves(p, 40000, 2);
}

TEST(PipelinePatience, AChannelThatTakesNothingIsNotWaitedForByTheOthers) {
  for (size_t refusing = 0; refusing < 2; ++refusing) {
    PipelinePair p(faulty(channels(2)));
    // The other one has proved slow.
    p.faulty->silent = p.raw_recvs[1 - refusing];
    p.submit_send(0, 200000), p.submit_recv(0, 200000);
    p.drive([] { return false; }, 1000);
    p.faulty->silent.reset();
    ASSERT_TRUE(p.drive_to_end());
    ASSERT_GT(p.recv->counters()[1 - refusing].chunks, 0u);
    p.faulty->refusing = p.raw_recvs[refusing];
    const TransferId sent = p.submit_send(0, 4096), got = p.submit_recv(0, 4096);
    ASSERT_TRUE(p.drive_to_end(500)) << p.recv->flight_record();
    expect_clean_success(p, sent, got, 0, 4096);
  }
}

TEST(PipelinePatience, ASilentChannelIsGivenUpBeforeTheSenderGivesUpWaiting) {
  testing::allow_log("nothing advanced for 200 ms");
  testing::allow_log("connection goes on over 2 of 3 channels");
  PipelinePairOptions options = channels(3, true);
  options.send.limits.stall_limit = options.recv.limits.stall_limit = milliseconds(200);
  options.fake.max_delay_tests = 3;
  PipelinePair p(faulty(options));
  const TransferId sent = p.submit_send(0, 24576), got = p.submit_recv(0, 24576);
  p.recv->progress();
  for (int i = 0; i < 50; ++i) p.send->progress();
  ASSERT_EQ(p.send->in_flight(), 0u) << "all has been sent: from here on the sender waits";
  p.clock.advance(milliseconds(100));
  while (p.recv->counters()[1].chunks == 0) p.recv->progress();
  ASSERT_EQ(p.recv->counters()[1].chunks, 1u) << "one of two";
  p.faulty->silent = p.raw_recvs[1];
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 24576);
}

TEST(PipelinePatience, APeerThatHasFinishedMayStillHaveDataOnTheWay) {
  // A send is done when the plugin has taken it: its program may finish while the receiver is still at work.
  PipelinePair p(channels(2));
  p.unpacker.queries_needed = 200;
  const TransferId sent = p.submit_send(0, 20000), got = p.submit_recv(0, 20000);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }));
  p.to_receiver->finished = true;
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 20000);
}

TEST(PipelinePatience, AReceiverThatHasFinishedLeavesTheSenderToItsPlugin) {
  int met = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PipelinePairOptions options = channels(2, seed % 2 == 0);
    options.fake.max_delay_tests = 8;
    options.fake.seed = seed;
    PipelinePair p(options);
    const TransferId sent = p.submit_send(0, 20000), got = p.submit_recv(0, 20000);
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
    met += p.send->in_flight() > 0 ? 1 : 0;
    p.to_sender->finished = true;
    ASSERT_TRUE(p.drive_to_end());
    expect_clean_success(p, sent, got, 0, 20000);
  }
  EXPECT_GT(met, 0);
}

TEST(PipelinePatience, APeerThatHasFinishedIsNotWaitedForWhenMoreMustBeSaid) {
  for (const bool at_the_sender : {true, false}) {
    PipelinePair p(channels(2));
    const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
    p.recv->progress();
    (at_the_sender ? p.to_sender : p.to_receiver)->finished = true;
    ASSERT_TRUE(p.drive([&] { return (at_the_sender ? p.send : p.recv)->pending() == 0; }, 100));
    const Status status = at_the_sender ? p.send->poll(sent).status : p.recv->poll(got).status;
    EXPECT_EQ(status.code(), Code::kProtocol) << status.to_string();
    EXPECT_NE(status.detail().find("the peer has finished"), std::string::npos) << status.to_string();
    expect_let_go(p);
  }
}

TEST(PipelinePatience, WhatThePeerHasAcknowledgedIsDoneThoughEveryChannelIsLost) {
  testing::allow_log("channel gives up");
  testing::allow_log("connection goes on over 1 of 2 channels");
  int met = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PipelinePairOptions options = channels(2, true);
    options.fake.max_delay_tests = 8;
    options.fake.seed = seed;
    PipelinePair p(options);
    const TransferId sent = p.submit_send(0, 20000), got = p.submit_recv(0, 20000);
    ASSERT_TRUE(p.drive([&] { return p.recv->pending() == 0; }));
    EXPECT_EQ(p.recv->poll(got).state, TransferState::kDone);
    if (p.send->counters()[0].chunks == 3 || p.send->counters()[1].chunks == 2) continue;
    ++met;
    // The receiver has everything and is gone; the sender's plugin had not yet reported the last chunks as done.
    p.fake.fail_call(testing::Call::kTestSend, 1, testing::plugin_peer_gone("test"));
    ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }));
    const TransferAnswer answer = p.send->poll(sent);
    EXPECT_EQ(answer.state, TransferState::kDone) << answer.status.to_string();
    EXPECT_EQ(answer.bytes_done, 20000u);
    EXPECT_EQ(p.send->status().code(), Code::kPeerGone) << "which the next submit will say";
  }
  EXPECT_GT(met, 0);
}

TEST(PipelinePatience, ALostChannelHoldsNothingAndHidesNoStall) {
  testing::allow_log("connection goes on over 1 of 2 channels");
  testing::allow_log("no word from the peer for");
  PipelinePairOptions options = channels(2, true);
  options.send.limits.stall_limit = milliseconds(200);
  options.send.limits.window = 1;
  options.fake.max_delay_tests = 100;
  PipelinePair p(options);
  const TransferId sent = p.submit_send(0, 20000);
  p.submit_recv(0, 20000);
  p.recv->progress();
  p.send->progress();
  ASSERT_EQ(p.send->in_flight(), 2u) << "none of them done, which the delays see to";
  p.sender_lost = {"nic0"};
  p.clock.advance(milliseconds(150));
  p.send->progress();
  EXPECT_EQ(p.send->in_flight(), 1u);
  // The receiver is silent from now on.
  for (int i = 0; i < 2000 && p.send->pending() > 0; ++i) {
    p.send->progress();
    p.clock.advance(milliseconds(1));
  }
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kTimeout);
}

TEST(PipelinePatience, ARegrantedChunkIsNotHeldUpByATransferThatTheSenderHasNotYet) {
  testing::allow_log("connection goes on over 1 of 2 channels");
  PipelinePairOptions options = channels(2, true);
  PipelinePair p(options);
  // The receiver is ahead; the sender begins the second transfer only when the first is done.
  const TransferId got = p.submit_recv(0, 8192), next_got = p.submit_recv(8192, 40000);
  for (int i = 0; i < 50; ++i) p.recv->progress();
  const TransferId sent = p.submit_send(0, 8192);
  p.receiver_lost = {"nic0"};
  p.clock.advance(milliseconds(150));
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; })) << p.send->flight_record() << p.recv->flight_record();
  const TransferId next_sent = p.submit_send(8192, 40000, 2);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 8192);
  expect_clean_success(p, next_sent, next_got, 8192, 40000, 2);
}

}  // namespace
}  // namespace tcpx
