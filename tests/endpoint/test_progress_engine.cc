// Progress made by the thread, or by the application where there is none, and callers that get in between.
#include "endpoint/progress_engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "tests/support/ok.h"
#include "tests/support/one_core.h"
#include "tests/support/threads.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

/// @param: with the thread
class ProgressEngineTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { ASSERT_TRUE(engine_.start().is_ok()); }
  /// For a connection that is not there, so that it ends as soon as it is taken.
  OperationId submit() {
    Operation& operation = *operations_.acquire().value();
    const OperationId id = operation.id;
    engine_.submit(operation);
    return id;
  }
  bool ends(OperationId id) {
    Backoff backoff;
    const bool ended = wait_until([&] {
      engine_.help(backoff);
      return operations_.wait(id, Deadline(TimePoint{}), Duration::zero());
    });
    return ended && operations_.poll(id).status.code() == Code::kPeerGone;
  }

  const EndpointConfig config_{.progress_thread = GetParam()};
  const std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  OperationTable operations_{4096};
  ProgressEngine engine_{*memory_, config_, operations_, [](ConnId) {}};
};

INSTANTIATE_TEST_SUITE_P(, ProgressEngineTest, ::testing::Bool(),
                         [](const auto& driver) { return driver.param ? "WithTheThread" : "WithoutIt"; });

TEST_P(ProgressEngineTest, TakesWhatIsSubmittedAfterItHasSlept) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(ends(submit()));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than an idle thread polls
  }
}

TEST_P(ProgressEngineTest, OneWhoHasTheLockFindsAllThatWasSubmittedBefore) {
  std::vector<OperationId> ids;
  {
    const ProgressEngine::Lock lock(engine_);
    for (int i = 0; i < 1000; ++i) ids.push_back(submit());
    for (const OperationId id : ids) EXPECT_EQ(operations_.poll(id).state, OperationState::kPending);
    engine_.drain();
  }
  for (const OperationId id : ids) EXPECT_EQ(operations_.poll(id).status.code(), Code::kPeerGone);
}

// An application that looks again and again makes the turns, until it stops.
TEST_P(ProgressEngineTest, RestsWhileTheApplicationLooks) {
  const auto looks_until = [&](bool naps) {
    return wait_until([&] {
      for (int i = 0; naps && i < 20; ++i) EXPECT_FALSE(engine_.look());
      if (naps) engine_.wake();  // when it sleeps again, it sees that it is looked for
      for (int i = 0; !naps && i < 1000; ++i) {
        if (engine_.naps()) return false;  // it would between two naps, too
        std::this_thread::yield();
      }
      return engine_.naps() == naps;
    });
  };
  if (!GetParam()) {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(engine_.look()) << "it makes progress only when it is asked to";
    EXPECT_FALSE(engine_.naps());
    return;
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(looks_until(true));
    EXPECT_TRUE(looks_until(false));
  }
  EXPECT_TRUE(ends(submit()));
}

TEST_P(ProgressEngineTest, ANotificationForNobodyIsDropped) {
  const auto face = std::make_shared<LinkFace>();
  engine_.notify(std::make_unique<Notification>(ConnId{1}, 1, NotifyMsg{}, face));
  Backoff backoff;
  EXPECT_TRUE(wait_until([&] {
    engine_.help(backoff);
    return face->notifications == 0;
  }));
}

// The end leaves nothing pending, whatever came last.
TEST_P(ProgressEngineTest, TheEndTakesWhatIsLeft) {
  std::atomic<bool> go{false};
  std::vector<OperationId> ids(200);
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    for (OperationId& id : ids) id = submit();
  });
  go = true;
  EXPECT_TRUE(engine_.close_links()) << "there is none";
  other.join();
  engine_.stop();
  for (const OperationId id : ids) EXPECT_EQ(operations_.poll(id).status.code(), Code::kPeerGone);
}

