// The event loops that all connections share.
#include "net/soft/io_thread.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/io_blocker.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using namespace soft;

struct Counter final : IoHandler {
  Next on_ready() override {
    const int run = ++runs;
    return run <= again_until ? Next::kAgain : Next::kWait;
  }
  std::atomic<int> runs = 0;
  int again_until = 0;
};

class IoThreadTest : public ::testing::TestWithParam<std::chrono::microseconds> {
 protected:
  const std::shared_ptr<IoPool> pool_ = *IoPool::create(1, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Spin, IoThreadTest, ::testing::Values(std::chrono::microseconds(0), std::chrono::microseconds(50)),
                         [](const auto& spin) { return spin.param.count() == 0 ? "sleeps" : "spins"; });

TEST_P(IoThreadTest, AHandlerRunsOnceWhenAddedAndUntilItWaits) {
  const UniqueFd fd = quiet_fd();
  Counter counter;
  counter.again_until = 5;
  IoRegistration registration;
  ASSERT_TRUE(pool_->at(0).add(fd.get(), counter, registration).is_ok());
  EXPECT_TRUE(wait_until([&] { return counter.runs == 6; }));
  registration.remove();
  registration.kick();
  Counter last;
  IoRegistration later;
  ASSERT_TRUE(pool_->at(0).add(fd.get(), last, later).is_ok());
  EXPECT_TRUE(wait_until([&] { return last.runs == 1; }));
  EXPECT_EQ(counter.runs, 6) << "ran after it was removed";
}

TEST_P(IoThreadTest, EveryKickIsSeen) {
  struct Ponger final : IoHandler {
    Next on_ready() override {
      answered.store(asked.load());
      return Next::kWait;
    }
    std::atomic<int> asked = 0, answered = 0;
  };
  constexpr int kThreads = 3, kKicks = 5000;
  std::vector<std::thread> kickers;
  for (int i = 0; i < kThreads; ++i) {
    kickers.emplace_back([&] {
      const UniqueFd fd = quiet_fd();
      Ponger ponger;
      IoRegistration registration;
      ASSERT_TRUE(pool_->at(0).add(fd.get(), ponger, registration).is_ok());
      for (int kick = 1; kick <= kKicks; ++kick) {
        ponger.asked = kick;
        registration.kick();
        ASSERT_TRUE(wait_until([&] { return ponger.answered == kick; })) << "kick " << kick << " was lost";
      }
    });
  }
  for (std::thread& kicker : kickers) kicker.join();
}

TEST_P(IoThreadTest, RemovingWaitsForItsOwnHandlerAndForNoOther) {
  const UniqueFd held_fd = quiet_fd(), other_fd = quiet_fd(), late_fd = quiet_fd();
  Blocker held;
  Counter other, late;
  IoRegistration of_held, of_other, of_late;
  ASSERT_TRUE(pool_->at(0).add(other_fd.get(), other, of_other).is_ok());
  ASSERT_TRUE(pool_->at(0).add(held_fd.get(), held, of_held).is_ok());
  ASSERT_TRUE(wait_until([&] { return held.entered.load(); }));
  ASSERT_TRUE(pool_->at(0).add(late_fd.get(), late, of_late).is_ok()) << "must not wait for the handler that is held";
  of_other.remove();
  of_late.remove();
  std::atomic<bool> removed = false;
  std::thread remover([&] {
    of_held.remove();
    removed = true;
  });
  EXPECT_FALSE(wait_until([&] { return removed.load(); }, std::chrono::milliseconds(50))) << "while its handler runs";
  held.release();
  remover.join();
  EXPECT_EQ(late.runs, 0);
}

TEST_P(IoThreadTest, AHandlerMayRemoveItselfAndOthersOfItsThread) {
  struct Remover final : IoHandler {
    Next on_ready() override {
      other->remove();
      own->remove();
      done = true;
      return Next::kAgain;
    }
    IoRegistration *own = nullptr, *other = nullptr;
    std::atomic<bool> done = false;
  };
  const UniqueFd fd = quiet_fd(), other_fd = quiet_fd();
  Counter other;
  IoRegistration registration, of_other;
  Remover remover;
  remover.own = &registration;
  remover.other = &of_other;
  ASSERT_TRUE(pool_->at(0).add(other_fd.get(), other, of_other).is_ok());
  ASSERT_TRUE(pool_->at(0).add(fd.get(), remover, registration).is_ok());
  EXPECT_TRUE(wait_until([&] { return remover.done.load(); }));
}

/// Always has more to do, until stopped.
struct Busy final : IoHandler {
  Next on_ready() override {
    ++runs;
    return stop ? Next::kWait : Next::kAgain;
  }
  std::atomic<int> runs = 0;
  std::atomic<bool> stop = false;
};

TEST_P(IoThreadTest, WhoSaysAgainIsCalledAgainAndOthersInBetween) {
  const UniqueFd fd = quiet_fd(), other_fd = quiet_fd();
  Busy busy;
  Counter other;
  IoRegistration registration, of_other;
  ASSERT_TRUE(pool_->at(0).add(fd.get(), busy, registration).is_ok());
  ASSERT_TRUE(pool_->at(0).add(other_fd.get(), other, of_other).is_ok());
  ASSERT_TRUE(wait_until([&] { return busy.runs > 100; }));
  for (int i = 0; i < 10; ++i) {
    const int before = other.runs;
    of_other.kick();
    EXPECT_TRUE(wait_until([&] { return other.runs > before; })) << "held up by the busy one";
  }
  registration.remove();
  const int runs = busy.runs;
  EXPECT_FALSE(wait_until([&] { return busy.runs != runs; }, std::chrono::milliseconds(50))) << "called after it was removed";
}

TEST_P(IoThreadTest, SayingAgainManyTimesIsOneCallPerRound) {
  struct Pace final : IoHandler {  // on the thread of `busy`, so what it reads there is exact
    Next on_ready() override {
      ++runs;
      if (runs == 10) before = busy->runs;
      if (runs == 1010) after = busy->runs;
      return runs < 1010 ? Next::kAgain : Next::kWait;
    }
    const Busy* busy = nullptr;
    std::atomic<int> runs = 0;
    int before = 0, after = 0;
  };
  const UniqueFd fd = quiet_fd(), pace_fd = quiet_fd();
  Busy busy;
  Pace pace;
  pace.busy = &busy;
  IoRegistration registration, of_pace;
  ASSERT_TRUE(pool_->at(0).add(fd.get(), busy, registration).is_ok());
  for (int i = 0; i < 100; ++i) {  // each makes the handler run once more
    const int before = busy.runs;
    registration.kick();
    ASSERT_TRUE(wait_until([&] { return busy.runs > before + 1; }));
  }
  ASSERT_TRUE(pool_->at(0).add(pace_fd.get(), pace, of_pace).is_ok());
  ASSERT_TRUE(wait_until([&] { return pace.runs == 1010; }));
  of_pace.remove();  // waits for the call
  EXPECT_GE(pace.after - pace.before, 999);
  EXPECT_LE(pace.after - pace.before, 1001) << "kicks have piled up";
}

TEST_P(IoThreadTest, WithoutWorkItSleeps) {
  const UniqueFd fd = quiet_fd();
  Counter counter;
  IoRegistration registration;
  ASSERT_TRUE(pool_->at(0).add(fd.get(), counter, registration).is_ok());
  ASSERT_TRUE(wait_until([&] { return counter.runs == 1; }));
  constexpr int kMilliseconds = 300;
  EXPECT_LT(idle_seconds(kMilliseconds), 0.01 * kMilliseconds / 1000 + 0.002);
}

}  // namespace
}  // namespace tcpx::testing
