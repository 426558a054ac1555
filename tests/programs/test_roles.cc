// The life of an end of a program, and what its peer learns of it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <new>
#include <thread>

#include "base/unique_fd.h"
#include "programs/roles.h"

namespace tcpx::programs {
namespace {

constexpr Duration kLimit = std::chrono::seconds(20);

/// Does with its peer whatever it is told to.
class ScriptedEnd final : public ProgramEnd {
 public:
  using Run = std::function<Status(BootstrapChannel& channel)>;
  ScriptedEnd(Status prepared, Run run) : prepared_(std::move(prepared)), run_(std::move(run)) {}
  Status prepare() override { return prepared_; }
  void say(const std::string&) override {}
  Status run(BootstrapChannel& channel) override { return run_(channel); }

 private:
  const Status prepared_;
  const Run run_;
};

Status meet_at_barrier(BootstrapChannel& channel) {
  return channel.barrier(Deadline::after(kLimit));
}

const Status kCannot(Code::kUnsupported, "prepare", "no such unpacker");

struct Outcome {
  Status one, other;
};
/// Lives of two ends that meet.
Outcome live(std::unique_ptr<ProgramEnd> one, std::unique_ptr<ProgramEnd> other) {
  int sockets[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
  const auto over = [](int socket) {
    return [socket](ProgramEnd&) {
      return Result<BootstrapChannel>(BootstrapChannel(UniqueFd(socket), SocketAddress::loopback(0), TCPX_VERSION));
    };
  };
  Outcome outcome;
  std::thread thread([&] { outcome.other = run_end(std::move(other), true, kLimit, over(sockets[1])); });
  outcome.one = run_end(std::move(one), true, kLimit, over(sockets[0]));
  thread.join();
  return outcome;
}

std::unique_ptr<ProgramEnd> end_that(ScriptedEnd::Run run, Status prepared = Status::ok()) {
  return std::make_unique<ScriptedEnd>(std::move(prepared), std::move(run));
}

TEST(RunEnd, TwoEndsPart) {
  const Outcome outcome = live(end_that(meet_at_barrier), end_that(meet_at_barrier));
  EXPECT_TRUE(outcome.one.is_ok()) << outcome.one.to_string();
  EXPECT_TRUE(outcome.other.is_ok()) << outcome.other.to_string();
}

TEST(RunEnd, OneThatCannotBeginTellsThePeerThatWaits) {
  const Outcome outcome = live(end_that(meet_at_barrier, kCannot), end_that(meet_at_barrier));
  EXPECT_EQ(outcome.one.code(), Code::kUnsupported) << outcome.one.to_string();
  EXPECT_NE(outcome.other.to_string().find("no such unpacker"), std::string::npos) << outcome.other.to_string();
}

TEST(RunEnd, OneThatCannotBeginWaitsForNobodyWhoMayNeverCome) {
  bool met = false;
  const auto meet = [&](ProgramEnd&) -> Result<BootstrapChannel> {
    met = true;
    return Status(Code::kTimeout, "accept", "nobody came");
  };
  EXPECT_EQ(run_end(end_that(meet_at_barrier, kCannot), false, kLimit, meet).code(), Code::kUnsupported);
  EXPECT_FALSE(met);
}

TEST(RunEnd, NoRoomIsAnErrorOfTheEnd) {
  const Outcome outcome = live(end_that([](BootstrapChannel&) -> Status { throw std::bad_alloc(); }), end_that(meet_at_barrier));
  EXPECT_EQ(outcome.one.code(), Code::kSystem) << outcome.one.to_string();
  EXPECT_FALSE(outcome.other.is_ok());
}

}  // namespace
}  // namespace tcpx::programs
