#include "net/plugin_closer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tests/support/expect_log.h"
#include "tests/support/process_state.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::allow_log;
using testing::wait_until;
using Flag = std::shared_ptr<std::atomic<bool>>;  // shared with threads that are left behind

constexpr PluginCloser::Limits kShort{
    .close = milliseconds(50), .close_when_stuck = milliseconds(5), .pause = milliseconds(1), .most_kept = 3};

TEST(PluginCloser, WhatReturnsIsAnswered) {
  PluginCloser closer("fake");
  EXPECT_TRUE(closer.close("closeSend", [] { return Status::ok(); }).is_ok());
  EXPECT_EQ(closer.close("closeSend", [] { return Status(Code::kPeerGone, "closeSend", "no"); }).code(), Code::kPeerGone);
  allow_log("it threw an exception: why");
  EXPECT_EQ(closer.close("closeSend", []() -> Status { throw std::runtime_error("why"); }).code(), Code::kPlugin);
}

TEST(PluginCloser, A7_WhatDoesNotReturnIsLeftBehindAndHoldsUpNothing) {
  allow_log("closeRecv: fake has not returned after");
  allow_log("closeRecv: fake has returned after");
  const size_t threads = testing::thread_count();
  const Flag go_on = std::make_shared<std::atomic<bool>>(false);
  {
    PluginCloser closer("fake", kShort);
    const auto hang = [go_on] {
      wait_until([&] { return go_on->load(); });
      return Status::ok();
    };
    EXPECT_EQ(closer.close("closeRecv", hang).code(), Code::kTimeout);
    EXPECT_EQ(closer.close("closeRecv", hang).code(), Code::kTimeout);
    EXPECT_TRUE(testing::logged("with 1 others"));
    EXPECT_EQ(closer.left_behind().closing_threads, 2u);
  }
  *go_on = true;
  EXPECT_TRUE(wait_until([&] { return testing::thread_count() == threads; }));
}

TEST(PluginCloserDeathTest, A7_TheProcessEndsAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    PluginCloser closer("fake", kShort);
    const Code code = closer.close("closeRecv", [] {
      wait_until([] { return false; });
      return Status::ok();
    }).code();
    std::exit(code == Code::kTimeout ? 0 : 1);
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(0), "closeRecv: fake has not returned after [0-9]+ ms");
}

TEST(PluginCloser, A4_WhatIsKeptIsAskedUntilItHasEndedAndThenForgotten) {
  const size_t threads = testing::thread_count();
  PluginCloser closer("fake", kShort);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> asked = 0;
    std::atomic<bool> may_end = false;
    const auto watched = std::make_shared<int>(0);
    for (int i = 0; i < 3; ++i) {
      closer.keep("a set-up", [&asked, &may_end, watched] {
        ++asked;
        return may_end.load();
      });
    }
    EXPECT_TRUE(wait_until([&] { return asked > 10; }));
    EXPECT_EQ(closer.left_behind().set_ups, 3u);
    allow_log("3 connections that were given up have not ended");
    EXPECT_EQ(closer.room_for("listen").code(), Code::kExhausted);
    may_end = true;
    EXPECT_TRUE(wait_until([&] { return closer.left_behind().set_ups == 0; }));
    EXPECT_EQ(asked.exchange(0) > 0 && watched.use_count() == 1, true);
    EXPECT_TRUE(closer.room_for("listen").is_ok());
    EXPECT_TRUE(wait_until([&] { return testing::thread_count() == threads; })) << "no thread without work";
    EXPECT_EQ(asked, 0) << "never again";
  }
}

TEST(PluginCloser, ItsEndWaitsForAQuestionButNotForTheAnswerYes) {
  std::atomic<bool> asking = false;
  {
    PluginCloser closer("fake", kShort);
    closer.keep("a set-up", [&] {
      asking = true;
      return false;
    });
    EXPECT_TRUE(wait_until([&] { return asking.load(); }));
  }
  SUCCEED();
}

}  // namespace
}  // namespace tcpx