/// Sockets of a plugin.
class FakeIo final : public IoLoop {
 public:
  ~FakeIo() override {
    if (ended) ended(attending);
  }
  void come() {
    ++found_;
    const uint64_t one = 1;
    ASSERT_EQ(::write(event_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  int fd() const override { return event_.get(); }
  void attend() override { ++attending; }
  bool turn(bool readable) override {
    EXPECT_GT(attending, 0);
    if (begun) begun();
    uint64_t count = 0;
    if (flows) return true;
    if (!readable || ::read(event_.get(), &count, sizeof count) < 0) return false;
    while (found_ > 0) {
      --found_;
      moved_on = std::this_thread::get_id();
      if (told) told();
      ++moved;
    }
    return true;
  }
  void leave() override { --attending; }

  std::function<void()> begun, told;
  std::function<void(int attending)> ended;
  std::atomic<bool> flows = false;  ///< each turn moves something
  std::atomic<int> attending = 0, moved = 0;
  std::atomic<std::thread::id> moved_on;

 private:
  const UniqueFd event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<int> found_ = 0;
};

class EngineWithIo : public ::testing::Test {
 protected:
  explicit EngineWithIo(uint32_t cores = 0) : config_{.num_cpus = cores} {
    auto io = std::make_unique<FakeIo>();
    io_ = io.get();
    EXPECT_OK(engine_.start(std::move(io)));
  }
  bool naps() {
    return wait_until([&] {
      engine_.wake();  // it may sleep without knowing that it is looked for
      for (int i = 0; i < 20 && !engine_.naps(); ++i) (void)engine_.look();
      return engine_.naps();
    });
  }

  /// Submits an operation of a connection that is not there. @return true: this thread has begun it
  bool begins_here() {
    bool submits = false, here = false;
    set_begun([&, self = std::this_thread::get_id()] {
      if (std::this_thread::get_id() == self && submits) here = true;
    });
    Operation& operation = *operations_.acquire().value();
    const OperationId id = operation.id;
    submits = true;
    engine_.submit(operation);
    submits = false;
    EXPECT_TRUE(operations_.wait(id, soon(), Duration::zero()));
    EXPECT_EQ(operations_.poll(id).status.code(), Code::kPeerGone);
    set_begun(nullptr);
    return here;
  }
  void set_begun(std::function<void()> begun) {
    const ProgressEngine::Lock lock(engine_);  // the progress thread may be making a turn
    io_->begun = std::move(begun);
  }

  const EndpointConfig config_;
  const std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  OperationTable operations_{16};
  ProgressEngine engine_{*memory_, config_, operations_, [](ConnId) {}};
  FakeIo* io_ = nullptr;
};

TEST_F(EngineWithIo, TheProgressThreadMovesBytesWhenNobodyLooks) {
  for (int i = 1; i <= 100; ++i) {
    io_->come();
    ASSERT_TRUE(wait_until([&] { return io_->moved == i; }));
    EXPECT_NE(io_->moved_on.load(), std::this_thread::get_id());
  }
  EXPECT_TRUE(wait_until([&] { return io_->attending == 0; })) << "it sleeps";
}

TEST_F(EngineWithIo, WhoeverLooksMovesThem) {
  const auto self = std::this_thread::get_id();
  bool here = false;
  // The progress thread looks, too, when it has napped.
  for (int i = 1; i <= 1000 && !here; ++i) {
    ASSERT_TRUE(naps());
    io_->come();
    ASSERT_TRUE(wait_until([&] { return engine_.look() || io_->moved == i; }));
    ASSERT_TRUE(wait_until([&] { return io_->moved == i; }));
    here = io_->moved_on.load() == self;
  }
  EXPECT_TRUE(here);
}

TEST_F(EngineWithIo, ALookIsNoPauseHoweverLongItTakes) {
  bool goes_on = false;
  io_->told = [&, self = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != self || !engine_.naps()) return;
    engine_.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than a nap
    goes_on = engine_.naps();
  };
  EXPECT_TRUE(wait_until([&] {
    if (!naps()) return true;
    const int moved = io_->moved;
    io_->come();
    while (io_->moved == moved) (void)engine_.look();
    return goes_on;
  }));
  EXPECT_TRUE(goes_on);
}

TEST_F(EngineWithIo, TheCallerBeginsAnOperationInPlaceOfAThreadThatRests) {
  EXPECT_TRUE(wait_until([&] { return naps() && begins_here(); }));
}

// It makes turns only for the connections that it names.
TEST_F(EngineWithIo, WhoOnlyNotifiesDoesNotLook) {
  const auto face = std::make_shared<LinkFace>();
  bool notifies = false, wakes = false;
  const auto begun = [&, self = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == self && notifies && engine_.naps()) wakes = wait_until([&] { return !engine_.naps(); });
  };
  set_begun(begun);
  EXPECT_TRUE(wait_until([&] {
    if (!naps()) return true;
    notifies = true;
    engine_.notify(std::make_unique<Notification>(ConnId{1}, 1, NotifyMsg{}, face));
    notifies = false;
    return wakes;
  }));
  EXPECT_TRUE(wakes);
}

class EngineOnFewCores : public EngineWithIo {
 protected:
  EngineOnFewCores() : EngineWithIo(2) {}
};

TEST_F(EngineOnFewCores, TheProgressThreadLeavesAStreamOfBytesToWhoLooks) {
  io_->flows = true;
  EXPECT_TRUE(naps());
  io_->flows = false;
}

// Nobody has looked, so that thread sleeps for long, or until it is woken.
TEST_F(EngineOnFewCores, TheCallerBeginsAnOperationWhileTheProgressThreadHasNothingToDo) {
  EXPECT_TRUE(wait_until([&] { return begins_here(); }));
}

// They wait for the peer, so they are no burst that the progress thread should take.
TEST_F(EngineOnFewCores, PostedReceivesKeepNobodyFromBeginning) {
  Operation& receive = *operations_.acquire(OperationKind::kRecv).value();
  EXPECT_TRUE(wait_until([&] { return begins_here(); }));
  Operation& write = *operations_.acquire(OperationKind::kWrite).value();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(begins_here()) << "after a write that has not ended";
  operations_.abandon(write);
  EXPECT_TRUE(wait_until([&] { return begins_here(); }));
  operations_.abandon(receive);
}

TEST_F(EngineOnFewCores, WhoWaitsLooksForAWhile) {
  const auto self = std::this_thread::get_id();
  const bool looked = wait_until([&] {
    if (!naps()) return false;
    const int moved = io_->moved;
    io_->come();
    const ProgressEngine::Waiter waiter(
        engine_, [&] { return io_->moved == moved; }, soon());
    EXPECT_TRUE(wait_until([&] { return io_->moved != moved; }));
    return io_->moved_on.load() == self;
  });
  if (!looked && engine_.is_crowded()) GTEST_SKIP() << "other threads want the cores all the time, so it sleeps at once";
  ASSERT_TRUE(looked) << "the bytes have come by the progress thread each time";
  ASSERT_TRUE(naps());
  const ProgressEngine::Waiter waiter(
      engine_, [] { return true; }, soon());
  EXPECT_TRUE(wait_until([&] { return !engine_.naps(); })) << "nobody makes turns";
}

TEST_F(EngineOnFewCores, OneOfSeveralWhoWaitLooks) {
  EXPECT_TRUE(wait_until([&] {
    int asked = 0;
    std::optional<ProgressEngine::Waiter> second;
    const auto waits = [&] {
      if (!second)
        second.emplace(
            engine_, [&] { return ++asked > 0; }, soon());
      return false;
    };
    const ProgressEngine::Waiter first(engine_, waits, soon());
    return asked == 1;  // only whether it has to wait at all
  }));
}

// It would get the core back only after the other thread's slice, each time; who sleeps is woken on time.
TEST_F(EngineOnFewCores, WhoWaitsBesideABusyThreadSleepsAtOnce) {
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    run_on_first_core();
    while (!ends) {
    }
  });
  run_together(1, [&](size_t) {
    ASSERT_NO_FATAL_FAILURE(run_on_first_core());
    EXPECT_TRUE(wait_until([&] {
      int asked = 0;
      const ProgressEngine::Waiter waiter(
          engine_, [&] { return ++asked > 0; }, soon());
      return asked == 1;  // only whether it has to wait any longer
    }));
  });
  ends = true;
  busy.join();
}

