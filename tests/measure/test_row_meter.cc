// The processes of two ends from the parent's side: its behaviour when an end dies, hangs or is not wanted any more; and
// the arithmetic of how long to measure.
#include "measure/row_meter.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tcpx {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(50);
constexpr Duration kLong = std::chrono::seconds(30);

/// Two ends that are a shell command, the number of their socket being $0.
std::unique_ptr<EndPair> shells(const std::string& command, const std::atomic<bool>& stop,
                                const EnvironmentOverrides& overrides = {}) {
  Result<std::unique_ptr<EndPair>> pair = EndPair::start(overrides, stop, {"/bin/sh", "-c", command});
  EXPECT_TRUE(pair.is_ok()) << pair.status().to_string();
  return std::move(pair).value();
}

TEST(EndPair, SaysWhichEndDiedAndHow) {
  const std::atomic<bool> stop = false;
  const auto pair = shells("head -c 1 <&$0 >/dev/null; exit 3", stop);
  const Status status = pair->ask({}, kLong).status();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_NE(status.to_string().find("ing end: ended with exit code 3"), std::string::npos) << status.to_string();
}

TEST(EndPair, NamesTheSignal) {
  const std::atomic<bool> stop = false;
  const auto pair = shells("head -c 1 <&$0 >/dev/null; kill -KILL $$", stop);
  const Status status = pair->ask({}, kLong).status();
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_NE(status.to_string().find("was ended by signal 9"), std::string::npos) << status.to_string();
}

TEST(EndPair, GivesUpOnEndsThatHang) {
  const std::atomic<bool> stop = false;
  const auto pair = shells("exec tail -f /dev/null", stop);
  const Status status = pair->ask({}, kShort).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.to_string().find("both ends: no answer"), std::string::npos) << status.to_string();
}

TEST(EndPair, StopsWaitingWhenAskedTo) {
  const std::atomic<bool> stop = true;
  const auto pair = shells("exec tail -f /dev/null", stop);
  EXPECT_EQ(pair->ask({}, kLong).status().code(), Code::kCancelled);
}

TEST(EndPair, SaysWhenThereIsNoSuchProgram) {
  const std::atomic<bool> stop = false;
  EXPECT_FALSE(EndPair::start({}, stop, {"/no/such/program"}).is_ok());
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
