// Progress made by the thread, or by the application where there is none, and callers that get in between.
#include "endpoint/progress_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

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

// The caller begins an operation in place of a thread that rests.
TEST_P(ProgressEngineTest, AnOperationBeginsAtOnceWhileItRests) {
  if (!GetParam()) GTEST_SKIP() << "only where there is a thread";
  bool begun = false;
  const Deadline deadline = Deadline::after(kTestDeadline);
  while (!begun && !deadline.expired()) {
    engine_.wake();
    for (int i = 0; i < 1000 && !engine_.naps(); ++i) (void)engine_.look();
    if (!engine_.naps()) continue;
    const OperationId id = submit();
    begun = operations_.poll(id).state == OperationState::kFailed;
    ASSERT_TRUE(begun || ends(id));
  }
  EXPECT_TRUE(begun);
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

}  // namespace
}  // namespace tcpx::testing
