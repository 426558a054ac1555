// Frames of a peer that name memory with which the application's GPU is not done yet, at a link that is moved step by step.
#include "tests/support/link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkGpuOrder : public LinkTest {
 protected:
  /// Steps in which nothing is said about the peer's operations.
  void expect_silence() {
    steps(5);
    for (const FrameType type : {FrameType::kGo, FrameType::kDone, FrameType::kReady, FrameType::kReadData})
      EXPECT_FALSE(hear(type).has_value()) << static_cast<int>(type);
    EXPECT_TRUE(link_->needs_polling());
  }
  Gate gpu_;
};

TEST_F(LinkGpuOrder, AShortWriteComesAfterTheWork) {
  const Bytes before = host_;
  say_write(5, advertised(host_id_, 0, 1000, &gpu_), std::span(peers_).first(1000));
  expect_silence();
  EXPECT_EQ(host_, before);
  gpu_.open = true;
  steps(2);
  EXPECT_EQ(hear(FrameType::kDone)->operation, 5u);
  EXPECT_TRUE(has_peers(host_, 1000));
  EXPECT_FALSE(link_->needs_polling());
}

TEST_F(LinkGpuOrder, ALongWriteIsToldToBeginAfterTheWork) {
  ask(FrameType::kWrite, 5, {}, &gpu_);
  expect_silence();
  gpu_.open = true;
  steps(2);
  EXPECT_EQ(hear(FrameType::kGo)->operation, 5u);
}

TEST_F(LinkGpuOrder, AReadHasWhatTheWorkLeft) {
  OperationPayload payload;
  payload.ranges = {advertised(host_id_, 0, 1000, &gpu_)};
  say(FrameType::kRead, 5, 0, 1000, Packing::kWhole, &payload);
  ask(FrameType::kRead, 6, {}, &gpu_);
  expect_silence();
  std::copy_n(peers_.begin(), kLong, host_.begin());
  gpu_.open = true;
  steps(2);
  const auto answer = std::find_if(heard_.frames.begin(), heard_.frames.end(), [](const auto& frame) {
    return frame.header.type == static_cast<uint8_t>(FrameType::kReadData);
  });
  ASSERT_NE(answer, heard_.frames.end());
  EXPECT_TRUE(std::equal(answer->payload.begin(), answer->payload.end(), peers_.begin()));
  EXPECT_EQ(hear(FrameType::kReadData)->operation, 5u);
  EXPECT_EQ(hear(FrameType::kReady)->operation, 6u);
}

TEST_F(LinkGpuOrder, OtherMemoryIsNotHeldUp) {
  say_write(5, advertised(host_id_, 0, 1000, &gpu_), std::span(peers_).first(1000));
  say_write(6, advertised(host_id_, 2000, 1000), std::span(peers_).first(1000));
  steps(2);
  EXPECT_EQ(hear(FrameType::kDone)->operation, 6u);
  EXPECT_FALSE(hear(FrameType::kDone).has_value());
}

TEST_F(LinkGpuOrder, ManyThatWaitForTheSameAskTheGpuOnceInATurn) {
  constexpr int kWrites = 20;
  const WireRange range = advertised(host_id_, 0, 100, &gpu_);
  for (int i = 0; i < kWrites; ++i) say_write(5 + i, range, std::span(peers_).first(100));
  steps(3);
  const int before = gpu_.asked;
  steps(10);
  EXPECT_EQ(gpu_.asked - before, 10);
  gpu_.open = true;
  steps(2);
  for (int i = 0; i < kWrites; ++i) EXPECT_EQ(hear(FrameType::kDone)->operation, 5u + i);
}

// The window has room for no further one.
TEST_F(LinkGpuOrder, WhatWaitsIsCountedOnce) {
  constexpr uint64_t kBytes = 40'000, kWrites = kInlineWindowBytes / (kBytes + 200);
  const WireRange range = advertised(host_id_, 0, kBytes, &gpu_);
  for (uint64_t i = 0; i < kWrites; ++i) say_write(5 + i, range, std::span(peers_).first(kBytes));
  steps(100);  // until all have come
  expect_silence();
  gpu_.open = true;
  steps(2);
  for (uint64_t i = 0; i < kWrites; ++i) EXPECT_EQ(hear(FrameType::kDone)->operation, 5 + i);
  EXPECT_TRUE(alive());
}

TEST_F(LinkGpuOrder, AWriteThatWaitsCanBeGivenUp) {
  ask(FrameType::kWrite, 5, {}, &gpu_);
  ask(FrameType::kWrite, 6, {}, &gpu_);
  expect_silence();
  const auto give_up = [this](uint64_t operation) {
    say(FrameType::kCancel, operation, 0, static_cast<uint64_t>(CancelFrame::What::kWrite));
    steps(2);
  };
  give_up(5);
  const auto done = hear(FrameType::kDone);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->operation, 5u);
  EXPECT_EQ(done->value, static_cast<uint64_t>(Code::kCancelled));
  gpu_.open = true;
  steps(2);
  EXPECT_EQ(hear(FrameType::kGo)->operation, 6u);
  EXPECT_FALSE(hear(FrameType::kGo).has_value());
  give_up(6);
  EXPECT_TRUE(alive()) << "it had been told to begin at the same moment";
}

TEST_F(LinkGpuOrder, AWriterThatGivesUpAsksAndHearsTheEnd) {
  const OperationId writing = start(OperationKind::kWrite, {.ranges = one(host(0, kLong)),
                                                            .remote = {{.slot = {0, 1}, .offset = 0, .bytes = kLong}},
                                                            .timeout = std::chrono::milliseconds(10)});
  step();
  ASSERT_TRUE(hear(FrameType::kWrite).has_value());
  steps(15);
  const auto cancel = hear(FrameType::kCancel);
  ASSERT_TRUE(cancel.has_value());
  EXPECT_EQ(cancel->operation, static_cast<uint64_t>(writing));
  EXPECT_EQ(cancel->bytes, static_cast<uint64_t>(CancelFrame::What::kWrite));
  EXPECT_TRUE(pending(writing));
  say_done(writing, Code::kCancelled);
  steps(2);
  EXPECT_EQ(end_of(writing).code(), Code::kTimeout);
  EXPECT_TRUE(alive());
}

TEST_F(LinkGpuOrder, WorkThatFailedRefusesTheOperationOnly) {
  ask(FrameType::kWrite, 5, {}, &gpu_);
  steps(2);
  gpu_.failure = Status(Code::kCuda, "query event", "broken");
  steps(2);
  const auto done = hear(FrameType::kDone);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->value, static_cast<uint64_t>(Code::kCuda));
  EXPECT_TRUE(alive());
}

TEST_F(LinkGpuOrder, WhatWaitsHoldsNoMemory) {
  ask(FrameType::kWrite, 5, {}, &gpu_);
  steps(2);
  EXPECT_TRUE(registry_.try_remove(host_id_).is_ok());
  steps(2);
  const auto done = hear(FrameType::kDone);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->value, static_cast<uint64_t>(Code::kNotFound));
}

TEST_F(LinkGpuOrder, ALinkEndsWhileSomethingWaits) {
  ask(FrameType::kWrite, 5, {}, &gpu_);
  say_write(6, advertised(host_id_, 0, 1000, &gpu_), std::span(peers_).first(1000));
  steps(2);
  const Bytes before = host_;
  link_->fail(Status(Code::kPeerGone, "test", "over"));
  gpu_.open = true;
  EXPECT_TRUE(drive([&] { return link_->closed(); }));
  EXPECT_EQ(host_, before);
}

}  // namespace
}  // namespace tcpx::testing
