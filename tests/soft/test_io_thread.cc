// The event loops that all connections share.
#include "net/soft/io_thread.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <deque>
#include <optional>
#include <thread>

#include "tests/support/count_allocations.h"
#include "tests/support/io_blocker.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using namespace soft;

struct Counter final : FrugalHandler {
  Next on_ready() override {
    const int run = ++runs;
    return run <= again_until ? Next::kAgain : Next::kWait;
  }
  std::atomic<int> runs = 0;
  int again_until = 0;
};

/// Makes the turns of a borrowed loop on a thread of its own, which sleeps on the loop's descriptor.
class Driver {
 public:
  explicit Driver(const std::shared_ptr<IoPool>& pool) : loop_(IoPool::borrow(pool)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Driver() {
    stop_ = true;
    thread_.join();
  }
  std::thread::id id() const { return thread_.get_id(); }

 private:
  void run() {
    while (!stop_) {
      pollfd ready{.fd = loop_->fd(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) == 0 && loop_->fd() >= 0) continue;
      loop_->attend();
      while (loop_->turn(true)) {
      }
      loop_->leave();
    }
  }

  const std::unique_ptr<IoLoop> loop_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

enum class Served { kSleeps, kSpins, kBorrowed, kBorrowedTwice };
constexpr std::array kNames = {"sleeps", "spins", "borrowed", "borrowed_twice"};

class IoThreadTest : public ::testing::TestWithParam<Served> {
 protected:
  void SetUp() override {
    if (GetParam() == Served::kBorrowed) drivers_.resize(1);
    if (GetParam() == Served::kBorrowedTwice) drivers_.resize(2);
    for (auto& driver : drivers_) driver.emplace(pool_);
  }

  const std::shared_ptr<IoPool> pool_ = *IoPool::create(1, std::chrono::microseconds(GetParam() == Served::kSpins ? 50 : 0));
  std::deque<std::optional<Driver>> drivers_;
};
INSTANTIATE_TEST_SUITE_P(, IoThreadTest,
                         ::testing::Values(Served::kSleeps, Served::kSpins, Served::kBorrowed, Served::kBorrowedTwice),
                         [](const auto& served) { return kNames[static_cast<size_t>(served.param)]; });

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
  struct Ponger final : FrugalHandler {
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
  struct Remover final : FrugalHandler {
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
struct Busy final : FrugalHandler {
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
  struct Pace final : FrugalHandler {  // on the thread of `busy`, so what it reads there is exact
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

/// Which thread called it last.
struct Witness final : FrugalHandler {
  Next on_ready() override {
    called_on = std::this_thread::get_id();
    ++runs;
    return Next::kWait;
  }
  std::atomic<std::thread::id> called_on;
  std::atomic<int> runs = 0;
};

bool is_readable(const IoLoop& loop) {
  pollfd ready{.fd = loop.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

class BorrowedIo : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(pool_->at(0).add(fd_.get(), witness_, registration_)); }
  void TearDown() override { registration_.remove(); }
  void turn(IoLoop& loop) const {
    loop.attend();
    while (loop.turn(true)) {
    }
    loop.leave();
  }
  /// Until the thread, which may be in a turn of its own at first, makes none.
  void rest(IoLoop& loop) {
    EXPECT_TRUE(wait_until([&] { return !runs_by_itself(); }));
    turn(loop);
  }
  bool runs_by_itself() {
    const int before = witness_.runs;
    registration_.kick();
    return wait_until([&] { return witness_.runs > before; }, std::chrono::milliseconds(100));
  }

  const std::shared_ptr<IoPool> pool_ = *IoPool::create(1);
  const UniqueFd fd_ = quiet_fd();
  Witness witness_;
  IoRegistration registration_;
};

TEST_F(BorrowedIo, HandlersRunInTurnsOfTheBorrowerUntilItIsGivenBack) {
  ASSERT_TRUE(wait_until([&] { return witness_.runs == 1; }));
  auto loop = IoPool::borrow(pool_);
  rest(*loop);
  registration_.kick();
  EXPECT_TRUE(is_readable(*loop));
  int before = witness_.runs;
  turn(*loop);
  EXPECT_EQ(witness_.runs, before + 1);
  EXPECT_EQ(witness_.called_on.load(), std::this_thread::get_id());
  EXPECT_FALSE(is_readable(*loop));

  before = witness_.runs;
  registration_.kick();  // nobody looks at it before the loop is given back
  loop.reset();
  EXPECT_TRUE(wait_until([&] { return witness_.runs > before; }));
  EXPECT_NE(witness_.called_on.load(), std::this_thread::get_id());
  EXPECT_TRUE(runs_by_itself());
}

TEST_F(BorrowedIo, WhoAttendsNeedsNoWaking) {
  const auto loop = IoPool::borrow(pool_);
  rest(*loop);
  loop->attend();
  registration_.kick();
  EXPECT_FALSE(is_readable(*loop)) << "a kick while somebody attends";
  loop->leave();
  EXPECT_TRUE(is_readable(*loop)) << "it left without a turn";
  turn(*loop);
  EXPECT_FALSE(is_readable(*loop));
}

// A borrowed loop that rests, and a handler of it that says again once.
class BorrowedIoAgain : public BorrowedIo {
 protected:
  void SetUp() override {
    BorrowedIo::SetUp();
    counter_.again_until = 1;
    rest(*loop_);
    ASSERT_OK(pool_->at(0).add(counted_fd_.get(), counter_, counted_));
  }

  const std::unique_ptr<IoLoop> loop_ = IoPool::borrow(pool_);
  const UniqueFd counted_fd_ = quiet_fd();
  Counter counter_;
  IoRegistration counted_;
};

TEST_F(BorrowedIoAgain, IsSeenByWhoeverLooksNext) {
  loop_->attend();
  EXPECT_TRUE(loop_->turn(true));
  loop_->leave();
  EXPECT_EQ(counter_.runs, 1);
  EXPECT_TRUE(is_readable(*loop_));
  turn(*loop_);
  EXPECT_EQ(counter_.runs, 2);
}

// A kick, or an again, that there is no memory to note is seen nevertheless.
TEST_F(BorrowedIoAgain, NeedsNoMemory) {
  {
    const NoMemory none;
    turn(*loop_);
  }
  EXPECT_EQ(counter_.runs, 2) << "it has said again";
  {
    const NoMemory none;
    while (!NoMemory::refused()) registration_.kick();
    counted_.kick();
    turn(*loop_);
  }
  EXPECT_EQ(counter_.runs, 3);
}

// If each watched them, an event would wake all, and all but one would find that somebody makes the turn, again and again.
TEST_F(BorrowedIo, OneOfSeveralWatchesAndAllMakeTurns) {
  auto first = IoPool::borrow(pool_);
  const auto second = IoPool::borrow(pool_);
  rest(*first);
  EXPECT_EQ(second->fd(), -1);
  for (IoLoop* const loop : {second.get(), first.get()}) {
    const int before = witness_.runs;
    registration_.kick();
    turn(*loop);
    EXPECT_EQ(witness_.runs, before + 1);
  }
  second->attend();
  registration_.kick();
  EXPECT_FALSE(is_readable(*first));
  second->leave();
  EXPECT_TRUE(is_readable(*first)) << "what the other one has left";
  first.reset();
  EXPECT_TRUE(runs_by_itself());
  const auto third = IoPool::borrow(pool_);
  EXPECT_NE(third->fd(), -1);
  rest(*third);
  EXPECT_FALSE(runs_by_itself());
}

TEST_F(BorrowedIo, OneTurnAtATime) {
  const auto loop = IoPool::borrow(pool_);
  rest(*loop);
  Blocker blocker;
  ASSERT_OK(pool_->at(0).add(blocker.fd.get(), blocker, blocker.registration));
  std::thread other([&] { turn(*loop); });
  ASSERT_TRUE(wait_until([&] { return blocker.entered.load(); }));
  registration_.kick();
  const int before = witness_.runs;
  EXPECT_FALSE(loop->turn(true)) << "while another thread makes one";
  EXPECT_EQ(witness_.runs, before);
  blocker.release();
  other.join();
  EXPECT_GT(witness_.runs, before);
}

TEST_F(BorrowedIo, OfSeveralThreadsNothingIsLent) {
  EXPECT_EQ(IoPool::borrow(*IoPool::create(2)), nullptr);
}

}  // namespace
}  // namespace tcpx::testing
