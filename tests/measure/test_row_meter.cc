// The processes of two ends from the parent's side: its behaviour when an end dies, hangs or is not wanted any more; and
// the arithmetic of how long to measure.
#include "measure/row_meter.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(50);
constexpr Duration kLong = std::chrono::seconds(30);

TEST(EndPair, SaysHowItsEndsAre) {
  struct Case {
    const char* command;  // of a shell, for both ends; the number of the socket is $0
    bool stop;
    Duration limit;
    Code code;
    const char* said;
  };
  for (const Case& one :
       {Case{"head -c 1 <&$0 >/dev/null; exit 3", false, kLong, Code::kPeerGone, "ing end: ended with exit code 3"},
        Case{"head -c 1 <&$0 >/dev/null; kill -KILL $$", false, kLong, Code::kPeerGone, "was ended by signal 9"},
        Case{"exec tail -f /dev/null", false, kShort, Code::kTimeout, "both ends: no answer"},
        Case{"exec tail -f /dev/null", true, kLong, Code::kCancelled, "interrupted"}}) {
    const std::atomic<bool> stop = one.stop;
    const auto pair = EndPair::start({}, stop, Deadline::after(kLong), {"/bin/sh", "-c", one.command});
    ASSERT_TRUE(pair.is_ok()) << pair.status().to_string();
    const Status status = (*pair)->ask({}, one.limit).status();
    EXPECT_EQ(status.code(), one.code) << one.command;
    EXPECT_NE(status.to_string().find(one.said), std::string::npos) << status.to_string();
  }
}

TEST(EndPair, NoCommandLastsLongerThanThePair) {
  const std::atomic<bool> stop = false;
  const auto pair = EndPair::start({}, stop, Deadline::after(kShort), {"/bin/sh", "-c", "exec tail -f /dev/null"});
  ASSERT_TRUE(pair.is_ok()) << pair.status().to_string();
  const TimePoint begin = Clock::steady().now();
  EXPECT_EQ((*pair)->ask({}, kLong).status().code(), Code::kTimeout);
  EXPECT_LT(Clock::steady().now() - begin, kLong / 2);
}

// Also those that have nothing to measure themselves.
TEST(EndPair, CountsTheProcessorTimeOfBoth) {
  const std::atomic<bool> stop = false;
  const auto pair = EndPair::start({}, stop, Deadline::after(kLong), {"/bin/sh", "-c", "while :; do :; done"});
  ASSERT_TRUE(pair.is_ok()) << pair.status().to_string();
  EXPECT_TRUE(testing::wait_until([&] { return (*pair)->cpu_seconds() > 0.2; }));
  const auto idle = EndPair::start({}, stop, Deadline::after(kLong), {"/bin/sh", "-c", "exec tail -f /dev/null"});
  ASSERT_TRUE(idle.is_ok()) << idle.status().to_string();
  std::this_thread::sleep_for(kShort);
  EXPECT_LT((*idle)->cpu_seconds(), 0.2);
}

TEST(EndPair, SaysWhenThereIsNoSuchProgram) {
  const std::atomic<bool> stop = false;
  EXPECT_FALSE(EndPair::start({}, stop, Deadline::after(kLong), {"/no/such/program"}).is_ok());
}

TEST(Child, SeesTheOverridesAndTheRestOfTheEnvironment) {
  ASSERT_EQ(::setenv("TCPX_TEST_KEPT", "kept", 1), 0);
  ASSERT_EQ(::setenv("TCPX_TEST_CHANGED", "old", 1), 0);
  Result<Child> child = Child::start({"sh", "-c", "[ $TCPX_TEST_KEPT = kept ] && [ $TCPX_TEST_CHANGED = new ] && exit 42"},
                                     {{"TCPX_TEST_CHANGED", "new"}}, {});
  ASSERT_TRUE(child.is_ok()) << child.status().to_string();
  EXPECT_EQ(child->wait(), 42);
  EXPECT_FALSE(child->is_running());
}

TEST(Child, DoesNotOutliveItsOwner) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd read_end(ends[0]);
  {
    UniqueFd write_end(ends[1]);
    Result<Child> child = Child::start({"tail", "-f", "/dev/null"}, {}, {{write_end.get(), 1}});
    ASSERT_TRUE(child.is_ok());
  }
  char byte;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0);  // the last writer has gone
}

TEST(SocketFactors, MultiplyToTheNumberAndStayInRange) {
  for (const uint32_t sockets : {1u, 2u, 3u, 4u, 6u, 8u, 11u, 12u, 16u, 65u, 128u}) {
    const std::optional<SocketFactors> factors = factors_of(sockets);
    ASSERT_TRUE(factors) << sockets;
    EXPECT_EQ(factors->threads * factors->sockets_per_thread, sockets);
    EXPECT_LE(factors->threads, 16);
    EXPECT_LE(factors->sockets_per_thread, 8);
  }
  EXPECT_FALSE(factors_of(17));
  EXPECT_FALSE(factors_of(129));
}

TEST(NextCount, AimsAtTheWantedTime) {
  using std::chrono::milliseconds;
  EXPECT_EQ(next_count(10, milliseconds(10), milliseconds(40)), 40u);
  EXPECT_EQ(next_count(3, milliseconds(90), milliseconds(40)), 2u);
  EXPECT_EQ(next_count(1, milliseconds(500), milliseconds(40)), 1u);
  EXPECT_GT(next_count(1, Duration(0), milliseconds(40)), 1000u);
  EXPECT_LE(next_count(1, Duration(0), std::chrono::hours(1)), 10'000'000u);
}

}  // namespace
}  // namespace tcpx
