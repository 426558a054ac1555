// The thread that copies on behalf of others: in order, a bounded number at a time, each with its own end.
#include "net/soft/copy_thread.h"

#include <gtest/gtest.h>

#include <thread>

#include "measure/pattern.h"
#include "tests/support/hidden_memory_ops.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using soft::CopyThread;

class CopyThreadTest : public ::testing::TestWithParam<std::chrono::microseconds> {
 protected:
  static constexpr uint32_t kBytes = 1000;

  void SetUp() override {
    std::vector<std::byte> content(size_t{kBytes} * kCopies);
    fill_pattern(content, 1);
    ASSERT_TRUE(lane_->copy(source_.device(), content.data(), content.size()).is_ok());
    for (uint32_t i = 0; i < kCopies; ++i)
      copies_.push_back(std::make_unique<CopyThread::Copy>(std::move(*lane_->make_async_copy())));
    wanted_ = std::move(content);
    found_.resize(wanted_.size());
  }
  void queue(uint32_t i) { copier_->queue(*copies_[i], found_.data() + i * kBytes, source_.device() + i * kBytes, kBytes); }
  bool is_done(uint32_t i) const { return copies_[i]->is_done().is_ok() && *copies_[i]->is_done(); }

  static constexpr uint32_t kCopies = 40;
  HiddenMemoryOps memory_;
  std::unique_ptr<CopyLane> lane_ = std::move(*memory_.make_copy_lane(0));
  MemoryBuffer source_ = std::move(*memory_.allocate_device(0, size_t{kBytes} * kCopies));
  std::vector<std::unique_ptr<CopyThread::Copy>> copies_;
  std::vector<std::byte> wanted_, found_;
  std::unique_ptr<CopyThread> copier_ = std::move(*CopyThread::start(memory_, 0, GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Spin, CopyThreadTest, ::testing::Values(std::chrono::microseconds(0), std::chrono::microseconds(200)),
                         [](const auto& spin) { return spin.param.count() == 0 ? "sleeps" : "spins"; });

TEST_P(CopyThreadTest, MakesEveryCopyOverAndOver) {
  for (int round = 0; round < 50; ++round) {
    std::fill(found_.begin(), found_.end(), std::byte{});
    for (uint32_t i = 0; i < kCopies; ++i) queue(i);
    for (uint32_t i = 0; i < kCopies; ++i) {
      copies_[i]->wait();
      EXPECT_TRUE(is_done(i)) << i;
    }
    ASSERT_TRUE(found_ == wanted_) << "round " << round;
  }
}

TEST_P(CopyThreadTest, HandsTheGpuAFewAtATimeInTheirOrder) {
  memory_.hold_copies();
  for (uint32_t i = 0; i < kCopies; ++i) queue(i);
  ASSERT_TRUE(wait_until([&] { return memory_.held_copies() == 8; }));
  memory_.end_copy(0);
  EXPECT_TRUE(wait_until([&] { return is_done(0); }));
  EXPECT_TRUE(wait_until([&] { return memory_.held_copies() == 8; })) << "the next has begun";
  EXPECT_FALSE(is_done(1));
  EXPECT_FALSE(wait_until([&] { return memory_.held_copies() > 8; }, std::chrono::milliseconds(20)));
  memory_.release_copies();
  for (const auto& copy : copies_) copy->wait();
  EXPECT_TRUE(found_ == wanted_);
}

TEST_P(CopyThreadTest, AFailureIsThatOfItsJobAndOthersGoOn) {
  memory_.hold_copies();
  for (uint32_t i = 0; i < 3; ++i) queue(i);
  ASSERT_TRUE(wait_until([&] { return memory_.held_copies() == 3; }));
  memory_.end_copy(1, false);
  memory_.release_copies();
  for (uint32_t i = 0; i < 3; ++i) copies_[i]->wait();
  EXPECT_TRUE(is_done(0));
  EXPECT_EQ(copies_[1]->is_done().status().native(), 700);
  EXPECT_TRUE(is_done(2));
  memory_.break_copies();
  queue(3);
  copies_[3]->wait();
  EXPECT_EQ(copies_[3]->is_done().status().code(), Code::kSystem) << "it could not begin";
}

TEST_P(CopyThreadTest, AFailedCopyIsOverWhenItTouchesMemoryNoMore) {
  memory_.hold_copies();
  queue(0);
  ASSERT_TRUE(wait_until([&] { return memory_.held_copies() == 1; }));
  memory_.fail_copy(0);
  const auto is_over = [&] {
    const Result<bool> done = copies_[0]->is_done();
    return !done.is_ok() || *done;
  };
  EXPECT_FALSE(wait_until(is_over, std::chrono::milliseconds(100))) << "whoever is told may free the memory";
  memory_.release_copies();
  EXPECT_TRUE(wait_until(is_over));
  EXPECT_EQ(copies_[0]->is_done().status().native(), 700);
}

TEST_P(CopyThreadTest, ManyThreadsMayQueue) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        for (uint32_t i = t; i < kCopies; i += 4) queue(i);
        for (uint32_t i = t; i < kCopies; i += 4) copies_[i]->wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(found_ == wanted_);
}

TEST_P(CopyThreadTest, ADeviceThatIsNotThereFailsEveryCopy) {
  auto copier = std::move(*CopyThread::start(memory_, 7, GetParam()));
  copier->queue(*copies_[0], found_.data(), source_.device(), kBytes);
  copies_[0]->wait();
  EXPECT_EQ(copies_[0]->is_done().status().code(), Code::kInvalidArgument);
}

TEST_P(CopyThreadTest, WithoutWorkItSleeps) {
  queue(0);
  copies_[0]->wait();
  EXPECT_LT(idle_seconds(300), 0.003 + 0.002);
}

}  // namespace
}  // namespace tcpx::testing
