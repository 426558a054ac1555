// A process of the same host stands still, or may no longer do what it could when the connection was made.
#include <poll.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "tests/support/endpoint_processes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

// How often the thread that makes progress has gone to sleep so far.
size_t sleeps_of_progress_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "tcpx-progress") continue;
    std::ifstream status(task.path() / "status");
    constexpr const char* kKey = "voluntary_ctxt_switches:";
    while (std::getline(status, line)) {
      if (line.starts_with(kKey)) return std::stoul(line.substr(std::strlen(kKey)));
    }
  }
  ADD_FAILURE() << "no such thread";
  return 0;
}

class EndpointNearProcess : public EndpointProcesses {};
class EndpointNearProcessHidden : public EndpointProcesses {
 protected:
  EndpointNearProcessHidden() : EndpointProcesses(true) {}
};

// Frames that the peer's ring has no room for wait here, without a look every 50 us. Looks now and then are 20 ms apart at least.
TEST_F(EndpointNearProcessHidden, APeerThatStandsStillIsNotPolled) {
  peer_.stop();
  const std::string text(NotifyMsg::kMaxTextBytes, 't');
  ASSERT_TRUE(endpoint_->notify(conn_, {.name = "n", .msg = text}).is_ok());
  ::poll(nullptr, 0, 50);
  const auto begin = std::chrono::steady_clock::now();
  const size_t before = sleeps_of_progress_thread();
  ::poll(nullptr, 0, 300);
  const size_t sleeps = sleeps_of_progress_thread() - before;
  const auto passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(sleeps, static_cast<size_t>(passed / std::chrono::milliseconds(2)));
  peer_.go_on();
  expect_data_flows(peer_);
}

// Looks at links that have nothing to do, each of which ends a sleep: every 250 ms, and every 20 ms while operations wait.
TEST_F(EndpointNearProcess, LooksAreRareWhenNoOperationWaits) {
  const auto sleeps_in = [](std::chrono::milliseconds time, std::chrono::nanoseconds& passed) {
    const auto begin = std::chrono::steady_clock::now();
    const size_t before = sleeps_of_progress_thread();
    ::poll(nullptr, 0, static_cast<int>(time.count()));
    const size_t sleeps = sleeps_of_progress_thread() - before;
    passed = std::chrono::steady_clock::now() - begin;
    return sleeps;
  };
  std::chrono::nanoseconds passed{};
  ::poll(nullptr, 0, 50);
  const size_t idle = sleeps_in(std::chrono::seconds(1), passed);
  EXPECT_LT(idle, static_cast<size_t>(passed / std::chrono::milliseconds(60))) << "nothing waits";
  const LocalRange range = memory_.range(0, kShort);
  const auto waits = endpoint_->recv_async(conn_, {&range, 1});
  ASSERT_TRUE(waits.is_ok());
  const size_t busy = sleeps_in(std::chrono::seconds(1), passed);
  EXPECT_GT(busy, static_cast<size_t>(passed / std::chrono::milliseconds(120))) << "its deadline is looked at";
  ASSERT_EQ(peer_.ask(concat("send ", kShort)), "ok");
  EXPECT_TRUE(endpoint_->wait(*waits, kCallTime).is_ok());
}

TEST_F(EndpointNearProcess, APeerThatLosesTheRightToReadGoesOnThroughTheRing) {
  ASSERT_EQ(peer_.ask("forbid 0"), "ok");
  for (size_t i = 0; i < 3; ++i) {
    const LocalRange out = memory_.range(i * kBulk, kBulk), back = memory_.range(4 * kBulk, kBulk);
    const auto sent = std::span(memory_.bytes()).subspan(i * kBulk, kBulk),
               come = std::span(memory_.bytes()).subspan(4 * kBulk, kBulk);
    for (size_t at = 0; at < kBulk; ++at) sent[at] = static_cast<std::byte>(at * (i + 3) >> 2);
    std::fill(come.begin(), come.end(), std::byte{0});
    peer_.tell(concat("recv ", kBulk));
    ASSERT_TRUE(endpoint_->send(conn_, {&out, 1}).is_ok());
    ASSERT_EQ(peer_.answer(), "ok");
    const RemoteRange there{slot_, 0};
    ASSERT_TRUE(endpoint_->read(conn_, {&back, 1}, {&there, 1}).is_ok());
    EXPECT_TRUE(std::ranges::equal(sent, come)) << i;
  }
}

// It needs no turn of the other process, and none of its processor.
TEST_F(EndpointNearProcess, APeerThatStandsStillIsRead) {
  const LocalRange whole = memory_.range(0, kBulk), short_one = memory_.range(0, kShort);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(endpoint_->read(conn_, whole, {slot_}, {.timeout = kCallTime}).is_ok());
  const std::vector<std::byte> wanted(memory_.bytes().begin(), memory_.bytes().begin() + kBulk);
  ::poll(nullptr, 0, 50);  // its thread sleeps now
  peer_.stop();
  for (const LocalRange& range : {whole, short_one}) {
    std::fill(memory_.bytes().begin(), memory_.bytes().begin() + kBulk, std::byte{1});
    const Status status = endpoint_->read(conn_, range, {slot_}, {.timeout = std::chrono::milliseconds(2000)});
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(range.bytes), memory_.bytes().begin()));
  }
  peer_.go_on();
  expect_data_flows(peer_);
}

TEST_F(EndpointNearProcess, APeerThatStandsStillIsWritten) {
  const LocalRange whole = memory_.range(0, kBulk), back = memory_.range(kBulk, kBulk);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(endpoint_->write(conn_, whole, {slot_}, {.timeout = kCallTime}).is_ok());
  ::poll(nullptr, 0, 50);
  peer_.stop();
  constexpr size_t kPart = kBulk / 16;
  for (size_t i = 0; i < kPart; ++i) memory_.bytes()[i] = static_cast<std::byte>(i * 13 >> 3);
  const NotifyMsg notify{.name = "n", .msg = "m"};
  const Status written = endpoint_->write(conn_, memory_.range(0, kPart), {slot_, 100},
                                          {.timeout = std::chrono::milliseconds(2000), .notify = &notify});
  EXPECT_TRUE(written.is_ok()) << written.to_string();
  peer_.go_on();
  ASSERT_TRUE(endpoint_->read(conn_, back, {slot_}, {.timeout = kCallTime}).is_ok());
  EXPECT_EQ(std::memcmp(memory_.bytes().data(), memory_.bytes().data() + kBulk + 100, kPart), 0);
}

// Its number and its pidfd stay those of the peer.
TEST_F(EndpointNearProcess, APeerThatHasBecomeAnotherProgramIsGone) {
  const LocalRange whole = memory_.range(0, kBulk);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(endpoint_->read(conn_, whole, {slot_}, {.timeout = kCallTime}).is_ok());
  peer_.tell("become");
  Status status;
  EXPECT_TRUE(wait_until([&] {
    status = endpoint_->read(conn_, whole, {slot_}, {.timeout = kCallTime});
    return !status.is_ok();
  }));
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
}

}  // namespace
}  // namespace tcpx::testing