// One such case at a time on a machine: it has two threads that never sleep, and on few cores those of two cases crowd each other out.
class EngineOnManyCores : public EngineWithIo {
 protected:
  EngineOnManyCores() : EngineWithIo(16) {
    EXPECT_TRUE(alone_) << path_;
    EXPECT_EQ(::flock(alone_.get(), LOCK_EX), 0);
  }
  /// Looks until the progress thread leaves the turns to this one. It does not sleep meanwhile.
  bool watches() {
    return wait_until([&] {
      engine_.wake();
      // For some milliseconds: on a busy machine that thread may wait for a core.
      for (int i = 0; i < 50000 && !engine_.rests(); ++i) (void)engine_.look();
      return engine_.rests() && !engine_.naps();
    });
  }

 private:
  const std::string path_ = ::testing::TempDir() + "tcpx_engine_on_many_cores";
  const UniqueFd alone_{::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)};
};

TEST_F(EngineOnManyCores, TheProgressThreadLeavesTheTurnsToWhoLooksWhileThatFindsSomething) {
  io_->flows = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(watches());
    EXPECT_TRUE(wait_until([&] { return !engine_.rests(); })) << "nobody looks";
  }
  // Longer than looks may find nothing.
  EXPECT_TRUE(wait_until([&] {
    if (!watches()) return true;
    const auto until = Deadline::after(std::chrono::milliseconds(1));
    while (engine_.rests() && !until.expired()) EXPECT_TRUE(engine_.look() || !engine_.rests());
    return until.expired();
  }));
}

TEST_F(EngineOnManyCores, TheProgressThreadWorksBesideWhoHasBegunSeveralOperations) {
  io_->flows = true;  // so that it never sleeps
  std::array<Operation*, 2> several{};
  for (Operation*& one : several) one = operations_.acquire(OperationKind::kWrite).value();
  const auto until = Deadline::after(std::chrono::milliseconds(20));
  while (!until.expired()) {
    EXPECT_FALSE(engine_.look());
    EXPECT_FALSE(engine_.rests());
  }
  operations_.abandon(*several[0]);
  EXPECT_TRUE(watches());
  operations_.abandon(*several[1]);
}

// The bytes that a thread moves may be those for which it waits itself.
TEST_F(EngineWithIo, WhatItsOwnTurnTellsNeedsNoWaking) {
  std::atomic<int> told = 0;
  io_->told = [&] {
    engine_.tell();
    ++told;
  };
  for (int i = 1; i <= 100; ++i) {
    io_->come();
    ASSERT_TRUE(wait_until([&] { return told == i; }));
    ASSERT_TRUE(wait_until([&] { return io_->attending == 0; })) << "it keeps itself awake";
  }
}

TEST_F(EngineWithIo, TheEndGivesTheSocketsBackUnattended) {
  std::optional<int> attending;
  io_->ended = [&](int count) { attending = count; };
  io_->come();
  ASSERT_TRUE(wait_until([&] { return io_->moved == 1; }));
  engine_.stop();
  EXPECT_EQ(attending, 0);
}

}  // namespace
}  // namespace tcpx::testing
