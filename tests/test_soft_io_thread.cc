// The event loop of the software plugin: who is called, how often, and never again after removal.
#include "net/soft/io_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <functional>

#include "tests/support/wait_until.h"

namespace tcpx::soft {
namespace {

using testing::wait_until;

class Handler final : public IoHandler {
 public:
  explicit Handler(IoThread& thread, std::function<Next(int call)> body) : body_(std::move(body)) {
    const Status added = thread.add(fd_.get(), *this, registration);
    EXPECT_TRUE(added.is_ok()) << added.to_string();
  }
  ~Handler() override { registration.remove(); }
  Next on_ready() override { return body_(++calls); }

  std::atomic<int> calls = 0;
  IoRegistration registration;

 private:
  const UniqueFd fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  const std::function<Next(int)> body_;
};

class SoftIoThread : public ::testing::Test {
 protected:
  std::unique_ptr<IoThread> thread_ = std::move(*IoThread::start());
};

TEST_F(SoftIoThread, WhoSaysAgainIsCalledAgainAndOthersInBetween) {
  std::atomic<bool> stop = false;
  Handler busy(*thread_, [&](int) { return stop ? IoHandler::Next::kWait : IoHandler::Next::kAgain; });
  ASSERT_TRUE(wait_until([&] { return busy.calls > 100; }));
  Handler other(*thread_, [](int) { return IoHandler::Next::kWait; });
  for (int i = 0; i < 10; ++i) {
    const int before = other.calls;
    other.registration.kick();
    EXPECT_TRUE(wait_until([&] { return other.calls > before; })) << "held up by the busy one";
  }
  stop = true;
}

TEST_F(SoftIoThread, SayingAgainManyTimesIsOneCallPerRound) {
  std::atomic<bool> stop = false;
  Handler kicked(*thread_, [&](int) { return stop ? IoHandler::Next::kWait : IoHandler::Next::kAgain; });
  for (int i = 0; i < 100; ++i) {  // each makes the handler say it once more
    const int before = kicked.calls;
    kicked.registration.kick();
    ASSERT_TRUE(wait_until([&] { return kicked.calls > before + 1; }));
  }
  int before = 0, after = 0;  // both handlers run on one thread: what one reads of the other is exact
  Handler pace(*thread_, [&](int call) {
    if (call == 10) before = kicked.calls;
    if (call == 1010) after = kicked.calls;
    return call < 1010 ? IoHandler::Next::kAgain : IoHandler::Next::kWait;
  });
  ASSERT_TRUE(wait_until([&] { return pace.calls == 1010; }));
  pace.registration.remove();
  EXPECT_GE(after - before, 999);
  EXPECT_LE(after - before, 1001) << "kicks have piled up";
  stop = true;
}

TEST_F(SoftIoThread, WhoIsRemovedIsNotCalledAgain) {
  auto handler = std::make_unique<Handler>(*thread_, [](int) { return IoHandler::Next::kAgain; });
  ASSERT_TRUE(wait_until([&] { return handler->calls > 10; }));
  handler->registration.remove();
  const int calls = handler->calls;
  EXPECT_FALSE(wait_until([&] { return handler->calls != calls; }, std::chrono::milliseconds(50)));
  handler.reset();
  Handler next(*thread_, [](int) { return IoHandler::Next::kWait; });
  EXPECT_TRUE(wait_until([&] { return next.calls > 0; })) << "the loop goes on";
}

}  // namespace
}  // namespace tcpx::soft
